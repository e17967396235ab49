"""A mesh without services: knowledge bases in memory, an embedder and a reranker that answer at once, and for each of
them how long it takes and whether it fails. What is left of a retrieval's time is the retriever's own.

Passages are random words, so that nothing is a duplicate.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NoReturn
from uuid import UUID, uuid5

import numpy as np
from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.catalog.profile_port import ProfileCatalog
from kbmesh_retriever.mesh.port import Embedded, ModelInfo, Relevance, Reranked
from kbmesh_retriever.stores.port import ChunkRange, Hit, Scope, SearchQuery, SearchResult, StoredChunk
from kbmesh_rpc.errors import KbmeshError

TENANT = "acme"
_NAMES = UUID(int=6)
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_DIMENSION = 384
_MODEL, _FINGERPRINT = "fake", "f" * 64
_VOCABULARY = 5000
"""Words, the n-th of them 1/n as frequent as the first, as in real texts (Zipf)."""


@dataclass(kw_only=True)
class Behaviour:
    """How a part answers."""

    seconds: Callable[[], float] = lambda: 0.0
    """How long the next call takes."""
    error: KbmeshError | None = None
    calls: int = 0

    async def happen(self) -> None:
        self.calls += 1
        if seconds := self.seconds():
            await asyncio.sleep(seconds)
        if self.error is not None:
            raise self.error


def always(seconds: float) -> Callable[[], float]:
    """Each call takes so long."""
    return lambda: seconds


@dataclass(kw_only=True)
class FakeStore:
    """A `StoreReader`. Knowledge bases behave by their collections' names."""

    hits: Mapping[str, tuple[Hit, ...]]
    behaviours: Mapping[str, Behaviour]

    async def search(self, query: SearchQuery) -> SearchResult:
        await self.behaviours[query.collection].happen()
        found = self.hits[query.collection]
        # The keyword list stands in another order, and half of it is not in the other list.
        half = min(query.limit, len(found)) // 2
        keyword = (found[half : half + query.limit])[::-1] if query.sparse is not None else ()
        return SearchResult(
            dense=found[: query.limit] if query.dense is not None else (),
            keyword=tuple(
                Hit(id=hit.id, score=20.0 - rank / 4, payload=hit.payload) for rank, hit in enumerate(keyword)
            ),
        )

    async def read_chunks(
        self,
        collection: str,
        scope: Scope,
        ranges: Sequence[ChunkRange],
        *,
        principals: Collection[str] | None = None,
    ) -> Sequence[StoredChunk]:
        await self.behaviours[collection].happen()
        return ()


@dataclass(kw_only=True)
class FakeCatalog:
    """A `CatalogReader`."""

    knowledge_bases: Mapping[str, KnowledgeBase]
    documents: Mapping[tuple[UUID, int], Document]
    behaviour: Behaviour = field(default_factory=Behaviour)

    @property
    def profiles(self) -> ProfileCatalog:
        return _no_profiles()

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        await self.behaviour.happen()
        return {name: self.knowledge_bases[name] for name in names_or_ids if name in self.knowledge_bases}

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        await self.behaviour.happen()
        return {hit: self.documents[hit] for hit in hits if hit in self.documents}


def _no_profiles() -> NoReturn:
    raise LookupError("there are no profiles here")


@dataclass(kw_only=True)
class FakeEmbedder:
    """An `EmbedderPort`: a vector by the text's hash."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    counting: Behaviour = field(default_factory=Behaviour)

    async def find_model(self, name: str) -> ModelInfo:
        return ModelInfo(name=_MODEL, fingerprint=_FINGERPRINT, dimension=_DIMENSION, max_tokens=256)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        await self.behaviour.happen()
        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row, hashlib.sha256(text.encode()).digest()[0]] = 1.0
        none = (0,) * len(texts)
        return Embedded(
            vectors=vectors,
            errors=(None,) * len(texts),
            tokens=none,
            tokens_cut=none,
            model=_MODEL,
            fingerprint=_FINGERPRINT,
        )

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        await self.counting.happen()
        return [len(text) // 4 for text in texts]


@dataclass(kw_only=True)
class FakeReranker:
    """A `RerankerPort` that takes `seconds_each` for a document and prefers the order it is given."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    seconds_each: float = 0.0
    seen: list[int] = field(default_factory=list)

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        self.seen.append(len(documents))
        if self.seconds_each:
            await asyncio.sleep(self.seconds_each * len(documents))
        await self.behaviour.happen()
        results = tuple(
            Relevance(index=index, logit=2.0 - index / 8, probability=0.9 - index / 500, max_sim=None, error=None)
            for index in range(len(documents))
        )
        return Reranked(method="cross_encoder", model=_MODEL, fingerprint=_FINGERPRINT, results=results)


