"""What retrieval asks of others, with a breaker before each, and a second attempt at idempotent reads: searches and
vectors of queries. Reranking and the language model are too dear to be asked twice; the catalog is one
database, which a second query would only make slower.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal
from uuid import UUID

from kbmesh_rpc.spans import span

from kbmesh_retriever.catalog.port import CatalogReader, Document, KnowledgeBase
from kbmesh_retriever.catalog.profile_port import ProfileCatalog
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.breaker import Breaker, Breakers
from kbmesh_retriever.mesh.hedging import Hedge
from kbmesh_retriever.mesh.port import Embedded, EmbedderPort, ModelInfo, Reranked, RerankerPort
from kbmesh_retriever.mesh.usual_time import Window, WindowsByKey
from kbmesh_retriever.stores.port import ChunkRange, Scope, SearchQuery, SearchResult, StoredChunk, StoreReader

_USUAL_SECONDS = 0.05
"""Until it was measured."""
_LEAST_PATIENCE_SECONDS = 0.1
_PATIENCE = 10.0
"""Times what half of the calls take: who gave a call up after so long has seen a dependency that hangs."""


def _patience(usual: Window) -> float:
    return max(_LEAST_PATIENCE_SECONDS, _PATIENCE * usual.quantile(0.5))


@contextmanager
def _timed(breaker: Breaker, usual: Window) -> Iterator[None]:
    """The breaker around a call, whose time is learned where it succeeds."""
    with breaker.guarding(patience_seconds=_patience(usual)), usual.timing():
        yield


class GuardedStore:
    """A `StoreReader`. Breakers are for each collection: one that is broken must not cost the others."""

    def __init__(self, inner: StoreReader, *, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._name = name
        self._breakers = Breakers(name, clock=clock)
        self._hedge = Hedge(name, clock=clock)
        self._usual = WindowsByKey(_USUAL_SECONDS, clock=clock)

    async def search(self, query: SearchQuery) -> SearchResult:
        usual = self._usual[query.collection]
        asking = span("vector store search", kind="client", db__system__name=self._name)
        with self._breakers[query.collection].guarding(patience_seconds=_patience(usual)), asking:
            return await self._hedge.run(lambda: self._inner.search(query), usual)

    async def read_chunks(
        self,
        collection: str,
        scope: Scope,
        ranges: Sequence[ChunkRange],
        *,
        principals: Collection[str] | None = None,
    ) -> Sequence[StoredChunk]:
        asking = span("vector store read", kind="client", db__system__name=self._name)
        with self._breakers[collection].guarding(patience_seconds=_patience(self._usual[collection])), asking:
            return await self._inner.read_chunks(collection, scope, ranges, principals=principals)


class GuardedEmbedder:
    """An `EmbedderPort`. Documents pass through: ingestion waits and repeats by itself. Counting tokens has a breaker
    of its own, since it goes on while a model hangs."""

    def __init__(self, inner: EmbedderPort, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._breaker = Breaker("embedder", clock=clock)
        self._hedge = Hedge("embedder", clock=clock)
        self._usual = Window(_USUAL_SECONDS, clock=clock)
        self._counting = Breaker("embedder", clock=clock)
        self._usual_counting = Window(_USUAL_SECONDS, clock=clock)

    async def find_model(self, name: str) -> ModelInfo:
        return await self._inner.find_model(name)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        async def attempt() -> Embedded:
            return await self._inner.embed(
                texts,
                model=model,
                expected_fingerprint=expected_fingerprint,
                input_type=input_type,
                priority=priority,
            )

        if input_type != "query":
            return await attempt()
        with self._breaker.guarding(patience_seconds=_patience(self._usual)):
            return await self._hedge.run(attempt, self._usual)

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        with _timed(self._counting, self._usual_counting):
            return await self._inner.count_tokens(texts, model=model)


class GuardedReranker:
    """A `RerankerPort`."""

    def __init__(self, inner: RerankerPort, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._breaker = Breaker("reranker", clock=clock)
        self._usual = Window(_USUAL_SECONDS, clock=clock)

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        with _timed(self._breaker, self._usual):
            return await self._inner.rerank(query, documents)


class GuardedRephraser:
    """A `Rephraser`."""

    def __init__(self, inner: Rephraser, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._breaker = Breaker("language model", clock=clock)
        self._usual = Window(_USUAL_SECONDS, clock=clock)

    @property
    def model(self) -> str:
        return self._inner.model

    async def rephrase(self, query: str, *, timeout_seconds: float) -> Sequence[str]:
        with _timed(self._breaker, self._usual), span("language model rephrase", kind="client"):
            return await self._inner.rephrase(query, timeout_seconds=timeout_seconds)

    async def hypothesize(self, query: str, *, timeout_seconds: float) -> str:
        with _timed(self._breaker, self._usual), span("language model hypothesize", kind="client"):
            return await self._inner.hypothesize(query, timeout_seconds=timeout_seconds)


class GuardedCatalog:
    """A `CatalogReader`."""

    def __init__(self, inner: CatalogReader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._breaker = Breaker("catalog", clock=clock)
        self._usual = Window(_USUAL_SECONDS, clock=clock)

    @property
    def profiles(self) -> ProfileCatalog:
        return self._inner.profiles

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        with _timed(self._breaker, self._usual), span("catalog resolve", kind="client"):
            return await self._inner.resolve_knowledge_bases(tenant, names_or_ids)

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        with _timed(self._breaker, self._usual), span("catalog documents", kind="client"):
            return await self._inner.valid_documents(as_of, hits)
