"""A retriever's surroundings for tests: real engine, real catalog, real embedder, and wrappers that fail on demand."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_retriever.catalog.port import Document, KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.fingerprint import chunk_id
from kbmesh_retriever.keywords.analyser import encode_document
from kbmesh_retriever.mesh.embedder import EmbedderClient
from kbmesh_retriever.mesh.port import Embedded, EmbedderPort, Relevance, Reranked
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import Status, Strategy
from kbmesh_retriever.stores.port import Point, SearchQuery, SearchResult, VectorStore
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import KbmeshError
from kbmesh_rpc.server import running

TENANT = "acme"
WRITTEN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@dataclass(kw_only=True)
class World:
    """Knowledge bases with documents in them, and questions to them."""

    catalog: SqlCatalog
    store: VectorStore
    embedder: EmbedderPort
    bases: dict[str, KnowledgeBase] = field(default_factory=dict)

    async def make(
        self,
        name: str,
        *texts: str,
        tenant: str = TENANT,
        collection: str = "",
        fingerprint: str = "",
        retrieval: RetrievalDefaults | None = None,
    ) -> KnowledgeBase:
        """A knowledge base with a document of one chunk for each text: doc-1, doc-2, …"""
        model = await self.embedder.find_model("")
        identity = uuid.uuid4()
        knowledge_base = KnowledgeBase(
            id=identity,
            tenant=tenant,
            name=name,
            embedding_model=model.name,
            model_fingerprint=fingerprint or model.fingerprint,
            dimension=model.dimension,
            placement="shared" if collection else "dedicated",
            collection=collection or f"kb-{identity}",
            retrieval=retrieval or RetrievalDefaults(),
            created_at=WRITTEN,
            updated_at=WRITTEN,
        )
        await self.store.ensure_collection(knowledge_base.collection, dimension=model.dimension)
        await self.catalog.create_knowledge_base(knowledge_base)
        self.bases[name] = knowledge_base
        for number, text in enumerate(texts, start=1):
            await self.add(knowledge_base, f"doc-{number}", text)
        return knowledge_base

    async def add(
        self,
        knowledge_base: KnowledgeBase,
        external_id: str,
        *texts: str,
        publish: bool = True,
        context: str = "",
        metadata: Mapping[str, str] | None = None,
        **of_document: Any,
    ) -> Document:
        """A document with a chunk for each text; a new version where it is there already."""
        reservation = await self.catalog.reserve_generation(knowledge_base.id, external_id)
        model = await self.embedder.find_model("")
        embedded = await self.embedder.embed(
            texts, model=model.name, expected_fingerprint=model.fingerprint, input_type="document", priority="bulk"
        )
        document = Document(
            **{
                "id": reservation.document_id,
                "knowledge_base_id": knowledge_base.id,
                "external_id": external_id,
                "title": external_id.title(),
                "uri": f"https://docs.example/{external_id}",
                "source_type": "file",
                "media_type": "text/plain",
                "author": "Ada",
                "created_at": WRITTEN,
                "ingested_at": WRITTEN,
                "content_sha256": b"\0" * 32,
                "fingerprint": "",
                "generation": reservation.generation,
                "chunk_count": len(texts),
                "strategy": "fixed",
                "metadata": metadata or {},
                **of_document,
            }
        )
        points = [_point(knowledge_base, document, index, text, context, embedded) for index, text in enumerate(texts)]
        await self.store.upsert(knowledge_base.collection, points)
        if publish:
            await self.catalog.publish(reservation, document)
        return document

    def retrieval(self, **parts: Any) -> Retrieval:
        """The pipeline, with any of its parts replaced."""
        return Retrieval(
            **{
                "catalog": self.catalog,
                "store": self.store,
                "embedder": self.embedder,
                "reranker": None,
                "rephraser": None,
                "limits": RetrievalLimits(),
                **parts,
            }
        )

    async def ask(
        self,
        query: str,
        *names: str | Selector,
        tenant: str = TENANT,
        strategy: Strategy = Strategy.HYBRID,
        seconds: float = 30,
        parts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Answer:
        """The answer to a question to the named knowledge bases, or to all there are."""
        request = ask(query, *(names or self.bases), strategy=strategy, **options)
        return await self.retrieval(**(parts or {})).answer(request, tenant=tenant, deadline=Deadline.after(seconds))


def ask(query: str, *names: str | Selector, **options: Any) -> RetrievalRequest:
    selectors = tuple(Selector(knowledge_base=name) if isinstance(name, str) else name for name in names)
    return RetrievalRequest(query=query, selectors=selectors, **options)


def texts_of(answer: Answer) -> list[str]:
    return [result.place.candidate.fragment.text for result in answer.results]


def statuses_of(answer: Answer) -> dict[str, Status]:
    return {report.knowledge_base: report.status for report in answer.reports}


@asynccontextmanager
async def world_of(edge_url: str, catalog_url: str, embedder: EmbedderPort) -> AsyncIterator[World]:
    """An empty world over a running engine."""
    catalog = SqlCatalog(catalog_url)
    await catalog.open()
    store = QdrantStore.connect(edge_url)
    try:
        yield World(catalog=catalog, store=store, embedder=embedder)
    finally:
        await store.close()
        await catalog.close()


@asynccontextmanager
async def embedder_service(settings: EmbedderSettings) -> AsyncIterator[EmbedderClient]:
    """The port over a running embedder."""
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        yield EmbedderClient(channel)


def _point(
    knowledge_base: KnowledgeBase, document: Document, index: int, text: str, context: str, embedded: Embedded
) -> Point:
    return Point(
        id=chunk_id(
            tenant=knowledge_base.tenant,
            knowledge_base_id=knowledge_base.id,
            document_id=document.id,
            generation=document.generation,
            index=index,
        ),
        dense=embedded.vectors[index],
        sparse=encode_document(f"{context}\n\n{text}" if context else text),
        payload={
            "tenant": knowledge_base.tenant,
            "knowledge_base_id": str(knowledge_base.id),
            "document_id": str(document.id),
            "external_id": document.external_id,
            "generation": document.generation,
            "index": index,
            "text": text,
            "context": context,
            "start": index * 1000,
            "end": index * 1000 + len(text),
            "start_byte": index * 4000,
            "end_byte": index * 4000 + len(text.encode()),
            "chunk_type": "fixed",
            "heading_path": [],
            "pages": [],
            "source_type": document.source_type,
            "media_type": document.media_type,
            "strategy": document.strategy,
            "token_count": None,
            "metadata": dict(document.metadata),
        },
    )


# Wrappers of the ports.


@dataclass(kw_only=True)
class FaultyStore:
    """A store that fails, is slow, or answers something else for some collections."""

    inner: VectorStore
    errors: Mapping[str, Exception] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, SearchResult] = field(default_factory=dict)
    searched: list[SearchQuery] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def search(self, query: SearchQuery) -> SearchResult:
        self.searched.append(query)
        if query.collection in self.errors:
            raise self.errors[query.collection]
        try:
            await asyncio.sleep(self.delays.get(query.collection, 0))
        except asyncio.CancelledError:
            self.cancelled.append(query.collection)
            raise
        return self.answers.get(query.collection) or await self.inner.search(query)


@dataclass(kw_only=True)
class FaultyEmbedder:
    """An embedder that fails or is slow; and counts its calls."""

    inner: EmbedderPort
    error: KbmeshError | None = None
    item_error: KbmeshError | None = None
    count_error: KbmeshError | None = None
    delay: float = 0.0
    fingerprint: str = ""
    calls: list[Sequence[str]] = field(default_factory=list)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        self.calls.append(texts)
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        embedded = await self.inner.embed(
            texts,
            model=model,
            expected_fingerprint=expected_fingerprint,
            input_type=input_type,
            priority=priority,
        )
        if self.item_error is not None:
            embedded = replace(embedded, errors=(self.item_error, *embedded.errors[1:]))
        return replace(embedded, fingerprint=self.fingerprint or embedded.fingerprint)

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        if self.count_error is not None:
            raise self.count_error
        return await self.inner.count_tokens(texts, model=model)


@dataclass(kw_only=True)
class ScriptedReranker:
    """A reranker whose opinion is written down: a score for each text that contains a word."""

    scores: Mapping[str, float] = field(default_factory=dict)
    method: Literal["cross_encoder", "late_interaction"] = "cross_encoder"
    error: KbmeshError | None = None
    failing: Mapping[str, KbmeshError] = field(default_factory=dict)
    delay: float = 0.0
    seen: list[Sequence[str]] = field(default_factory=list)

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        self.seen.append(documents)
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        results = [self._relevance(index, text) for index, text in enumerate(documents)]
        return Reranked(method=self.method, model="scripted", results=tuple(results))

    def _relevance(self, index: int, text: str) -> Relevance:
        score = next((value for word, value in self.scores.items() if word in text), 0.0)
        error = next((error for word, error in self.failing.items() if word in text), None)
        crosses = self.method == "cross_encoder" and error is None
        return Relevance(
            index=index,
            logit=score * 10 - 5 if crosses else None,
            probability=score if crosses else None,
            max_sim=score if self.method == "late_interaction" and error is None else None,
            error=error,
        )


@dataclass(kw_only=True)
class CountingCatalog:
    """A catalog that counts what retrieval asks of it."""

    inner: SqlCatalog
    resolves: int = 0
    validations: int = 0
    error: KbmeshError | None = None

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        self.resolves += 1
        return await self.inner.resolve_knowledge_bases(tenant, names_or_ids)

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        self.validations += 1
        if self.error is not None:
            raise self.error
        return await self.inner.valid_documents(as_of, hits)