@dataclass(kw_only=True)
class FakeRephraser:
    """A `Rephraser`."""

    behaviour: Behaviour = field(default_factory=Behaviour)

    @property
    def model(self) -> str:
        return _MODEL

    async def rephrase(self, query: str, *, timeout_seconds: float) -> Sequence[str]:
        await self.behaviour.happen()
        return (f"{query} reason", f"{query} remedy")

    async def hypothesize(self, query: str, *, timeout_seconds: float) -> str:
        await self.behaviour.happen()
        return f"{query} is what happened"


@dataclass(frozen=True, kw_only=True)
class FakeMesh:
    """All parts."""

    names: tuple[str, ...]
    """Of the knowledge bases; their collections are called the same."""
    store: FakeStore
    catalog: FakeCatalog
    embedder: FakeEmbedder
    reranker: FakeReranker
    rephraser: FakeRephraser


def make_fake_mesh(knowledge_bases: int, *, passages: int = 60, words: int = 200, seed: int = 4815) -> FakeMesh:
    """Each knowledge base with so many passages of so many words, a document each."""
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices("aeioubdfgklmnprst", k=chance.randint(3, 9))) for _ in range(_VOCABULARY)]
    frequencies = [1 / rank for rank in range(1, _VOCABULARY + 1)]
    names = tuple(f"kb-{number}" for number in range(knowledge_bases))
    bases: dict[str, KnowledgeBase] = {}
    hits: dict[str, tuple[Hit, ...]] = {}
    documents: dict[tuple[UUID, int], Document] = {}
    for name in names:
        base = bases[name] = KnowledgeBase(
            id=uuid5(_NAMES, name),
            tenant=TENANT,
            name=name,
            embedding_model=_MODEL,
            model_fingerprint=_FINGERPRINT,
            dimension=_DIMENSION,
            collection=name,
            created_at=_WHEN,
            updated_at=_WHEN,
        )
        found: list[Hit] = []
        for number in range(passages):
            document = _document(base, number)
            documents[document.id, 1] = document
            text = " ".join(chance.choices(vocabulary, frequencies, k=words)).capitalize() + "."
            score = 0.9 - number / 100 - chance.random() / 1000
            found.append(Hit(id=uuid5(document.id, "0"), score=score, payload=_payload(base, document, text)))
        hits[name] = tuple(found)
    return FakeMesh(
        names=names,
        store=FakeStore(hits=hits, behaviours={name: Behaviour() for name in names}),
        catalog=FakeCatalog(knowledge_bases=bases, documents=documents),
        embedder=FakeEmbedder(),
        reranker=FakeReranker(),
        rephraser=FakeRephraser(),
    )


def _document(base: KnowledgeBase, number: int) -> Document:
    return Document(
        id=uuid5(base.id, str(number)),
        knowledge_base_id=base.id,
        external_id=f"doc-{number}",
        title=f"Document {number}",
        uri=f"https://docs.example/{base.name}/{number}",
        source_type="file",
        media_type="text/plain",
        author="Ada",
        created_at=_WHEN,
        ingested_at=_WHEN,
        content_sha256=b"",
        fingerprint="",
        generation=1,
        chunk_count=1,
        strategy="fixed",
    )


def _payload(base: KnowledgeBase, document: Document, text: str) -> dict[str, object]:
    return {
        "tenant": base.tenant,
        "knowledge_base_id": str(base.id),
        "document_id": str(document.id),
        "external_id": document.external_id,
        "generation": 1,
        "index": 0,
        "text": text,
        "context": "",
        "start": 0,
        "end": len(text),
        "start_byte": 0,
        "end_byte": len(text.encode()),
        "chunk_type": "fixed",
        "heading_path": [],
        "pages": [],
        "source_type": document.source_type,
        "media_type": document.media_type,
        "strategy": "fixed",
        "token_count": None,
        "metadata": {},
    }
