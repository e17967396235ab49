"""Answers, kept for who asks the same again, and shared by those who ask it at the same time."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from importlib.metadata import version

from kbmesh_rpc.call import CallContext
from kbmesh_rpc.deadline import Deadline

from kbmesh_retriever.cache.digest import digest_of
from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.cache.port import Cache
from kbmesh_retriever.cache.single_flight import SingleFlight
from kbmesh_retriever.catalog.port import CatalogReader, KnowledgeBase
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.metrics import count_served
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, check
from kbmesh_retriever.retrieve.stage import Stage, Status
from kbmesh_retriever.retrieve.time_budget import within

ANSWERS_VERSION = 1
"""Of what answers are made of. Counts up where the same question to the same data gets another answer, or the same one
is written otherwise."""

_OF_NO_ANSWER = {"description", "chunking", "document_count", "chunk_count", "created_at"}
"""What a knowledge base has and no answer shows. Everything else counts: the counter of its changes, its settings and
the time of their last change, who may read it, and whatever else it will get."""
_KNOWLEDGE_BASE_FIELDS = tuple(field.name for field in fields(KnowledgeBase) if field.name not in _OF_NO_ANSWER)

_FULL = {Status.OK, Status.EMPTY, Status.BELOW_THRESHOLD}


class Origin(StrEnum):
    """Where an answer comes from."""

    UNASKED = "unasked"
    MISS = "miss"
    HIT = "hit"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class Served:
    """An answer for one caller."""

    answer: Answer | bytes
    """As it was computed, or as it was kept."""
    origin: Origin
    timings: Mapping[str, float]
    """Milliseconds of this call."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question by one caller, under the name of its answer."""

    key: str
    keepable: bool
    """False where no answer could be a full one."""
    reranks: bool
    resolve_milliseconds: float


