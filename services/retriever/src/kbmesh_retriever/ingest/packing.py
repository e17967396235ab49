"""Joins what many documents need at the same time into one call."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kbmesh_rpc.errors import KbmeshError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class _Asked(Generic[T, R]):
    item: T
    weight: int
    answer: asyncio.Future[R]


class Packer(Generic[T, R]):
    """The first who asks is served at once. What is asked while `in_flight` calls run goes together into the next one,
    in the order of asking: nobody waits for a call to fill.

    One packer serves one stream: calls carry the stream's tenant and deadline, and end with its tasks.
    """

    def __init__(
        self,
        call: Callable[[Sequence[T]], Awaitable[Sequence[R | KbmeshError]]],
        group: asyncio.TaskGroup,
        *,
        max_weight: int,
        in_flight: int = 1,
    ) -> None:
        """`call` gives an answer, or the error of that item alone, for each item. A call takes items up to `max_weight`
        together, and always one."""
        self._call = call
        self._group = group
        self._max_weight = max_weight
        self._free = in_flight
        self._waiting: deque[_Asked[T, R]] = deque()

    async def ask(self, item: T, *, weight: int = 1) -> R:
        """The answer to one item. Raises its error, or what the call raised."""
        asked = _Asked[T, R](item=item, weight=weight, answer=asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._free:
            self._free -= 1
            self._group.create_task(self._work())
        return await asked.answer

    async def _work(self) -> None:
        try:
            while pack := self._next():
                await self._serve(pack)
        finally:
            self._free += 1

    def _next(self) -> list[_Asked[T, R]]:
        pack: list[_Asked[T, R]] = []
        weight = 0
        while self._waiting and (not pack or weight + self._waiting[0].weight <= self._max_weight):
            asked = self._waiting.popleft()
            if not asked.answer.done():  # else its asker has gone
                pack.append(asked)
                weight += asked.weight
        return pack

    async def _serve(self, pack: Sequence[_Asked[T, R]]) -> None:
        answers: Sequence[R | BaseException]
        try:
            answers = await self._call([asked.item for asked in pack])
        except Exception as error:  # whatever it is belongs to those who asked
            answers = [error] * len(pack)
        except BaseException:
            for asked in pack:
                asked.answer.cancel()
            raise
        for asked, answer in zip(pack, answers, strict=True):
            if asked.answer.done():
                continue
            if isinstance(answer, BaseException):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)
