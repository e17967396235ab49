"""Turns at a model that runs elsewhere: several calls at once, where a batcher runs one batch after another.

Who may wait, and who goes next, is decided as before a model in this process: INTERACTIVE before BULK, which keeps its
share, and fair between tenants. One slot is never given to BULK, where there are several: calls to a model elsewhere
take long, and a query would wait for the end of one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from kbmesh_onnx.admission import QueueLimits, Waiting, check_size
from kbmesh_onnx.batch_errors import BatcherClosedError, ItemExpiredError
from kbmesh_onnx.batch_observer import BatchObserver, BatchReport, SilentObserver
from kbmesh_onnx.bulk_share import BulkShare
from kbmesh_onnx.lane_queue import Entry, Lane, LaneQueue, Reservation, Submission
from kbmesh_onnx.throughput import Throughput

LanesInOrder = tuple[Lane, Lane]


@dataclass(kw_only=True)
class Turn:
    """One call that has a slot."""

    queue_seconds: float
    """How long it waited for it."""
    failed: int = 0
    """Items that came to nothing. For the one who has the turn to set."""


class Slots:
    """A queue before a model that takes `slots` calls at once. Belongs to one event loop."""

    def __init__(
        self,
        slots: int,
        *,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if slots < 1:
            raise ValueError("there is at least one slot")
        self._slots = slots
        self._limits = limits
        self._observer = observer or SilentObserver()
        self._clock = clock
        self._lanes: dict[Lane, LaneQueue[None, None]] = {lane: LaneQueue() for lane in Lane}
        self._granted: dict[Submission[None], asyncio.Future[None]] = {}
        self._running = dict.fromkeys(Lane, 0)
        self._running_tokens = 0
        self._bulk_share = BulkShare(limits.bulk_share)
        self._speed = Throughput(batch_tokens=limits.batch_tokens)
        self._closed = False

    @property
    def running(self) -> int:
        """Calls that have a slot."""
        return sum(self._running.values())

    @contextmanager
    def reserve(self, tokens: int, *, lane: Lane, tenant: str) -> Iterator[Reservation]:
        """Holds room for calls of so many tokens together, which then are let in for certain.

        Raises QueueFullError where they do not fit, and BatcherClosedError.
        """
        if self._closed:
            raise BatcherClosedError("the model is closed")
        waiting = self._waiting(lane, tenant)
        check_size(self._limits, lane, waiting, tenant=tenant, tokens=tokens, speed=self._speed)
        reservation = Reservation(lane=lane, tenant=tenant, tokens=tokens)
        self._lanes[lane].reserve(tenant, tokens)
        self._tell_queued(lane)
        try:
            yield reservation
        finally:
            self._give_back(reservation, reservation.tokens)
            self._tell_queued(lane)

    @asynccontextmanager
    async def turn(
        self, reservation: Reservation, tokens: int, *, items: int, deadline: float | None
    ) -> AsyncIterator[Turn]:
        """Waits for a slot and holds it. `tokens` of the reservation are given back for it.

        Raises ItemExpiredError where the deadline, a time of the clock, passes before, and BatcherClosedError.
        Cancelling it leaves the queue.
        """
        lane, tenant, tokens = reservation.lane, reservation.tenant, max(1, tokens)
        began = self._clock()
        self._give_back(reservation, min(tokens, reservation.tokens))
        await self._wait(lane, tenant, tokens, items=items, deadline=deadline)
        started = self._clock()
        turn = Turn(queue_seconds=started - began)
        try:
            yield turn
        finally:
            self._release(lane, tokens, items=items, failed=turn.failed, seconds=self._clock() - started)

    def close(self) -> None:
        """Ends what waits as BatcherClosedError. Calls that have a slot go on."""
        self._closed = True
        for granted in self._granted.values():
            if not granted.done():
                granted.set_exception(BatcherClosedError("the model is closed"))
        for lane, queue in self._lanes.items():
            dropped = len(queue.take_all())
            self._tell_queued(lane)
            if dropped:
                self._observer.dropped(lane, "closed", dropped)

    async def _wait(self, lane: Lane, tenant: str, tokens: int, *, items: int, deadline: float | None) -> None:
        if self._closed:
            raise BatcherClosedError("the model is closed")
        submission: Submission[None] = Submission(tenant=tenant, items=1, tokens=tokens)
        entry: Entry[None, None] = Entry(
            submission=submission, position=0, payload=None, tokens=tokens, deadline=deadline
        )
        self._lanes[lane].push([entry])
        granted = self._granted[submission] = asyncio.get_running_loop().create_future()
        self._grant()
        self._tell_queued(lane)
        expired = False
        try:
            async with asyncio.timeout(deadline - self._clock() if deadline is not None else None):
                await granted
        except TimeoutError:
            expired = True
        except asyncio.CancelledError:
            if _is_granted(granted):
                # It was cancelled in the same turn of the loop in which it got its slot.
                self._release(lane, tokens, items=0, failed=0, seconds=0.0)
            raise
        finally:
            del self._granted[submission]
            if not _is_granted(granted) and not self._closed:
                self._lanes[lane].abandon(submission)
                self._tell_queued(lane)
                self._observer.dropped(lane, "expired" if expired else "cancelled", items)
        if expired and not _is_granted(granted):
            raise ItemExpiredError

    def _grant(self) -> None:
        """Gives free slots to those whose turn it is."""
        while self.running < self._slots and not self._closed:
            for lane in self._lanes_in_order():
                if lane is Lane.BULK and self._running[lane] >= max(1, self._slots - 1):
                    continue
                entry = self._next(lane)
                if entry is not None:
                    self._running[lane] += 1
                    self._running_tokens += entry.tokens
                    self._granted[entry.submission].set_result(None)
                    self._tell_queued(lane)
                    self._observer.running(self._running_tokens)
                    break
            else:
                return

    def _next(self, lane: Lane) -> Entry[None, None] | None:
        """The call whose turn it is in a lane. Those that have expired are woken by their own time-out."""
        while True:
            batch, _ = self._lanes[lane].take_batch(
                draw_tokens=1, patient_draw_tokens=1, batch_tokens=1, now=self._clock()
            )
            if not batch:
                return None
            granted = self._granted.get(batch[0].submission)
            if granted is not None and not granted.done():
                return batch[0]

    def _release(self, lane: Lane, tokens: int, *, items: int, failed: int, seconds: float) -> None:
        self._running[lane] -= 1
        self._running_tokens -= tokens
        bulk_waits = self._lanes[Lane.BULK].tokens > 0
        self._bulk_share.ran(seconds, bulk=lane is Lane.BULK, bulk_waits=bulk_waits)
        if items > failed:
            self._speed.add(
                interactive=lane is Lane.INTERACTIVE,
                bulk_waits=bulk_waits,
                tokens=tokens,
                padded_tokens=tokens,
                seconds=seconds / self._slots,
            )
        self._grant()
        self._observer.running(self._running_tokens)
        if items:
            self._observer.ran(
                BatchReport(lane=lane, items=items, failed=failed, tokens=tokens, padded_tokens=tokens, seconds=seconds)
            )

    def _lanes_in_order(self) -> LanesInOrder:
        if self._lanes[Lane.BULK].tokens == 0:
            self._bulk_share.nothing_waits()
        if self._bulk_share.owed:
            return Lane.BULK, Lane.INTERACTIVE
        return Lane.INTERACTIVE, Lane.BULK

    def _waiting(self, lane: Lane, tenant: str) -> Waiting:
        claims: dict[str, int] = {}
        for queue in self._lanes.values():
            for name, claimed in queue.claims.items():
                claims[name] = claims.get(name, 0) + claimed
        return Waiting(
            queued_tokens=sum(queue.claimed_tokens for queue in self._lanes.values()),
            ahead_tokens=self._lanes[lane].claimed_by(tenant),
            running_tokens=self._running_tokens,
            bulk_waits=self._lanes[Lane.BULK].tokens > 0,
            claims=claims,
        )

    def _give_back(self, reservation: Reservation, tokens: int) -> None:
        self._lanes[reservation.lane].reserve(reservation.tenant, -tokens)
        reservation.tokens -= tokens

    def _tell_queued(self, lane: Lane) -> None:
        self._observer.queued(lane, self._lanes[lane].claimed_tokens)


def _is_granted(granted: "asyncio.Future[None]") -> bool:
    return granted.done() and not granted.cancelled() and granted.exception() is None
