"""What waits for a model: items of many callers of many tenants, in one lane.

Between tenants the lane is fair: each has an account of the tokens it was given, and the one with the smallest goes
next (weighted fair queueing: Demers, Keshav and Shenker, SIGCOMM 1989). Within a tenant an item's turn is the moment at
which it would run if its submission had begun to run on arrival and alone. That is first come, first served for calls
of like size; but a call that comes after a very long one, such as a document of a hundred windows, does not wait for
its end.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from opentelemetry import trace

from kbmesh_onnx.batch_errors import BatchError

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")

MAX_DRAWN_ITEMS = 2048
"""Items of one draw, which is done on the event loop: so many short ones fill any device."""
PATIENT_SECONDS = 30.0
"""An item whose deadline is further away than this has time. Several times what a draw takes on a slow device."""
SWEEP_TENANTS = 256
"""Beyond so many tenants, those who have nothing here are looked for after each batch."""


class Lane(StrEnum):
    """The lane an item waits in."""

    INTERACTIVE = "interactive"
    """Somebody is waiting; goes first."""
    BULK = "bulk"
    """Ingestion; keeps a share of the model's time."""


class Submission(Generic[ResultT]):
    """The items of one caller and what became of them so far."""

    def __init__(self, *, tenant: str, items: int, tokens: int) -> None:
        self.tenant = tenant
        self.span = trace.get_current_span()
        """Of the caller, for traces."""
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

    def __init__(self, *, lane: Lane, tenant: str, tokens: int) -> None:
        self.lane = lane
        self.tenant = tenant
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
    turn: int = 0
    """Tokens of its tenant after which it runs. Set by the queue."""
    arrival: int = 0
    """Its number in the order of arrival. Set by the queue."""

    def expired(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and self.deadline <= now

    def patient(self, now: float) -> bool:
        """Whether it may wait for others to be sorted with."""
        return self.deadline is None or self.deadline - now > PATIENT_SECONDS


def split_by_length(
    entries: Sequence[Entry[PayloadT, ResultT]], batch_tokens: int
) -> list[list[Entry[PayloadT, ResultT]]]:
    """Batches of like length, each of at most `batch_tokens` with padding, in the order in which `entries` are.

    An entry that is longer than that is a batch by itself. The batch with the first entry comes first, so that nobody
    waits because he is long or short.
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(entries)), key=lambda place: entries[place].tokens):
        if batches and (len(batches[-1]) + 1) * entries[place].tokens <= batch_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    batches.sort(key=min)
    return [[entries[place] for place in batch] for batch in batches]


def split_at(
    batch: Sequence[Entry[PayloadT, ResultT]], batch_tokens: int
) -> tuple[list[Entry[PayloadT, ResultT]], list[Entry[PayloadT, ResultT]]]:
    """As much of the beginning of a batch, which is sorted by length, as has `batch_tokens` with padding, and the rest.

    The first part has one entry at least.
    """
    fitting = 1
    while fitting < len(batch) and (fitting + 1) * batch[fitting].tokens <= batch_tokens:
        fitting += 1
    return list(batch[:fitting]), list(batch[fitting:])


@dataclass(kw_only=True, slots=True)
class _Tenant(Generic[PayloadT, ResultT]):
    """What one tenant has in the lane."""

    served: float
    """Tokens it was given, on the lane's scale: the tenant with the fewest goes next."""
    taken: int = 0
    """Tokens of its own that left the queue for the model."""
    tokens: int = 0
    """Tokens that wait, those in the plan included."""
    reserved_tokens: int = 0
    planned: int = 0
    """Items in the plan, also those whose caller has gone."""
    planned_turn: int = 0
    """The last turn in the plan."""
    waiting: list[tuple[int, int, Entry[PayloadT, ResultT]]] = field(default_factory=list)
    """A heap by turn and arrival, as tuples, which are compared fast. Items of callers who have gone lie in it until
    they are passed by."""

    @property
    def claimed_tokens(self) -> int:
        return self.tokens + self.reserved_tokens


class LaneQueue(Generic[PayloadT, ResultT]):
    """What waits in one lane, and of the last draw the batches that are still to run.

    `tokens` counts what is really wanted: items whose caller has gone are not in it, though they lie in the queue until
    they are passed by.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.reserved_tokens = 0
        self._tenants: dict[str, _Tenant[PayloadT, ResultT]] = {}
        self._active = 0
        self._served = 0.0
        self._last_step = 0.0
        self._arrivals = 0
        self._planned: deque[list[Entry[PayloadT, ResultT]]] = deque()
        self._plan_is_stale = False

    @property
    def claimed_tokens(self) -> int:
        """What waits, and what is reserved for work that is still being made ready."""
        return self.tokens + self.reserved_tokens

    @property
    def claims(self) -> dict[str, int]:
        """What each tenant waits for or has reserved; those without anything are not in it."""
        return {name: claimed for name, tenant in self._tenants.items() if (claimed := tenant.claimed_tokens) > 0}

    def claimed_by(self, tenant: str) -> int:
        """What one tenant waits for or has reserved."""
        known = self._tenants.get(tenant)
        return known.claimed_tokens if known is not None else 0

    def reserve(self, tenant: str, tokens: int) -> None:
        """Counts so many tokens of a tenant as claimed; fewer where the number is negative."""
        self.reserved_tokens += tokens
        self._tenant(tenant).reserved_tokens += tokens
        self._forget(tenant)

    def push(self, entries: Sequence[Entry[PayloadT, ResultT]]) -> None:
        """Adds the items of one submission."""
        name = entries[0].submission.tenant
        tenant = self._tenant(name)
        if tenant.tokens == 0:
            # Who was away begins where the batch in the model began: a little ahead of those who never pause.
            tenant.served = max(tenant.served, self._served - self._last_step)
            self._active += 1
            self._plan_is_stale = True
        turn = tenant.taken
        if tenant.planned and turn < tenant.planned_turn:
            self._plan_is_stale = True
        for entry in entries:
            entry.turn, entry.arrival = turn, self._arrivals
            heapq.heappush(tenant.waiting, (entry.turn, entry.arrival, entry))
            turn += entry.tokens
            tenant.tokens += entry.tokens
            self.tokens += entry.tokens
            self._arrivals += 1

    def take_batch(
        self, *, draw_tokens: int, patient_draw_tokens: int, batch_tokens: int, now: float
    ) -> tuple[list[Entry[PayloadT, ResultT]], list[Entry[PayloadT, ResultT]]]:
        """The next batch, and what had expired before it. The batch is empty where nothing waits.

        A new draw has `draw_tokens`, or `patient_draw_tokens` where all of its items have time.
        """
        expired: list[Entry[PayloadT, ResultT]] = []
        if self._plan_is_stale:
            self._put_back()
        while self.tokens > 0:
            if not self._planned:
                drawn = self._draw(draw_tokens, patient_draw_tokens, now)
                self._planned.extend(split_by_length(drawn, batch_tokens))
            batch: list[Entry[PayloadT, ResultT]] = []
            active = max(1, self._active)
            # The plan may be of a time when batches could be larger.
            first, rest = split_at(self._planned.popleft(), batch_tokens)
            if rest:
                self._planned.appendleft(rest)
            for entry in first:
                tenant = self._tenants[entry.submission.tenant]
                tenant.planned -= 1
                if entry.submission.abandoned:
                    tenant.served -= entry.tokens
                elif entry.expired(now):
                    tenant.served -= entry.tokens
                    expired.append(entry)
                    self._leave(entry)
                else:
                    tenant.taken += entry.tokens
                    batch.append(entry)
                    self._leave(entry)
            if batch:
                self._last_step = sum(entry.tokens for entry in batch) / active
                self._served += self._last_step
                if len(self._tenants) > SWEEP_TENANTS:
                    for name in list(self._tenants):
                        self._forget(name)
                return batch, expired
        self._clear()
        return [], expired

    def take_expired(self, now: float) -> list[Entry[PayloadT, ResultT]]:
        """Everything that has expired."""
        expired = [entry for entry in self._waiting() if entry.expired(now)]
        if expired:
            self._put_back()
            for tenant in self._tenants.values():
                tenant.waiting = [waiting for waiting in tenant.waiting if not waiting[2].expired(now)]
                heapq.heapify(tenant.waiting)
            for entry in expired:
                self._leave(entry)
        return expired

    def take_all(self) -> list[Entry[PayloadT, ResultT]]:
        """Everything that waits."""
        waiting = list(self._waiting())
        for entry in waiting:
            self._leave(entry)
        self._clear()
        return waiting

    def abandon(self, submission: Submission[ResultT]) -> int:
        """Gives up the waiting items of a caller who has gone, and tells how many those were."""
        items, tokens = submission.waiting_items, submission.waiting_tokens
        submission.abandoned = True
        submission.waiting_items = submission.waiting_tokens = 0
        if tokens > 0:
            self._give_up(submission.tenant, tokens)
        if self.tokens == 0:
            self._clear()
        return items

    def _waiting(self) -> Iterator[Entry[PayloadT, ResultT]]:
        for batch in self._planned:
            yield from (entry for entry in batch if not entry.submission.abandoned)
        for tenant in self._tenants.values():
            yield from (entry for _, _, entry in tenant.waiting if not entry.submission.abandoned)

    def _draw(self, draw_tokens: int, patient_draw_tokens: int, now: float) -> list[Entry[PayloadT, ResultT]]:
        """Takes items, each of the tenant that was given least so far, until they are so many tokens."""
        drawn: list[Entry[PayloadT, ResultT]] = []
        tokens, limit = 0, patient_draw_tokens
        heads: list[tuple[float, int, str]] = []
        for name in self._tenants:
            self._offer(heads, name)
        heapq.heapify(heads)
        while heads:
            tenant = self._tenants[heads[0][2]]
            entry = tenant.waiting[0][2]
            if not entry.patient(now):
                limit = draw_tokens
            if drawn and (tokens + entry.tokens > limit or len(drawn) == MAX_DRAWN_ITEMS):
                break
            _, _, name = heapq.heappop(heads)
            drawn.append(heapq.heappop(tenant.waiting)[2])
            tokens += entry.tokens
            tenant.served += entry.tokens
            tenant.planned += 1
            tenant.planned_turn = entry.turn
            self._offer(heads, name)
        return drawn

    def _offer(self, heads: list[tuple[float, int, str]], name: str) -> None:
        """Puts a tenant's next item that is still wanted up for the draw."""
        tenant = self._tenants[name]
        while tenant.waiting and tenant.waiting[0][2].submission.abandoned:
            heapq.heappop(tenant.waiting)
        if tenant.waiting:
            heapq.heappush(heads, (tenant.served, tenant.waiting[0][1], name))

    def _put_back(self) -> None:
        """Undoes what is left of the last draw, so that a tenant who came since has his part in it."""
        for batch in self._planned:
            for entry in batch:
                tenant = self._tenants[entry.submission.tenant]
                tenant.served -= entry.tokens
                tenant.planned -= 1
                if not entry.submission.abandoned:
                    heapq.heappush(tenant.waiting, (entry.turn, entry.arrival, entry))
        self._planned.clear()
        self._plan_is_stale = False

    def _clear(self) -> None:
        """Forgets what lies in an empty queue: items of callers who have gone, and who was given how much."""
        self._planned.clear()
        self._plan_is_stale = False
        for name, tenant in list(self._tenants.items()):
            tenant.waiting.clear()
            tenant.served = 0.0
            tenant.planned = 0
            if tenant.claimed_tokens == 0:
                del self._tenants[name]
        self._served = self._last_step = 0.0

    def _leave(self, entry: Entry[PayloadT, ResultT]) -> None:
        entry.submission.waiting_items -= 1
        entry.submission.waiting_tokens -= entry.tokens
        self._give_up(entry.submission.tenant, entry.tokens)

    def _give_up(self, name: str, tokens: int) -> None:
        tenant = self._tenants[name]
        self.tokens -= tokens
        tenant.tokens -= tokens
        if tenant.tokens == 0:
            self._active -= 1
            self._forget(name)

    def _tenant(self, name: str) -> _Tenant[PayloadT, ResultT]:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(served=self._served - self._last_step)
        return tenant

    def _forget(self, name: str) -> None:
        """Forgets a tenant who has nothing here and got no more than the others: names must not pile up."""
        tenant = self._tenants[name]
        if tenant.claimed_tokens == 0 and tenant.planned == 0 and tenant.served <= self._served:
            del self._tenants[name]
