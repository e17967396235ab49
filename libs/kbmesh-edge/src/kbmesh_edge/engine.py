"""The open collections and the one thread that works on them.

The engine holds the interpreter's lock through every call, so that a second thread would gain nothing; with one thread
calls are done in the order in which they came. Work whose caller has gone is dropped before it starts.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import qdrant_edge
from kbmesh_rpc.logs import get_logger

from kbmesh_edge.config import CollectionConfig
from kbmesh_edge.errors import CollectionNotFound, EdgeError, EngineFailed, InvalidRequest, StillOpening
from kbmesh_edge.folder import DataFolder

T = TypeVar("T")

# Until a flush the write-ahead log grows, and is in the system's memory only: a killed process loses nothing, a power
# cut what was not flushed. A flush of this many points takes some 40 ms.
_FLUSH_AFTER_POINTS = 5_000
_FLUSH_AFTER_SECONDS = 5.0

_log = get_logger(__name__)


@dataclass(kw_only=True)
class Collection:
    """An open collection. Touched on the engine's thread only."""

    name: str
    config: CollectionConfig
    shard: qdrant_edge.EdgeShard
    unflushed_points: int = 0

    def update(self, operation: qdrant_edge.UpdateOperation, *, points: int = 1) -> None:
        """Applies an operation; it is in the write-ahead log, and seen by every later call, once this returns."""
        self.shard.update(operation)
        self.unflushed_points += points
        if self.unflushed_points >= _FLUSH_AFTER_POINTS:
            self.flush()

    def flush(self) -> None:
        self.shard.flush()
        self.unflushed_points = 0


class Engine:
    """Every collection of one data folder. Raises the errors of `kbmesh_edge.errors`."""

    def __init__(self, folder: DataFolder, *, flush_after_seconds: float = _FLUSH_AFTER_SECONDS) -> None:
        self._folder = folder
        self._flush_after_seconds = flush_after_seconds
        self._flush_timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._open: dict[str, Collection] = {}
        self._broken: dict[str, str] = {}
        self._ready = False

    async def open(self) -> None:
        """Opens all collections and compacts what was deleted from them; before this, calls get StillOpening.

        A collection that cannot be opened is logged and answers EngineFailed; the others are served.
        """
        await self._on_thread(self._open_all)
        self._ready = True

    async def close(self) -> None:
        """Flushes and closes everything. Work that is queued is done first."""
        self._ready = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        await self._on_thread(self._close_all)
        self._thread.shutdown()

    async def names(self) -> list[str]:
        self._check_ready()
        return await self._on_thread(lambda: sorted({*self._open, *self._broken}))

    async def create(self, name: str, config: CollectionConfig) -> None:
        self._check_ready()

        def work() -> None:
            shard = _guarded(lambda: self._folder.create(name, config))
            self._open[name] = Collection(name=name, config=config, shard=shard)

        await self._on_thread(work)

    async def delete(self, name: str) -> bool:
        """Whether there was such a collection."""
        self._check_ready()

        def work() -> bool:
            collection = self._open.pop(name, None)
            if collection is None and self._broken.pop(name, None) is None:
                return False
            if collection is not None:
                _logged(collection, collection.shard.close)
            self._folder.remove(name)
            return True

        return await self._on_thread(work)

    async def run(self, name: str, work: Callable[[Collection], T]) -> T:
        """Does `work` on the collection and gives its result. What it wrote is flushed a few seconds later."""
        self._check_ready()
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._flush_after_seconds, self._begin_flush)
        return await self._on_thread(lambda: self._work_on(name, work))

    def _work_on(self, name: str, work: Callable[[Collection], T]) -> T:
        if (reason := self._broken.get(name)) is not None:
            raise EngineFailed(reason)
        collection = self._open.get(name)
        if collection is None:
            raise CollectionNotFound(name)
        try:
            return _guarded(lambda: work(collection))
        except _EnginePanicError as panic:
            self._reopen(collection)
            raise EngineFailed(f"the engine stopped on this request: {panic}") from panic

    def _reopen(self, collection: Collection) -> None:
        """After a panic the engine's memory is not to be trusted; its files and its log are, but for the operation it
        panicked on, which is the log's last. An operation that does nothing moves the log past it: else every start
        would repeat it, and panic."""
        _log.error("engine panicked, reopening the collection", collection=collection.name)
        nothing = qdrant_edge.UpdateOperation.delete_points([])
        try:
            _guarded(lambda: collection.shard.update(nothing))
            _guarded(collection.shard.close)
            collection.shard = _guarded(lambda: self._folder.open_shard(collection.name, collection.config))
        except (EdgeError, _EnginePanicError) as error:
            del self._open[collection.name]
            self._broken[collection.name] = f"collection `{collection.name}` cannot be opened: {error}"

    def _open_all(self) -> None:
        for name in self._folder.names():
            try:
                self._open[name] = _guarded(partial(self._open_one, name))
            except (EdgeError, _EnginePanicError) as error:
                _log.error("collection cannot be opened", collection=name, error=str(error))
                self._broken[name] = f"collection `{name}` cannot be opened: {error}"

    def _open_one(self, name: str) -> Collection:
        started = time.perf_counter()
        config, shard = self._folder.load(name)
        collection = Collection(name=name, config=config, shard=shard)
        compacted = shard.optimize()
        collection.flush()
        seconds = round(time.perf_counter() - started, 3)
        _log.info("collection open", collection=name, compacted=compacted, seconds=seconds)
        return collection

    def _begin_flush(self) -> None:
        self._flush_timer = None
        self._thread.submit(self._flush_all)

    def _flush_all(self) -> None:
        for collection in self._open.values():
            if collection.unflushed_points:
                _logged(collection, collection.flush)

    def _close_all(self) -> None:
        self._flush_all()
        for collection in self._open.values():
            _logged(collection, collection.shard.close)
        self._open.clear()
        self._folder.release()

    def _check_ready(self) -> None:
        if not self._ready:
            raise StillOpening

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _logged(collection: Collection, work: Callable[[], None]) -> None:
    """A flush or a close that may fail: what was written is in the write-ahead log all the same."""
    try:
        _guarded(work)
    except (EdgeError, _EnginePanicError) as error:
        _log.error("collection not flushed or not closed", collection=collection.name, error=str(error))


class _EnginePanicError(Exception):
    """A Rust panic, which arrives as a BaseException and must not end the process."""


def _guarded(work: Callable[[], T]) -> T:
    """Does `work`; what the engine raises comes out as an EdgeError or as _EnginePanicError."""
    try:
        return work()
    except EdgeError:
        raise
    except ValueError as error:
        # The binding's own checks: a payload path that is no path, an id that is no UUID.
        raise InvalidRequest(str(error)) from error
    except Exception as error:
        # The engine raises plain Exceptions and tells its own faults from the caller's by their first word.
        if type(error) is not Exception:
            raise
        if str(error).startswith("Service"):
            raise EngineFailed(str(error)) from error
        raise InvalidRequest(str(error)) from error
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise _EnginePanicError(str(panic)) from panic
