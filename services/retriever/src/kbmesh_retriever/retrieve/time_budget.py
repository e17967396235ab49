"""One deadline for all stages, and how much of what is left a stage may take."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded

from kbmesh_retriever.retrieve.stage import Stage

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TimeBudget:
    """What is left of the caller's deadline, less a reserve for writing the answer."""

    deadline: Deadline
    """The reserve is taken off already."""

    def seconds(self, *, share: float = 1.0, at_most: float = math.inf) -> float:
        """What a stage may take: a share of what is left, so that something is left for those after it."""
        return min(self.deadline.remaining() * share, at_most)

    def check(self, stage: Stage) -> None:
        """Raises DeadlineExceeded where no time is left."""
        if self.deadline.expired:
            raise DeadlineExceeded(stage.value)


async def within(seconds: float, stage: Stage, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled after `seconds`: DeadlineExceeded."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise DeadlineExceeded(stage.value) from error
