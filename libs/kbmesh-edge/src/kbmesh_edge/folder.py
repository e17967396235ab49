"""The data folder: which collections there are, whole or not at all.

lock                         held by the one process that serves the folder
collections/NAME/collection.json
collections/NAME/shard/      the engine's files
unfinished/ID/               being made or being deleted; removed at the next start
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Self
from uuid import uuid4

import qdrant_edge as engine

from kbmesh_edge.config import CollectionConfig
from kbmesh_edge.errors import CollectionAlreadyExists, EngineFailed, FolderInUse, InvalidRequest

# A name is a folder's name too: no separator, no leading dot, nothing that a file system treats as special.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)


def check_name(name: str) -> None:
    """Raises InvalidRequest for a name that cannot be a collection's."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"collection name {name[:200]!r} is not 1 to 200 letters, digits, '_', '-' or '.', or starts with '.'"
        )


class DataFolder:
    """The folder of one process. Blocking; used by one thread at a time."""

    def __init__(self, path: Path, lock: int) -> None:
        self._collections = path / "collections"
        self._unfinished = path / "unfinished"
        self._lock = lock

    @classmethod
    def claim(cls, path: Path) -> Self:
        """Makes the folder where there is none, and takes its lock, which the system drops when the process ends.

        Raises FolderInUse where another process has it.
        """
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise FolderInUse(path) from None
        folder = cls(path, lock)
        folder._collections.mkdir(exist_ok=True)
        # Whatever a crash left half made or half deleted was never acknowledged, or was acknowledged as gone.
        shutil.rmtree(folder._unfinished, ignore_errors=True)
        folder._unfinished.mkdir(exist_ok=True)
        return folder

    def release(self) -> None:
        os.close(self._lock)

    def names(self) -> Iterable[str]:
        return sorted(entry.name for entry in self._collections.iterdir() if _NAME.fullmatch(entry.name))

    def load(self, name: str) -> tuple[CollectionConfig, engine.EdgeShard]:
        """Raises EngineFailed where the collection cannot be read."""
        home = self._collections / name
        try:
            config = CollectionConfig.from_json((home / "collection.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineFailed(f"collection `{name}` has no readable collection.json: {error}") from error
        return config, self.open_shard(name, config)

    def open_shard(self, name: str, config: CollectionConfig) -> engine.EdgeShard:
        return engine.EdgeShard.load(str(self._collections / name / "shard"), config.for_engine())

    def create(self, name: str, config: CollectionConfig) -> engine.EdgeShard:
        """Makes the collection elsewhere and moves it into its place in one step, so that no crash leaves a half.

        Raises InvalidRequest for a bad name and CollectionAlreadyExists.
        """
        check_name(name)
        home = self._collections / name
        if home.exists():
            raise CollectionAlreadyExists(name)
        draft = self._unfinished / uuid4().hex
        draft.mkdir()
        _write_durably(draft / "collection.json", config.to_json())
        shard = engine.EdgeShard.create(str(draft / "shard"), config.for_engine())
        # The shard keeps the paths it was opened with: closed before the move, opened after it.
        shard.close()
        draft.rename(home)
        _sync(self._collections)
        return self.open_shard(name, config)

    def remove(self, name: str) -> None:
        """The collection is gone once this returns. Its shard must be closed."""
        grave = self._unfinished / uuid4().hex
        (self._collections / name).rename(grave)
        _sync(self._collections)
        shutil.rmtree(grave, ignore_errors=True)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
