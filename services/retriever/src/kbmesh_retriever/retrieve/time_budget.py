"""One deadline for all stages, and how much of what is left a stage may take."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Self, TypeVar

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded

from kbmesh_retriever.mesh.abandoned import abandon
from kbmesh_retriever.retrieve.stage import Stage

T = TypeVar("T")

_LEAST_SHARE = 0.25
"""Of the time left that a stage which the answer can do without is tried for, however little there is: what is never
tried is never measured."""
_MOST_SHARE = 0.5
"""And where it will hardly be done in time it is not waited for longer than this."""
_PRESSING = 1.5
"""Times what it usually takes, which a stage that is needed has before those after it have theirs."""
_MOST_PRESSING_SHARE = 0.8
"""Of the time left, which that is at most."""


@dataclass(frozen=True, kw_only=True)
class TimeBudget:
    """What is left of the caller's deadline, less a reserve for writing the answer."""

    deadline: Deadline
    """The reserve is taken off already."""
    caller: Deadline
    """The caller's own."""

    @classmethod
    def of(cls, deadline: Deadline, *, reserve_seconds: float) -> Self:
        """Of a caller's deadline. Of a short one less is kept back."""
        return cls(deadline=deadline.with_reserve(reserve_seconds), caller=deadline)

    def seconds(self, *, share: float = 1.0, at_most: float = math.inf) -> float:
        """What a stage may take: a share of what is left, so that something is left for those after it."""
        return min(self.deadline.remaining() * share, at_most)

    def grant(
        self,
        own: float,
        *,
        later: float,
        wanted: float = 0.0,
        slack_share: float,
        needed: bool = True,
        at_most: float = math.inf,
    ) -> float:
        """What a stage may take that is done in `own` seconds in 95 of 100 cases, where those after it that the answer
        needs take `later`, and those that it can do without take `wanted`.

        Where there is time for all, each has what it usually takes, and this one `slack_share` of what is over. Where
        there is not, what the answer can do without is left out of the reckoning. Where that does not suffice either
        the rest is shared in proportion, but this stage has what it usually takes if that is there: stages seldom all
        take their longest. A stage that is not `needed` itself leaves those after it theirs.
        """
        left = self.deadline.remaining()
        reserved = later + wanted if own + later + wanted <= left else later
        slack = left - own - reserved
        if slack >= 0:
            granted = own + slack_share * slack
        elif needed:
            granted = left * own / (own + reserved)
        else:
            granted = min(max(left - reserved, _LEAST_SHARE * left), _MOST_SHARE * left)
        if needed:
            granted = max(granted, min(_PRESSING * own, _MOST_PRESSING_SHARE * left))
        return min(granted, at_most)

    def check(self, stage: Stage) -> None:
        """Raises DeadlineExceeded where no time is left."""
        if self.deadline.expired:
            raise DeadlineExceeded(stage.value)

    def check_caller(self, stage: Stage) -> None:
        """Raises DeadlineExceeded where the caller's own deadline has passed: nobody waits for the answer any more, and
        making it would only take the processor from those who wait for theirs."""
        if self.caller.expired:
            raise DeadlineExceeded(stage.value)


async def within(seconds: float, stage: Stage, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled after `seconds`: DeadlineExceeded. A call that does not end at once when
    it is cancelled, as a database's may, is left to end by itself: the caller's deadline does not wait for it."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=max(0.0, seconds))
    except asyncio.CancelledError:
        abandon(task)
        raise
    if not done:
        abandon(task)
        raise DeadlineExceeded(stage.value)
    return await task
