"""Meshes for the stories of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from observability.watched_mesh import WatchedMesh


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedMesh]:
    """One for the stories that break nothing for good: what they kill they start again."""
    found = WatchedMesh(folder=tmp_path_factory.mktemp("watched"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
