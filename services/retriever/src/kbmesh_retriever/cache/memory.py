"""A cache in this process's memory."""

import time
from collections.abc import Callable
from itertools import islice

from kbmesh_retriever.cache.metrics import CacheMetrics


class MemoryCache:
    """A `Cache` of at most `max_entries` values and `max_bytes` of them. The oldest by the time they were put leave,
    many together: room is made seldom, and what is old is likely to be of a former generation anyway."""

    def __init__(
        self,
        metrics: CacheMetrics,
        *,
        max_entries: int = 1000,
        leave_together: int = 100,
        max_bytes: int = 128 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._max_entries = max_entries
        self._leave_together = leave_together
        self._max_bytes = max_bytes
        self._clock = clock
        self._values: dict[str, tuple[float, bytes]] = {}
        """By key: until when, and the value; the oldest first."""
        self._bytes = 0

    async def get(self, key: str) -> bytes | None:
        kept = self._values.get(key)
        if kept is None:
            return None
        until, value = kept
        if self._clock() >= until:
            self._drop(key)
            self._tell()
            return None
        return value

    async def put(self, key: str, value: bytes, *, ttl_seconds: float) -> None:
        self._drop(key)
        if ttl_seconds > 0 and len(value) <= self._max_bytes:
            self._make_room(len(value))
            self._values[key] = (self._clock() + ttl_seconds, value)
            self._bytes += len(value)
        self._tell()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self._values.clear()
        self._bytes = 0
        self._tell()

    def _make_room(self, size_bytes: int) -> None:
        while self._values and (len(self._values) >= self._max_entries or self._bytes + size_bytes > self._max_bytes):
            oldest = list(islice(self._values, self._leave_together))
            for key in oldest:
                self._drop(key)
            self._metrics.evicted(len(oldest))

    def _drop(self, key: str) -> None:
        kept = self._values.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept[1])

    def _tell(self) -> None:
        self._metrics.holds(entries=len(self._values), size_bytes=self._bytes)
