"""How much may wait to be cut at the same time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kbmesh_rpc.errors import KbmeshError, QueueFull
from prometheus_client import Gauge

WAITING_BYTES = Gauge("kbmesh_chunker_waiting_bytes", "Bytes of the documents that wait or are worked on.")

MAX_WAITING_BYTES = 256 * 1024 * 1024
MIN_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 60.0


class WaitingFull(QueueFull):
    """So many bytes of documents wait or are worked on that no more are taken."""

    def __init__(self, *, queued_bytes: int, limit: int, retry_after_seconds: float) -> None:
        KbmeshError.__init__(
            self,
            f"documents of {queued_bytes} bytes wait, the limit is {limit}",
            metadata={"queued_bytes": str(queued_bytes), "limit": str(limit)},
            retry_after_seconds=retry_after_seconds,
        )


class Reservation:
    """Room that one call holds. Gives it back at its end."""

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Takes more room. Raises WaitingFull."""
        self._admission.take(size_bytes, own=self.size_bytes)
        self.size_bytes += size_bytes

    def give_back(self) -> None:
        """Gives all of it back."""
        self._admission.free(self.size_bytes)
        self.size_bytes = 0


class Admission:
    """Counts the bytes of the documents that wait or are worked on: they lie in memory, and so does what is made of
    them. Belongs to one event loop."""

    def __init__(self, limit_bytes: int = MAX_WAITING_BYTES) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._bytes_per_second: float | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the documents that are not done yet."""
        return self._bytes

    @contextmanager
    def reserve(self, size_bytes: int) -> Iterator[Reservation]:
        """Room for a document of `size_bytes`, which may grow. Raises WaitingFull."""
        reservation = Reservation(self)
        reservation.grow(size_bytes)
        began = time.monotonic()
        try:
            yield reservation
            self._learn(reservation.size_bytes, time.monotonic() - began)
        finally:
            reservation.give_back()

    def take(self, size_bytes: int, *, own: int) -> None:
        """Takes room for a call that has `own` already. Raises WaitingFull."""
        over = self._bytes + size_bytes - self._limit
        # One document that is larger than the limit is taken where nothing else waits, for otherwise it never could be.
        if over > 0 and self._bytes > own:
            speed = self._bytes_per_second
            wait = min(self._bytes, over) / speed if speed else 1.0
            raise WaitingFull(
                queued_bytes=self._bytes,
                limit=self._limit,
                retry_after_seconds=min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, wait)),
            )
        self._bytes += size_bytes
        WAITING_BYTES.inc(size_bytes)

    def free(self, size_bytes: int) -> None:
        """Gives room back."""
        self._bytes -= size_bytes
        WAITING_BYTES.dec(size_bytes)

    def _learn(self, size_bytes: int, seconds: float) -> None:
        if size_bytes and seconds > 0:
            self._bytes_per_second = size_bytes / seconds
