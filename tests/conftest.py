"""Fixtures that every area shares."""

import shutil
from collections.abc import Iterator

import pytest
from postgres_process import PostgresServer, postgres_missing, postgres_process


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                pytest.skip(f"needs {program}, which is not installed; `make test-services` installs it")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests: each has a database of its own."""
    if missing := postgres_missing():
        pytest.skip(missing)
    with postgres_process() as server:
        yield server
