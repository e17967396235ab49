"""A queue of tokens in front of one model.

Nothing waits for a batch to fill: whenever the model is free, it takes what is there. A draw of waiting items is sorted
by length and split into small batches of like length, so that little is padding; between two batches the lanes are
looked at anew, so that an interactive item waits for one small batch at most before it is considered.

The model runs in one thread of its own. Everything else happens on the event loop, so the state needs no lock.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic

from opentelemetry import trace

from kbmesh_onnx import batch_spans
from kbmesh_onnx.admission import ATTENTIVE_SECONDS, QueueLimits, Waiting, check_size, check_wait
from kbmesh_onnx.batch_errors import (
    BatcherClosedError,
    BatchError,
    ItemExpiredError,
    ItemFailedError,
    ModelLostError,
    QueueFullError,
)
from kbmesh_onnx.batch_observer import BatchObserver, BatchReport, DropReason, SilentObserver
from kbmesh_onnx.bulk_share import BulkShare
from kbmesh_onnx.isolation import failure, run_isolating
from kbmesh_onnx.lane_queue import Entry, Lane, LaneQueue, PayloadT, Reservation, ResultT, Submission
from kbmesh_onnx.throughput import Throughput

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
    "ModelLostError",
    "QueueFullError",
    "QueueLimits",
    "Reservation",
    "SilentObserver",
]

HUNG_SECONDS = 120.0
"""Work on one batch beyond which a model counts as hanging: a thousand times what it takes."""
SUSPECT_RUNS = 3
SWEEP_PAUSE = 9.0
"""How many times as long as it took to look for expired work the next look is away at least."""


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
    mates do not. Where it raises DeviceLost, the model is given up: all that waits and all that comes later ends as
    ModelLostError.

    A submission is taken whole or refused whole, on arrival. `executor`, for a simulation, takes the place of the
    thread; it runs one call at a time.
    """

    def __init__(
        self,
        run_model: Callable[[list[PayloadT]], Sequence[ResultT]],
        *,
        limits: QueueLimits | None = None,
        observer: BatchObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
        executor: Executor | None = None,
    ) -> None:
        self._run_model = run_model
        self._limits = limits or QueueLimits()
        self._bulk_share = BulkShare(self._limits.bulk_share)
        self._observer = observer or SilentObserver()
        self._clock = clock
        self._lanes: dict[Lane, LaneQueue[PayloadT, ResultT]] = {lane: LaneQueue() for lane in Lane}
        self._done: dict[Submission[ResultT], asyncio.Future[None]] = {}
        self._executor = executor or ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._running_tokens = 0
        self._running_since: float | None = None
        self._running: list[Entry[PayloadT, ResultT]] = []
        self._failed_runs = 0
        self._span: trace.Span | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._pump_scheduled = False
        self._closed = False
        self._lost: ModelLostError | None = None
        self._next_sweep = self._clock()
        self._attentive_until = self._next_sweep
        self._speed = Throughput(batch_tokens=self._limits.batch_tokens)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait in both lanes, reserved ones included."""
        return sum(queue.claimed_tokens for queue in self._lanes.values())

    @property
    def running_tokens(self) -> int:
        """Tokens that the model works on."""
        return self._running_tokens

    @property
    def running_seconds(self) -> float:
        """For how long the model has worked on its batch. 0 where it does not work."""
        return self._clock() - self._running_since if self._running_since is not None else 0.0

    @property
    def failed_runs(self) -> int:
        """How many of the last batches, one after another, had no item that the model did not fail on."""
        return self._failed_runs

    @property
    def fault(self) -> str:
        """Why the model cannot be run any more: its device is gone, or it hangs. Empty where it can."""
        if self._lost is not None:
            return str(self._lost)
        if self.running_seconds > HUNG_SECONDS:
            return f"it has worked on one batch for {self.running_seconds:.0f} s"
        return ""

    @property
    def suspect(self) -> bool:
        """Whether it failed on so many batches in a row that it should be tried with something harmless."""
        return self._failed_runs >= SUSPECT_RUNS

    @property
    def lost(self) -> ModelLostError | None:
        """Why the model cannot be run any more. None where it can."""
        return self._lost

    @property
    def tokens_per_second(self) -> float | None:
        """Speed over the last few batches. None before the first."""
        return self._speed.tokens_per_second

    def check_room(self, lane: Lane, tokens: int = 1, *, tenant: str = "", deadline: float | None = None) -> None:
        """Raises QueueFullError where a submission of so many tokens would be refused now.

        That is where it does not fit, or where it could not be done by its deadline.
        """
        if tokens > 0 and self.queued_tokens + tokens > self._limits.queue_tokens * (1 - self._limits.tenant_reserve):
            self._sweep()
        waiting = self._waiting(lane, tenant, tokens)
        check_size(self._limits, lane, waiting, tenant=tenant, tokens=tokens, speed=self._speed)
        left = deadline - self._clock() if deadline is not None else 0.0
        # What is too late already ends as expired.
        if left > 0:
            check_wait(self._limits, lane, waiting, tokens=tokens, seconds_left=left, speed=self._speed)

    @contextmanager
    def reserve(
        self, tokens: int, *, lane: Lane = Lane.INTERACTIVE, tenant: str = "", deadline: float | None = None
    ) -> Iterator[Reservation]:
        """Holds room for work that is still being made ready, so that it is refused before that and not after.

        `tokens` is an estimate of what will be submitted. Once the reservation is handed to `submit`, the exact number
        takes its place; what is left of it at the end of the block is given back. Raises QueueFullError,
        ModelLostError and BatcherClosedError.
        """
        self._check_open()
        self.check_room(lane, tokens, tenant=tenant, deadline=deadline)
        reservation = Reservation(lane=lane, tenant=tenant, tokens=tokens)
        self._lanes[lane].reserve(tenant, tokens)
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
        tenant: str = "",
        deadline: float | None = None,
        reservation: Reservation | None = None,
        keep_reserved: int = 0,
    ) -> Batched[ResultT]:
        """Runs the model over the items and gives one outcome for each.

        `deadline` is a time of the batcher's clock; an item that the model has not taken by then ends as
        ItemExpiredError. Cancelling the call takes its items out of the queue. With a `reservation`, which names the
        lane and the tenant, the items are taken for certain, also where they are more than was estimated: who was let
        in is not sent away later. `keep_reserved` tokens of it stay for a later submission. Raises QueueFullError,
        ModelLostError and BatcherClosedError.
        """
        self._check_open()
        if any(item.tokens < 1 for item in items):
            raise ValueError("an item has at least one token")
        if not items:
            return Batched(outcomes=(), queue_seconds=0.0, infer_seconds=0.0)
        tokens = sum(item.tokens for item in items)
        if reservation is not None:
            lane, tenant = reservation.lane, reservation.tenant
            self._give_back(reservation, max(0, reservation.tokens - keep_reserved))
        else:
            self.check_room(lane, tokens, tenant=tenant, deadline=deadline)
        loop = asyncio.get_running_loop()
        started = self._clock()
        submission: Submission[ResultT] = Submission(tenant=tenant, items=len(items), tokens=tokens)
        if lane is Lane.INTERACTIVE:
            self._attentive_until = started + ATTENTIVE_SECONDS
        queue = self._lanes[lane]
        queue.push(
            [
                Entry(
                    submission=submission,
                    position=position,
                    payload=item.payload,
                    tokens=item.tokens,
                    deadline=deadline,
                )
                for position, item in enumerate(items)
            ]
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
        """Waits for the batch in the model, ends everything that waits as BatcherClosedError, and ends the thread.

        A model that hangs is not waited for: its batch ends as ModelLostError.
        """
        self._closed = True
        for lane, queue in self._lanes.items():
            self._drop(lane, "closed", queue.take_all())
        if self.running_seconds > HUNG_SECONDS:
            for entry in self._running:
                self._settle(entry, ModelLostError(self.fault))
        else:
            await self._idle.wait()
        self._executor.shutdown(wait=False)

    def _sweep(self) -> None:
        """Takes what has expired out of the queue. A long queue takes long to look through, and where it is full
        everybody who comes asks for it: it has a tenth of the event loop's time at most."""
        began = self._clock()
        if began < self._next_sweep:
            return
        for lane, queue in self._lanes.items():
            self._drop(lane, "expired", queue.take_expired(began))
        ended = self._clock()
        self._next_sweep = ended + SWEEP_PAUSE * (ended - began)

    def _check_open(self) -> None:
        if self._closed:
            raise BatcherClosedError("the batcher is closed")
        if self._lost is not None:
            raise ModelLostError(str(self._lost)) from self._lost

    def _waiting(self, lane: Lane, tenant: str, tokens: int) -> Waiting:
        """What one who brings so many tokens finds.

        Ahead of him is what his own tenant has in the lane, and of each other tenant as much as that and he together,
        for they take turns.
        """
        claims: dict[str, int] = {}
        for queue in self._lanes.values():
            for name, claimed in queue.claims.items():
                claims[name] = claims.get(name, 0) + claimed
        own = self._lanes[lane].claimed_by(tenant)
        ahead = own
        ahead += sum(min(own + tokens, claim) for name, claim in self._lanes[lane].claims.items() if name != tenant)
        if lane is Lane.BULK:
            ahead += self._lanes[Lane.INTERACTIVE].claimed_tokens
        return Waiting(
            queued_tokens=self.queued_tokens,
            ahead_tokens=ahead,
            running_tokens=self._running_tokens,
            bulk_waits=self._lanes[Lane.BULK].tokens > 0,
            claims=claims,
        )

    def _give_back(self, reservation: Reservation, tokens: int) -> None:
        self._lanes[reservation.lane].reserve(reservation.tenant, -tokens)
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
        now = self._clock()
        for lane in self._lanes_in_order():
            queue = self._lanes[lane]
            batch, expired = queue.take_batch(
                draw_tokens=self._limits.draw_tokens,
                patient_draw_tokens=self._limits.patient_draw_tokens(lane),
                batch_tokens=self._limits.run_tokens(lane, attentive=now < self._attentive_until),
                now=now,
            )
            self._drop(lane, "expired", expired)
            if batch:
                self._start(loop, lane, batch)
                return

    def _lanes_in_order(self) -> tuple[Lane, Lane]:
        if self._lanes[Lane.BULK].tokens == 0:
            self._bulk_share.nothing_waits()
        if self._bulk_share.owed:
            return Lane.BULK, Lane.INTERACTIVE
        return Lane.INTERACTIVE, Lane.BULK

    def _start(self, loop: asyncio.AbstractEventLoop, lane: Lane, batch: list[Entry[PayloadT, ResultT]]) -> None:
        self._idle.clear()
        self._running_tokens = sum(entry.tokens for entry in batch)
        self._running_since = started = self._clock()
        self._running = batch
        payloads = [entry.payload for entry in batch]
        self._span = batch_spans.begin([one.span for one in dict.fromkeys(entry.submission for entry in batch)])
        run = loop.run_in_executor(self._executor, run_isolating, self._run_model, payloads)
        run.add_done_callback(partial(self._finish, loop, lane, batch, started))
        self._tell_queued(lane)
        self._observer.running(self._running_tokens)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        batch: list[Entry[PayloadT, ResultT]],
        started: float,
        run: "asyncio.Future[list[ResultT | BatchError]]",
    ) -> None:
        seconds = self._clock() - started
        try:
            outcomes = run.result()
        except BaseException as error:
            outcomes = [failure(error)] * len(batch)
        tokens, self._running_tokens, self._running_since = self._running_tokens, 0, None
        self._running = []
        for submission in {entry.submission for entry in batch}:
            submission.infer_seconds += seconds
        for entry, outcome in zip(batch, outcomes, strict=True):
            self._settle(entry, outcome)
        lost = next((outcome for outcome in outcomes if isinstance(outcome, ModelLostError)), None)
        failed = sum(isinstance(outcome, ItemFailedError | ModelLostError) for outcome in outcomes)
        padded_tokens = len(batch) * max(entry.tokens for entry in batch)
        self._failed_runs = self._failed_runs + 1 if failed == len(batch) else 0
        bulk_waits = self._lanes[Lane.BULK].tokens > 0
        if failed == 0:
            self._speed.add(
                interactive=lane is Lane.INTERACTIVE,
                bulk_waits=bulk_waits,
                tokens=tokens,
                padded_tokens=padded_tokens,
                seconds=seconds,
            )
        self._bulk_share.ran(seconds, bulk=lane is Lane.BULK, bulk_waits=bulk_waits)
        self._idle.set()
        if lost is not None:
            self._give_up(lost)
        self._schedule_pump(loop)
        self._observer.running(0)
        report = BatchReport(
            lane=lane,
            items=len(batch),
            failed=failed,
            tokens=tokens,
            padded_tokens=padded_tokens,
            seconds=seconds,
        )
        self._observer.ran(report)
        batch_spans.end(self._span, report)

    def _give_up(self, lost: ModelLostError) -> None:
        self._lost = lost
        for lane, queue in self._lanes.items():
            self._drop(lane, "lost", queue.take_all())

    def _drop(self, lane: Lane, reason: DropReason, entries: Iterable[Entry[PayloadT, ResultT]]) -> None:
        dropped = 0
        for entry in entries:
            dropped += 1
            self._settle(entry, self._drop_error(reason))
        if dropped:
            self._tell_queued(lane)
            self._observer.dropped(lane, reason, dropped)

    def _drop_error(self, reason: DropReason) -> BatchError:
        if reason == "expired":
            return ItemExpiredError()
        if reason == "lost":
            return ModelLostError(str(self._lost))
        return BatcherClosedError("the batcher is closed")

    def _settle(self, entry: Entry[PayloadT, ResultT], outcome: ResultT | BatchError) -> None:
        submission = entry.submission
        submission.outcomes[entry.position] = outcome
        done = self._done.get(submission)
        if submission.complete and done is not None and not done.done():
            done.set_result(None)
