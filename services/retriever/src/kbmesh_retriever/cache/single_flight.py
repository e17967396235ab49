"""Equal work at the same time, done once.

A flight is one computation and those who wait for it. It runs in a task of its own, under the longest deadline of
those who wait, and ends when the last of them has left. Nobody's leaving harms the others.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from kbmesh_rpc.call import optional_call, with_call
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Cancelled, DeadlineExceeded, KbmeshError, ShuttingDown
from kbmesh_rpc.spans import current_context, link_to
from opentelemetry import trace

from kbmesh_retriever.cache.shared_deadline import SharedDeadline

T = TypeVar("T")

_SHORTER_SHARE = 0.1
"""Who has less time than a flight by more than this share of what the flight has left does not board it."""
_SHORTER_SECONDS = 0.1
"""Nor by more than this."""


@dataclass(kw_only=True)
class _Flight(Generic[T]):
    task: "asyncio.Task[T]"
    deadline: SharedDeadline
    starter: object
    span: trace.SpanContext = field(default_factory=current_context)
    """Of who started it: the work stands in that one's trace."""
    waiters: list[object] = field(default_factory=list)
    """In the order they came."""
    owner: object = None
    """Once it has landed: who waited longest, and may have what may not be shared."""


@dataclass(frozen=True, kw_only=True)
class Flown(Generic[T]):
    """What a caller gets."""

    value: T
    shared: bool
    """Whether it was computed for another caller."""


class SingleFlight(Generic[T]):
    """Computes what `run` is asked for, once for all who ask for the same at the same time.

    `may_be_shared` tells of a value whether everybody may have it. One that may not be shared goes to who waited
    longest; each of the others computes for itself, at once, for another flight might end the same. So it is with
    errors that depend on time (DeadlineExceeded, Cancelled); any other error goes to all.

    A caller with clearly less time than the flight computes for itself: its own deadline would give it a part of the
    answer, where this flight would take its time.
    """

    def __init__(self, name: str, *, may_be_shared: Callable[[T], bool]) -> None:
        """`name` is the stage that DeadlineExceeded names."""
        self._name = name
        self._may_be_shared = may_be_shared
        self._flights: dict[str, _Flight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()
        self._closed = False

    async def run(self, key: str, compute: Callable[[Deadline], Awaitable[T]], *, deadline: Deadline) -> Flown[T]:
        """The value of `key`. `compute` gets the deadline to keep, which may become later meanwhile; the current call
        it sees is the first caller's, with that deadline. Raises what it raises, and DeadlineExceeded where this
        caller's time is over first."""
        flight = self._flights.get(key)
        if flight is not None and _has_less_time(deadline, flight.deadline):
            return Flown(value=await compute(deadline), shared=False)
        waiter = object()
        if flight is None:
            flight = self._start(key, compute, deadline, waiter)
        else:
            flight.deadline.extend(deadline)
            link_to(flight.span)
        flight.waiters.append(waiter)
        try:
            while not flight.task.done():
                if deadline.expired:
                    raise DeadlineExceeded(self._name)
                await asyncio.wait({flight.task}, timeout=deadline.remaining())
            outcome = self._outcome(flight, waiter)
        finally:
            flight.waiters.remove(waiter)
            if not flight.waiters:
                self._end(key, flight)
        if outcome is None:
            return Flown(value=await compute(deadline), shared=False)
        return outcome

    async def close(self) -> None:
        """Ends all flights. Whoever still waits gets ShuttingDown."""
        self._closed = True
        self._flights.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(
        self, key: str, compute: Callable[[Deadline], Awaitable[T]], deadline: Deadline, starter: object
    ) -> _Flight[T]:
        shared = SharedDeadline.of(deadline)
        task = asyncio.create_task(_detached(compute, shared))
        flight = _Flight(task=task, deadline=shared, starter=starter)
        self._flights[key] = flight
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._landed(key, flight, done))
        return flight

    def _landed(self, key: str, flight: _Flight[T], task: "asyncio.Task[T]") -> None:
        self._tasks.discard(task)
        self._forget(key, flight)
        # Before any waiter wakes: this callback was the first to be added.
        flight.owner = flight.waiters[0] if flight.waiters else None
        if not task.cancelled():
            task.exception()  # looked at, so that one nobody waits for any more is not reported as lost

    def _end(self, key: str, flight: _Flight[T]) -> None:
        # Before it has ended: whoever comes now must not board what is being cancelled.
        self._forget(key, flight)
        flight.task.cancel()

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    def _outcome(self, flight: _Flight[T], waiter: object) -> Flown[T] | None:
        """What the flight has for this waiter. None: it has to compute for itself."""
        owns = flight.owner is waiter
        if flight.task.cancelled():
            if self._closed:
                raise ShuttingDown
            return None
        error = flight.task.exception()
        if error is None:
            value = flight.task.result()
            if owns or self._may_be_shared(value):
                return Flown(value=value, shared=flight.starter is not waiter)
            return None
        if isinstance(error, DeadlineExceeded | Cancelled) and not owns:
            return None
        if isinstance(error, KbmeshError):
            # One for each: an error that is raised in several tasks gathers the tracebacks of all.
            raise copy.copy(error) from error
        raise error


async def _detached(compute: Callable[[Deadline], Awaitable[T]], deadline: SharedDeadline) -> T:
    """In a task of its own, which has a copy of the first caller's context: its tenant, principals, request id and
    span, and not its deadline."""
    call = optional_call()
    if call is None:
        return await compute(deadline)
    with with_call(replace(call, deadline=deadline)):
        return await compute(deadline)


def _has_less_time(deadline: Deadline, of_flight: Deadline) -> bool:
    has, needs = deadline.remaining(), of_flight.remaining()
    return has < needs - min(_SHORTER_SECONDS, needs * _SHORTER_SHARE)
