"""A second attempt at a read that takes unusually long: one slow replica, or one lost packet, need not make an answer
late (Dean and Barroso, The Tail at Scale, CACM 2013)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from prometheus_client import Counter

from kbmesh_retriever.mesh.abandoned import abandon
from kbmesh_retriever.mesh.usual_time import Window

T = TypeVar("T")

SHARE = 0.05
"""Second attempts at most, of all first ones."""
_MOST_SAVED = 10.0
"""Second attempts that quiet times save up for a bad moment."""
_MARGIN_SECONDS = 0.001
"""Where all take the same, one that takes a little longer is not late."""

HEDGES = Counter(
    "kbmesh_retriever_hedges_total",
    "Second attempts at reads that took longer than 95 % of those before: won and lost against the first attempt, and "
    "refused because there were too many.",
    ["dependency", "outcome"],
)


class Hedge:
    """Of the reads from one dependency."""

    def __init__(self, dependency: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens = 0.0
        self._outcomes = {outcome: HEDGES.labels(dependency, outcome) for outcome in ("won", "lost", "refused")}

    async def run(self, attempt: Callable[[], Awaitable[T]], usual: Window) -> T:
        """What the first attempt that succeeds gives; the other one is cancelled. Raises what the first one raises,
        unless the second one, where there is one, succeeds.

        `usual` has how long such reads take: the second attempt begins when 95 % of them are done. It learns."""
        self._tokens = min(_MOST_SAVED, self._tokens + SHARE)
        started = self._clock()
        first = asyncio.ensure_future(attempt())
        try:
            await asyncio.wait((first,), timeout=usual.quantile(0.95) + _MARGIN_SECONDS)
            if not first.done():
                if self._tokens >= 1.0:
                    self._tokens -= 1.0
                    return await self._race(first, attempt, usual, started)
                self._outcomes["refused"].inc()
            result = await first
        except asyncio.CancelledError:
            abandon(first)
            usual.observe_cut_off(self._clock() - started)
            raise
        usual.observe(self._clock() - started)
        return result

    async def _race(
        self, first: "asyncio.Future[T]", attempt: Callable[[], Awaitable[T]], usual: Window, started: float
    ) -> T:
        second_started = self._clock()
        second = asyncio.ensure_future(attempt())
        try:
            done, running = await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
            if running and all(task.exception() is not None for task in done):
                done, running = await asyncio.wait(running)
            # The first one where both are done: what it raises is what the caller would have got without a second.
            winner = (
                first if first in done and (first.exception() is None or second.exception() is not None) else second
            )
        finally:
            for task in (first, second):
                abandon(task)
        self._outcomes["won" if winner is second else "lost"].inc()
        now = self._clock()
        if winner is second:
            usual.observe(now - second_started)
            usual.observe_cut_off(now - started)
        elif first.exception() is None:
            usual.observe(now - started)
        return winner.result()
