"""Inverse document frequency for Pinecone, which has none: without it common words would outweigh rare ones.

How many records hold a term is asked once an hour for each term of a query, by a search for it alone; it is exact up to
the longest list that Pinecone gives. The statistics are those of the knowledge base, in shared placement too.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from kbmesh_retriever.stores.port import SparseVector

LONGEST_LIST = 10_000
_KEPT_SECONDS = 3600.0
_MOST_TERMS = 200_000
_AT_ONCE = 8


class TermStatistics:
    """Remembers how many records hold a term, by namespace."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, int], tuple[float, int]] = OrderedDict()

    async def weighted(
        self, namespace: str, query: SparseVector, *, records: int, count: Callable[[int], Awaitable[int]]
    ) -> SparseVector:
        """`query` times the IDF of its terms (Robertson and Zaragoza 2009, the form that is never negative). `count`
        tells how many records hold a term, LONGEST_LIST at most."""
        frequencies = await self._frequencies(namespace, query.indices, count)
        return SparseVector(
            indices=query.indices,
            values=tuple(
                value * _idf(max(records, frequency), frequency)
                for value, frequency in zip(query.values, frequencies, strict=True)
            ),
        )

    def forget(self, namespace: str) -> None:
        """For a namespace that is gone."""
        for key in [key for key in self._known if key[0] == namespace]:
            del self._known[key]

    async def _frequencies(
        self, namespace: str, terms: Sequence[int], count: Callable[[int], Awaitable[int]]
    ) -> list[int]:
        now = self._clock()
        found = {term: known[1] for term in terms if (known := self._known.get((namespace, term))) and known[0] > now}
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(term: int) -> int:
            async with slots:
                return await count(term)

        unknown = [term for term in terms if term not in found]
        for term, frequency in zip(unknown, await asyncio.gather(*map(ask, unknown)), strict=True):
            found[term] = frequency
            self._known[namespace, term] = (now + _KEPT_SECONDS, frequency)
        while len(self._known) > _MOST_TERMS:
            self._known.popitem(last=False)
        return [found[term] for term in terms]


def _idf(records: int, holding: int) -> float:
    return math.log(1 + (records - holding + 0.5) / (holding + 0.5))
