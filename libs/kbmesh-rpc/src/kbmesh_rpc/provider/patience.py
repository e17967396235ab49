"""Calling again what may work a moment later, and never beyond the caller's deadline."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kbmesh_rpc.errors import DeadlineExceeded
from kbmesh_rpc.provider.failure import PASSING, Cause, ProviderFailure

T = TypeVar("T")

RETRY_AFTER_JITTER = 0.1
"""Part of a Retry-After by which the wait is longer at most, so that not everybody comes back at once."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a vendor is tried."""

    attempts: int = 6
    """Calls at most. Where a vendor says that he is asked too much at once, and when to come back, they do not count: a
    caller with a deadline has until then."""
    call_seconds: float = 30.0
    """What one call may take."""
    first_pause_seconds: float = 0.5
    """Before the second attempt at most; twice as long before each later one. The pause itself is drawn evenly from
    half of that to all of it."""
    longest_pause_seconds: float = 20.0
    longest_wait_seconds: float = 60.0
    """A Retry-After beyond this is not waited for, deadline or none."""


class CallObserver(Protocol):
    """Is told of each attempt. For metrics."""

    def called(self, *, status: int | None, cause: Cause | None, seconds: float) -> None:
        """One attempt ended. `cause` is None where it succeeded; `status` is None where there was no answer."""
        ...

    def retried(self) -> None:
        """Another attempt begins."""
        ...


class SilentCallObserver:
    """Tells nobody."""

    def called(self, *, status: int | None, cause: Cause | None, seconds: float) -> None:
        return

    def retried(self) -> None:
        return


async def persist(
    attempt: Callable[[float], Awaitable[T]],
    *,
    provider: str,
    patience: Patience,
    deadline: float | None,
    observer: CallObserver,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> T:
    """What the first attempt gives that succeeds. `attempt` gets the seconds that it may take.

    Raises the last ProviderFailure, at once where the pause before the next attempt would pass the deadline, and
    DeadlineExceeded where the deadline passes within an attempt. Cancelling it cancels the attempt.
    """
    number = 1
    while True:
        left = deadline - clock() if deadline is not None else math.inf
        if left <= 0:
            raise DeadlineExceeded(provider)
        outcome = await _try(attempt, min(patience.call_seconds, left), observer=observer, clock=clock)
        if not isinstance(outcome, ProviderFailure):
            return outcome
        if outcome.cause is Cause.TIMEOUT and left <= patience.call_seconds:
            raise DeadlineExceeded(provider)
        left = deadline - clock() if deadline is not None else math.inf
        patient = deadline is not None and outcome.cause is Cause.RATE_LIMIT
        pause = _pause(outcome, number, patience, draw, counts=not patient)
        if pause is None or pause >= left:
            raise outcome
        await sleep(pause)
        number += 1
        observer.retried()


async def _try(
    attempt: Callable[[float], Awaitable[T]],
    seconds: float,
    *,
    observer: CallObserver,
    clock: Callable[[], float],
) -> T | ProviderFailure:
    """Given back and not raised: an error that is raised where another is handled drags that one along, and what SDKs
    raise may quote texts and keys."""
    began = clock()
    failure: ProviderFailure
    try:
        async with asyncio.timeout(seconds):
            result = await attempt(seconds)
    except TimeoutError:
        failure = ProviderFailure(Cause.TIMEOUT)
    except ProviderFailure as error:
        failure = error
    else:
        observer.called(status=200, cause=None, seconds=clock() - began)
        return result
    observer.called(status=failure.status, cause=failure.cause, seconds=clock() - began)
    return failure


def _pause(
    failure: ProviderFailure, number: int, patience: Patience, draw: Callable[[], float], *, counts: bool
) -> float | None:
    """How long to wait after attempt `number`; None where another is of no use."""
    told = failure.retry_after_seconds
    if failure.cause not in PASSING or (number >= patience.attempts and (counts or told is None)):
        return None
    longest = min(patience.longest_pause_seconds, patience.first_pause_seconds * 2.0 ** min(number - 1, 16))
    own = longest * (0.5 + draw() / 2)
    if told is None:
        return own
    # A vendor who says "at once" again and again is not asked at once again and again.
    return max(told * (1 + RETRY_AFTER_JITTER * draw()), own) if told <= patience.longest_wait_seconds else None
