"""Fixtures that every area shares."""

import shutil

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                pytest.skip(f"needs {program}, which is not installed; `make test-services` installs it")