class Answers:
    """Gives answers that were kept, shares those that are being computed, and has the rest computed.

    An answer is kept and shared under a name that holds the tenant, who the caller is, the question with all that the
    server fills in, and each knowledge base with the counter of its changes: after any change it has another name, and
    nobody else's question ever has the same. `decides` is what else decides answers: settings and versions of this
    server. Answers that are not full are not kept.
    """

    def __init__(
        self,
        cache: Cache | None,
        catalog: CatalogReader,
        metrics: CacheMetrics,
        *,
        limits: RetrievalLimits,
        encode: Callable[[Answer], bytes],
        reranker: Callable[[], str | None] = lambda: "",
        decides: object = (),
        ttl_seconds: float = 3600,
        max_value_bytes: int = 1024 * 1024,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`cache` is None where nothing is kept; equal questions at the same time are computed once all the same.
        `encode` writes an answer without the request's id, times and links that end: what it gives is kept, and must
        do for every caller. `reranker` gives the fingerprint of the model that reranked last, or None where none did
        yet."""
        self._cache = cache
        self._catalog = catalog
        self._metrics = metrics
        self._limits = limits
        self._encode = encode
        self._reranker = reranker
        self._decides = digest_of(version("kbmesh-retriever"), ANSWERS_VERSION, limits, decides)
        self._ttl_seconds = ttl_seconds
        self._max_value_bytes = max_value_bytes
        self._clock = clock
        self._flights = SingleFlight[Answer]("retrieve", may_be_shared=is_full)

    async def answer(
        self,
        request: RetrievalRequest,
        *,
        call: CallContext,
        skip: bool,
        compute: Callable[[Deadline], Awaitable[Answer]],
    ) -> Served:
        """The answer. `compute` makes it within the deadline it is given. `skip` has it computed even where it is
        kept. Raises what `compute` raises, and what the question or the catalog is at fault for."""
        started = self._clock()
        deadline = self._deadline(call)
        if request.explain:
            # It shows one computation, with its times: who wants to see that wants to see it done.
            self._metrics.count("bypassed")
            return self._served(await compute(deadline), Origin.UNASKED, started, 0.0)
        asked = await self._asked(request, call, deadline)
        reranker = self._reranker_of(asked)
        if skip:
            self._metrics.count("bypassed")
            answer = await compute(deadline)
            await self._keep(asked, answer, reranker)
            return self._served(answer, Origin.UNASKED, started, asked.resolve_milliseconds)
        if (kept := await self._kept(asked, reranker)) is not None:
            count_served(None, request.strategy)
            return self._served(kept, Origin.HIT, started, asked.resolve_milliseconds)
        if not asked.keepable:
            self._metrics.count("miss")
            return self._served(await compute(deadline), self._miss, started, asked.resolve_milliseconds)

        async def fly(until: Deadline) -> Answer:
            answer = await compute(until)
            await self._keep(asked, answer, reranker)
            return answer

        flown = await self._flights.run(asked.key, fly, deadline=deadline)
        if flown.shared:
            count_served(flown.value, request.strategy)
        self._metrics.count("shared" if flown.shared else "miss")
        origin = Origin.SHARED if flown.shared else self._miss
        return self._served(flown.value, origin, started, asked.resolve_milliseconds)

    async def look_up(self, request: RetrievalRequest, *, call: CallContext, skip: bool) -> "LookUp":
        """For who computes an answer in parts, which nobody can share: the answer where it is kept, and else what
        keeps the one that is computed. Raises as `answer` does."""
        started = self._clock()
        if request.explain:
            self._metrics.count("bypassed")
            return LookUp(origin=Origin.UNASKED)
        asked = await self._asked(request, call, self._deadline(call))
        reranker = self._reranker_of(asked)

        async def keep(answer: Answer) -> None:
            await self._keep(asked, answer, reranker)

        if skip:
            self._metrics.count("bypassed")
            return LookUp(origin=Origin.UNASKED, keep=keep)
        if (kept := await self._kept(asked, reranker)) is not None:
            count_served(None, request.strategy)
            served = self._served(kept, Origin.HIT, started, asked.resolve_milliseconds)
            return LookUp(origin=Origin.HIT, served=served)
        self._metrics.count("miss")
        return LookUp(origin=self._miss, keep=keep)

    async def close(self) -> None:
        await self._flights.close()

    def _deadline(self, call: CallContext) -> Deadline:
        return call.deadline or Deadline.after(self._limits.default_deadline_seconds)

    @property
    def _miss(self) -> Origin:
        return Origin.UNASKED if self._cache is None else Origin.MISS

    async def _asked(self, request: RetrievalRequest, call: CallContext, deadline: Deadline) -> Asked:
        question = check(request, self._limits)
        names = [selector.knowledge_base for selector in question.selectors]
        started = self._clock()
        found = await within(
            deadline.with_reserve(self._limits.reserve_seconds).remaining(),
            Stage.RESOLVE,
            self._catalog.resolve_knowledge_bases(call.tenant, names),
        )
        elapsed = (self._clock() - started) * 1000
        knowledge_bases = [found.get(name) for name in names]
        key = digest_of(self._decides, call.tenant, frozenset(call.principals), question, _states(knowledge_bases))
        return Asked(
            key=key,
            keepable=None not in knowledge_bases,
            reranks=question.strategy.reranks,
            resolve_milliseconds=elapsed,
        )

    async def _kept(self, asked: Asked, reranker: str | None) -> bytes | None:
        name = _name(asked, reranker)
        if self._cache is None or name is None:
            return None
        content = await self._cache.get(name)
        if content is not None:
            self._metrics.count("hit")
        return content

    async def _keep(self, asked: Asked, answer: Answer, reranker: str | None) -> None:
        """`reranker`: which one it was when the computation began."""
        after = self._reranker_of(asked)
        if reranker is not None and after != reranker:
            return  # Another one came meanwhile: nobody knows whose work this is.
        name = _name(asked, after)
        if self._cache is None or name is None or not asked.keepable or not is_full(answer):
            return
        content = self._encode(answer)
        if len(content) > self._max_value_bytes:
            self._metrics.refused()
            return
        await self._cache.put(name, content, ttl_seconds=self._ttl_seconds)

    def _reranker_of(self, asked: Asked) -> str | None:
        return self._reranker() if asked.reranks else ""

    def _served(self, answer: Answer | bytes, origin: Origin, started: float, resolve_milliseconds: float) -> Served:
        total = (self._clock() - started) * 1000
        timings = {Stage.RESOLVE.value: resolve_milliseconds, "total": total}
        if isinstance(answer, Answer) and origin is not Origin.SHARED:
            resolve = answer.timings.get(Stage.RESOLVE.value, 0.0) + resolve_milliseconds
            timings = {**answer.timings, Stage.RESOLVE.value: resolve, "total": total}
        elif isinstance(answer, Answer):
            answer = replace(answer, reports=tuple(replace(one, milliseconds=0.0) for one in answer.reports))
        return Served(answer=answer, origin=origin, timings=timings)


async def _keep_nothing(_: Answer) -> None:
    return


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """What is kept for a question, and what to do with its answer where nothing is."""

    origin: Origin
    served: Served | None = None
    keep: Callable[[Answer], Awaitable[None]] = _keep_nothing


def is_full(answer: Answer) -> bool:
    """Whether it is all that could be had: no stage fell back, such as to estimating the tokens of the context block,
    and every knowledge base answered."""
    return not answer.degradations and all(report.status in _FULL for report in answer.reports)


def _name(asked: Asked, reranker: str | None) -> str | None:
    """None where nobody knows yet who reranks: what is kept may be another one's work."""
    return None if reranker is None else digest_of("answer", asked.key, reranker)


def _states(knowledge_bases: Sequence[KnowledgeBase | None]) -> Sequence[object]:
    return [None if one is None else [getattr(one, name) for name in _KNOWLEDGE_BASE_FIELDS] for one in knowledge_bases]
