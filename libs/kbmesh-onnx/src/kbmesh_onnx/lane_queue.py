"""What waits for a model: items of many callers, in one lane."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


class Lane(StrEnum):
    """The lane an item waits in."""

    INTERACTIVE = "interactive"
    """Somebody is waiting; goes first."""
    BULK = "bulk"
    """Ingestion; keeps a share of the model's time."""


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    """How a model's queue is kept. Raises ValueError for shares that are out of range."""

    queue_tokens: int = 524_288
    """Tokens that may wait."""
    draw_tokens: int = 4096
    """Tokens that are drawn from the queue at once and sorted by length."""
    batch_tokens: int = 1024
    """Tokens of one run of the model, padding included."""
    bulk_share: float = 0.25
    """Part of the model's time that bulk work gets where both lanes always have work."""
    interactive_reserve: float = 0.25
    """Part of the queue that bulk work may not fill, so that ingestion cannot shut out those who wait."""

    def __post_init__(self) -> None:
        if not 0 < self.bulk_share < 1 or not 0 <= self.interactive_reserve < 1:
            raise ValueError("bulk_share lies between 0 and 1, interactive_reserve from 0 to below 1")

    def admission(self, lane: Lane) -> int:
        """Tokens that may wait for a submission to this lane to be taken."""
        return (
            self.queue_tokens if lane is Lane.INTERACTIVE else int(self.queue_tokens * (1 - self.interactive_reserve))
        )


class BatchError(Exception):
    """Why an item, or a whole submission, has no result."""


class QueueFullError(BatchError):
    """The queue has no room for the submission. Nothing of it was taken."""

    def __init__(self, *, queued_tokens: int, limit: int, retry_after_seconds: float) -> None:
        super().__init__(f"{queued_tokens} tokens wait, the limit is {limit}")
        self.queued_tokens = queued_tokens
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds


class ItemExpiredError(BatchError):
    """The item's deadline passed before the model took it."""


class ItemFailedError(BatchError):
    """The model failed on this very item; `__cause__` is its exception."""


class BatcherClosedError(BatchError):
    """The batcher was closed before the model took the item."""


class Submission(Generic[ResultT]):
    """The items of one caller and what became of them so far."""

    def __init__(self, *, items: int, tokens: int) -> None:
        self.outcomes: dict[int, ResultT | BatchError] = {}
        self.items = items
        self.waiting_items = items
        self.waiting_tokens = tokens
        self.infer_seconds = 0.0
        self.abandoned = False

    @property
    def complete(self) -> bool:
        """Whether each item has its outcome."""
        return len(self.outcomes) == self.items


class Reservation:
    """Room in the queue for work that is still being made ready. Belongs to one submission."""

    def __init__(self, *, lane: Lane, tokens: int) -> None:
        self.lane = lane
        self.tokens = tokens
        """What is held. 0 once it has been given back."""


@dataclass(kw_only=True, slots=True, eq=False)
class Entry(Generic[PayloadT, ResultT]):
    """One item in the queue."""

    submission: Submission[ResultT]
    position: int
    payload: PayloadT
    tokens: int
    deadline: float | None


def split_by_length(
    entries: Sequence[Entry[PayloadT, ResultT]], batch_tokens: int
) -> list[list[Entry[PayloadT, ResultT]]]:
    """Batches of like length, the shortest first, each of at most `batch_tokens` with padding.

    An entry that is longer than that is a batch by itself.
    """
    batches: list[list[Entry[PayloadT, ResultT]]] = []
    for entry in sorted(entries, key=lambda entry: entry.tokens):
        if batches and (len(batches[-1]) + 1) * entry.tokens <= batch_tokens:
            batches[-1].append(entry)
        else:
            batches.append([entry])
    return batches


class LaneQueue(Generic[PayloadT, ResultT]):
    """What waits in one lane: in order of arrival, and of the last draw the batches that are still to run.

    `tokens` counts what is really wanted: items whose caller has gone are not in it, though they lie in the queue until
    they are passed by.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.reserved_tokens = 0
        self._arrived: deque[Entry[PayloadT, ResultT]] = deque()
        self._planned: deque[list[Entry[PayloadT, ResultT]]] = deque()

    @property
    def claimed_tokens(self) -> int:
        """What waits, and what is reserved for work that is still being made ready."""
        return self.tokens + self.reserved_tokens

    def push(self, entry: Entry[PayloadT, ResultT]) -> None:
        """Adds an item at the end."""
        self._arrived.append(entry)
        self.tokens += entry.tokens

    def take_batch(
        self, *, draw_tokens: int, batch_tokens: int, now: float
    ) -> tuple[list[Entry[PayloadT, ResultT]], list[Entry[PayloadT, ResultT]]]:
        """The next batch, and what had expired before it. The batch is empty where nothing waits."""
        expired: list[Entry[PayloadT, ResultT]] = []
        while self.tokens > 0:
            if not self._planned:
                self._planned.extend(split_by_length(self._draw(draw_tokens), batch_tokens))
            wanted = [entry for entry in self._planned.popleft() if not entry.submission.abandoned]
            batch: list[Entry[PayloadT, ResultT]] = []
            for entry in wanted:
                self._leave(entry)
                late = entry.deadline is not None and entry.deadline <= now
                (expired if late else batch).append(entry)
            if batch:
                return batch, expired
        self._clear()
        return [], expired

    def take_expired(self, now: float) -> list[Entry[PayloadT, ResultT]]:
        """Everything that has expired."""
        expired = [entry for entry in self._waiting() if entry.deadline is not None and entry.deadline <= now]
        if expired:
            gone = set(map(id, expired))
            waiting = [entry for entry in self._waiting() if id(entry) not in gone]
            self._clear()
            self._arrived.extend(waiting)
            for entry in expired:
                self._leave(entry)
        return expired

    def take_all(self) -> list[Entry[PayloadT, ResultT]]:
        """Everything that waits."""
        waiting = list(self._waiting())
        self._clear()
        for entry in waiting:
            self._leave(entry)
        return waiting

    def abandon(self, submission: Submission[ResultT]) -> int:
        """Gives up the waiting items of a caller who has gone, and tells how many those were."""
        items, submission.abandoned = submission.waiting_items, True
        self.tokens -= submission.waiting_tokens
        submission.waiting_items = submission.waiting_tokens = 0
        if self.tokens == 0:
            self._clear()
        return items

    def _waiting(self) -> Iterator[Entry[PayloadT, ResultT]]:
        for batch in self._planned:
            yield from (entry for entry in batch if not entry.submission.abandoned)
        yield from (entry for entry in self._arrived if not entry.submission.abandoned)

    def _draw(self, draw_tokens: int) -> list[Entry[PayloadT, ResultT]]:
        drawn: list[Entry[PayloadT, ResultT]] = []
        tokens = 0
        while self._arrived:
            entry = self._arrived[0]
            if not entry.submission.abandoned:
                if drawn and tokens + entry.tokens > draw_tokens:
                    break
                drawn.append(entry)
                tokens += entry.tokens
            self._arrived.popleft()
        return drawn

    def _clear(self) -> None:
        self._arrived.clear()
        self._planned.clear()

    def _leave(self, entry: Entry[PayloadT, ResultT]) -> None:
        self.tokens -= entry.tokens
        entry.submission.waiting_items -= 1
        entry.submission.waiting_tokens -= entry.tokens
