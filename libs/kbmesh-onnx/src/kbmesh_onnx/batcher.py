"""A queue of tokens in front of one model.

Nothing waits for a batch to fill: whenever the model is free, it takes what is there. A draw of waiting items is sorted
by length and split into small batches of like length, so that little is padding; between two batches the lanes are
looked at anew, so that an interactive item waits for one small batch at most before it is considered.

The model runs in one thread of its own. Everything else happens on the event loop, so the state needs no lock.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal

from kbmesh_onnx.batch_observer import BatchObserver, BatchReport, DropReason, SilentObserver
from kbmesh_onnx.lane_queue import (
    BatcherClosedError,
    BatchError,
    Entry,
    ItemExpiredError,
    ItemFailedError,
    Lane,
    LaneQueue,
    PayloadT,
    QueueFullError,
    QueueLimits,
    Reservation,
    ResultT,
    Submission,
)

__all__ = [
    "BatchError",
    "BatchObserver",
    "BatchReport",
    "Batched",
    "Batcher",
    "BatcherClosedError",
    "DropReason",
    "Item",
    "ItemExpiredError",
    "ItemFailedError",
    "Lane",
    "QueueFullError",
    "QueueLimits",
    "Reservation",
    "SilentObserver",
]

MIN_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 60.0
DEADLINE_SLACK = 2.0
"""How many times the time that is left the wait must seem to be, before a call is refused for its deadline. The wait is
a rough guess, and a call that would have made it must not be refused."""
FULL_BATCH_SHARE = 0.5
"""How full a batch must be to tell how fast a long queue goes: one short query takes nearly as long as several."""
RATE_MEMORY = 0.9
"""How much of the measured tokens and seconds is kept at each batch: about the last ten batches count."""


@dataclass(frozen=True, kw_only=True)
class Item(Generic[PayloadT]):
    """One thing for the model to work on."""

    payload: PayloadT
    tokens: int
    """At least 1. The length the payload is padded from."""


@dataclass(frozen=True, kw_only=True)
class Batched(Generic[ResultT]):
    """What became of one submission."""

    outcomes: tuple[ResultT | BatchError, ...]
    """One for each item, in the items' order."""
    queue_seconds: float
    """Time in which the model worked on none of the items."""
    infer_seconds: float
    """Time in which the model worked on batches that held some of the items."""


