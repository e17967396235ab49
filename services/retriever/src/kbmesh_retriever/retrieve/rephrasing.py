"""What the language model makes of a query, each once for as long as it is remembered."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kbmesh_rpc.errors import FeatureUnsupported, KbmeshError

from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.retrieve.stage import Stage
from kbmesh_retriever.retrieve.time_budget import within

T = TypeVar("T")

_ENTRIES = 1000
_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Rephrased:
    """Other words for a query. An error stands in place of what could not be had."""

    rephrasings: tuple[str, ...] | KbmeshError = field(repr=False)
    """Up to three, none of them the query."""
    hypothesis: str | KbmeshError | None = field(repr=False)
    """What an answer might say; None where it was not asked for."""

    def queries(self, query: str) -> tuple[str, ...]:
        """The query and its rephrasings."""
        return (query,) if isinstance(self.rephrasings, KbmeshError) else (query, *self.rephrasings)

    @property
    def guess(self) -> str:
        """The hypothetical answer; empty where there is none."""
        return self.hypothesis if isinstance(self.hypothesis, str) else ""


class Rephrasing:
    """Asks the language model, and remembers its answers in memory by tenant, model and query. `rephraser` is None
    where none is configured."""

    def __init__(
        self,
        rephraser: Rephraser | None,
        *,
        entries: int = _ENTRIES,
        seconds: float = _SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Up to `entries` answers, each for `seconds`; the one not asked for longest leaves first."""
        self._rephraser = rephraser
        self._entries = entries
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[tuple[str, ...], tuple[float, tuple[str, ...]]] = OrderedDict()

    async def of(self, query: str, *, tenant: str, hypothesize: bool, seconds: float) -> Rephrased:
        """Both at once. Never raises a KbmeshError."""
        rephraser = self._rephraser
        if rephraser is None:
            missing = FeatureUnsupported("rephrasing")
            return Rephrased(rephrasings=missing, hypothesis=missing if hypothesize else None)

        async def rephrase() -> tuple[str, ...]:
            return tuple(await rephraser.rephrase(query, timeout_seconds=seconds))

        async def guess() -> tuple[str, ...]:
            return (await rephraser.hypothesize(query, timeout_seconds=seconds),)

        async with asyncio.TaskGroup() as group:
            asked = group.create_task(self._once((tenant, rephraser.model, "rephrasings", query), rephrase, seconds))
            guessed = (
                group.create_task(self._once((tenant, rephraser.model, "hypothesis", query), guess, seconds))
                if hypothesize
                else None
            )
        hypothesis = None if guessed is None else guessed.result()
        return Rephrased(
            rephrasings=asked.result(),
            hypothesis=hypothesis[0] if isinstance(hypothesis, tuple) else hypothesis,
        )

    async def _once(
        self, key: tuple[str, ...], ask: Callable[[], Awaitable[tuple[str, ...]]], seconds: float
    ) -> tuple[str, ...] | KbmeshError:
        kept = self._kept.get(key)
        if kept is not None and self._clock() < kept[0]:
            self._kept.move_to_end(key)
            return kept[1]
        try:
            answer = await within(seconds, Stage.REPHRASE, ask())
        except KbmeshError as error:
            return error
        self._kept[key] = (self._clock() + self._seconds, answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)
        return answer
