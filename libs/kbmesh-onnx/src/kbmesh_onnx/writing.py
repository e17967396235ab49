"""Folders that appear whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbmesh_onnx.errors import ExportError


@contextmanager
def whole_folder(destination: Path) -> Iterator[Path]:
    """Give an empty folder to write into, which becomes `destination` at the end of the block.

    An existing `destination` is replaced. If the block raises, nothing remains; if the process dies, what remains has
    a dot before its name and is removed by the next attempt. Attempts for the same destination wait for each other
    (see `exclusive`, which the caller holds).
    """
    partial, old = _beside(destination, "partial"), _beside(destination, "old")
    try:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if destination.exists():
            destination.rename(old)
        partial.rename(destination)
        _sync(destination.parent)
    except OSError as error:
        raise ExportError(f"{destination} cannot be written: {error}") from error
    finally:
        # Should the second rename have failed, the model that was there comes back.
        if old.exists() and not destination.exists():
            old.rename(destination)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def exclusive(destination: Path) -> Iterator[None]:
    """Hold the right to write `destination`, across processes."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        lock = _beside(destination, "lock").open("w")
    except OSError as error:
        raise ExportError(f"{destination} cannot be written: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _beside(destination: Path, suffix: str) -> Path:
    return destination.parent / f".{destination.name}.{suffix}"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