class Batcher(Generic[PayloadT, ResultT]):
    """Feeds one model from two lanes.

    `run_model` gets payloads and gives a result for each, in order; it is called in the batcher's own thread, one call
    at a time. Where it raises, the batch is halved until the item that breaks it is alone: that one fails, its batch
    mates do not.

    A submission is taken whole or refused whole. One that is larger than the queue's limit is taken where nothing else
    waits, for otherwise it never could be.
    """

    def __init__(
        self,
        run_model: Callable[[list[PayloadT]], Sequence[ResultT]],
        *,
        limits: QueueLimits | None = None,
        observer: BatchObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_model = run_model
        self._limits = limits or QueueLimits()
        self._bulk_ratio = self._limits.bulk_share / (1 - self._limits.bulk_share)
        self._bulk_credit_seconds = 0.0
        self._observer = observer or SilentObserver()
        self._clock = clock
        self._lanes: dict[Lane, LaneQueue[PayloadT, ResultT]] = {lane: LaneQueue() for lane in Lane}
        self._done: dict[Submission[ResultT], asyncio.Future[None]] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._running_tokens = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._pump_scheduled = False
        self._closed = False
        self._rate_tokens = 0.0
        self._rate_seconds = 0.0
        self._full_rate_tokens = 0.0
        self._full_rate_seconds = 0.0

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait in both lanes, reserved ones included."""
        return sum(queue.claimed_tokens for queue in self._lanes.values())

    @property
    def running_tokens(self) -> int:
        """Tokens that the model works on."""
        return self._running_tokens

    @property
    def tokens_per_second(self) -> float | None:
        """Speed over the last few batches. None before the first."""
        return self._rate_tokens / self._rate_seconds if self._rate_seconds > 0 else None

    def check_room(self, lane: Lane, tokens: int = 1, *, deadline: float | None = None) -> None:
        """Raises QueueFullError where a submission of so many tokens would be refused now.

        That is where it does not fit, or where its turn would come long after its deadline.
        """
        self._check_size(lane, tokens)
        self._check_wait(lane, deadline)

    def _check_size(self, lane: Lane, tokens: int) -> None:
        limit = self._limits.admission(lane)
        if self.queued_tokens + tokens <= limit:
            return
        for name, queue in self._lanes.items():
            self._drop(name, "expired", queue.take_expired(self._clock()))
        queued = self.queued_tokens
        if queued > 0 and queued + tokens > limit:
            wait = self._seconds_to_run(min(queued, queued + tokens - limit))
            raise QueueFullError(queued_tokens=queued, limit=limit, retry_after_seconds=wait)

    def _check_wait(self, lane: Lane, deadline: float | None) -> None:
        left = deadline - self._clock() if deadline is not None else 0.0
        # What is too late already ends as expired; and nothing is known before a full batch has been measured.
        if left <= 0 or self._full_rate_seconds <= 0:
            return
        ahead = self.queued_tokens if lane is Lane.BULK else self._lanes[lane].claimed_tokens
        wait = ahead * self._full_rate_seconds / self._full_rate_tokens
        if wait > left * DEADLINE_SLACK:
            raise QueueFullError(
                queued_tokens=self.queued_tokens,
                limit=self._limits.admission(lane),
                retry_after_seconds=_retry_seconds(wait - left),
            )

    @contextmanager
    def reserve(
        self, tokens: int, *, lane: Lane = Lane.INTERACTIVE, deadline: float | None = None
    ) -> Iterator[Reservation]:
        """Holds room for work that is still being made ready, so that it is refused before that and not after.

        `tokens` is an upper bound of what will be submitted. Once the reservation is handed to `submit`, the exact
        number takes its place; what is left of it at the end of the block is given back. Raises QueueFullError and
        BatcherClosedError.
        """
        if self._closed:
            raise BatcherClosedError("the batcher is closed")
        self.check_room(lane, tokens, deadline=deadline)
        reservation = Reservation(lane=lane, tokens=tokens)
        self._lanes[lane].reserved_tokens += tokens
        self._tell_queued(lane)
        try:
            yield reservation
        finally:
            self._give_back(reservation, reservation.tokens)
            self._tell_queued(lane)

    async def submit(
        self,
        items: Sequence[Item[PayloadT]],
        *,
        lane: Lane = Lane.INTERACTIVE,
        deadline: float | None = None,
        reservation: Reservation | None = None,
        keep_reserved: int = 0,
    ) -> Batched[ResultT]:
        """Runs the model over the items and gives one outcome for each.

        `deadline` is a time of the batcher's clock; an item that the model has not taken by then ends as
        ItemExpiredError. Cancelling the call takes its items out of the queue. With a `reservation`, which names the
        lane, items that it covers are taken for certain; `keep_reserved` tokens of it stay for a later submission.
        Raises QueueFullError and BatcherClosedError.
        """
        if self._closed:
            raise BatcherClosedError("the batcher is closed")
        if any(item.tokens < 1 for item in items):
            raise ValueError("an item has at least one token")
        if not items:
            return Batched(outcomes=(), queue_seconds=0.0, infer_seconds=0.0)
        tokens = sum(item.tokens for item in items)
        reserved = 0
        if reservation is not None:
            lane, reserved = reservation.lane, max(0, reservation.tokens - keep_reserved)
            self._give_back(reservation, reserved)
        if tokens > reserved:
            self._check_size(lane, tokens)
        if reservation is None:
            self._check_wait(lane, deadline)
        loop = asyncio.get_running_loop()
        started = self._clock()
        submission: Submission[ResultT] = Submission(items=len(items), tokens=tokens)
        queue = self._lanes[lane]
        for position, item in enumerate(items):
            queue.push(
                Entry(
                    submission=submission,
                    position=position,
                    payload=item.payload,
                    tokens=item.tokens,
                    deadline=deadline,
                )
            )
        done = self._done[submission] = loop.create_future()
        self._schedule_pump(loop)
        self._tell_queued(lane)
        try:
            await done
        finally:
            del self._done[submission]
            if not submission.complete:
                dropped = queue.abandon(submission)
                self._tell_queued(lane)
                self._observer.dropped(lane, "cancelled", dropped)
        elapsed = self._clock() - started
        return Batched(
            outcomes=tuple(submission.outcomes[position] for position in range(len(items))),
            queue_seconds=max(0.0, elapsed - submission.infer_seconds),
            infer_seconds=submission.infer_seconds,
        )

    async def close(self) -> None:
        """Waits for the batch in the model, ends everything that waits as BatcherClosedError, and ends the thread."""
        self._closed = True
        for lane, queue in self._lanes.items():
            self._drop(lane, "closed", queue.take_all())
        await self._idle.wait()
        self._executor.shutdown(wait=False)

    def _give_back(self, reservation: Reservation, tokens: int) -> None:
        self._lanes[reservation.lane].reserved_tokens -= tokens
        reservation.tokens -= tokens

    def _tell_queued(self, lane: Lane) -> None:
        self._observer.queued(lane, self._lanes[lane].claimed_tokens)

    def _schedule_pump(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not at once: whoever else arrives in this turn of the loop shares the batch.
        if not self._pump_scheduled and self._idle.is_set() and not self._closed:
            self._pump_scheduled = True
            loop.call_soon(self._pump, loop)

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pump_scheduled = False
        if self._closed:
            return
        for lane in self._lanes_in_order():
            queue = self._lanes[lane]
            batch, expired = queue.take_batch(
                draw_tokens=self._limits.draw_tokens, batch_tokens=self._limits.batch_tokens, now=self._clock()
            )
            self._drop(lane, "expired", expired)
            if batch:
                self._start(loop, lane, batch)
                return

    def _lanes_in_order(self) -> tuple[Lane, Lane]:
        if self._lanes[Lane.BULK].tokens == 0:
            self._bulk_credit_seconds = min(0.0, self._bulk_credit_seconds)
        if self._bulk_credit_seconds > 0:
            return Lane.BULK, Lane.INTERACTIVE
        return Lane.INTERACTIVE, Lane.BULK

    def _start(self, loop: asyncio.AbstractEventLoop, lane: Lane, batch: list[Entry[PayloadT, ResultT]]) -> None:
        self._idle.clear()
        self._running_tokens = sum(entry.tokens for entry in batch)
        run = loop.run_in_executor(self._executor, self._run_timed, [entry.payload for entry in batch])
        run.add_done_callback(partial(self._finish, loop, lane, batch))
        self._tell_queued(lane)
        self._observer.running(self._running_tokens)

    def _run_timed(self, payloads: list[PayloadT]) -> tuple[list[ResultT | BatchError], float]:
        started = self._clock()
        return self._run_isolating(payloads), self._clock() - started

    def _run_isolating(self, payloads: list[PayloadT]) -> list[ResultT | BatchError]:
        try:
            results = self._run_model(payloads)
            if len(results) != len(payloads):
                raise RuntimeError(f"the model gave {len(results)} results for {len(payloads)} items")
        except Exception as error:
            if len(payloads) == 1:
                return [_failure(error)]
            middle = len(payloads) // 2
            return self._run_isolating(payloads[:middle]) + self._run_isolating(payloads[middle:])
        return [*results]

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        batch: list[Entry[PayloadT, ResultT]],
        run: "asyncio.Future[tuple[list[ResultT | BatchError], float]]",
    ) -> None:
        try:
            outcomes, seconds = run.result()
        except BaseException as error:
            # Not an Exception, or the loop is going down: nobody may be left waiting.
            outcomes, seconds = [_failure(error) for _ in batch], 0.0
        tokens, self._running_tokens = self._running_tokens, 0
        for submission in {entry.submission for entry in batch}:
            submission.infer_seconds += seconds
        for entry, outcome in zip(batch, outcomes, strict=True):
            self._settle(entry, outcome)
        self._rate_tokens = self._rate_tokens * RATE_MEMORY + tokens
        self._rate_seconds = self._rate_seconds * RATE_MEMORY + seconds
        if tokens >= self._limits.batch_tokens * FULL_BATCH_SHARE:
            self._full_rate_tokens = self._full_rate_tokens * RATE_MEMORY + tokens
            self._full_rate_seconds = self._full_rate_seconds * RATE_MEMORY + seconds
        # Bulk earns its share of the time that interactive batches take while it waits, and pays with its own.
        if lane is Lane.INTERACTIVE and self._lanes[Lane.BULK].tokens > 0:
            self._bulk_credit_seconds += seconds * self._bulk_ratio
        elif lane is Lane.BULK and self._lanes[Lane.INTERACTIVE].tokens > 0:
            self._bulk_credit_seconds -= seconds
        self._idle.set()
        self._schedule_pump(loop)
        self._observer.running(0)
        self._observer.ran(
            BatchReport(
                lane=lane,
                items=len(batch),
                failed=sum(isinstance(outcome, ItemFailedError) for outcome in outcomes),
                tokens=tokens,
                padded_tokens=len(batch) * max(entry.tokens for entry in batch),
                seconds=seconds,
            )
        )

    def _drop(
        self, lane: Lane, reason: Literal["expired", "closed"], entries: Iterable[Entry[PayloadT, ResultT]]
    ) -> None:
        dropped = 0
        for entry in entries:
            dropped += 1
            self._settle(
                entry, ItemExpiredError() if reason == "expired" else BatcherClosedError("the batcher is closed")
            )
        if dropped:
            self._tell_queued(lane)
            self._observer.dropped(lane, reason, dropped)

    def _settle(self, entry: Entry[PayloadT, ResultT], outcome: ResultT | BatchError) -> None:
        submission = entry.submission
        submission.outcomes[entry.position] = outcome
        done = self._done.get(submission)
        if submission.complete and done is not None and not done.done():
            done.set_result(None)

    def _seconds_to_run(self, tokens: int) -> float:
        rate = self.tokens_per_second
        return _retry_seconds(tokens / rate if rate else 1.0)


def _retry_seconds(seconds: float) -> float:
    return min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, seconds))


def _failure(error: BaseException) -> ItemFailedError:
    failed = ItemFailedError(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
