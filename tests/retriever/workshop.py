"""A clock and a workshop: everything that ingestion needs, real where it can be."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.ingest.sweeper import Sweeper
from kbmesh_retriever.knowledge_bases import KnowledgeBases, NewKnowledgeBase
from kbmesh_retriever.rebuilds import Rebuilds
from kbmesh_retriever.stores.port import Scope
from retriever.mesh_fakes import Faulty, ParagraphChunker, WordEmbedder

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Workshop:
    """Everything that ingestion needs, with faults to put on."""

    catalog: Faulty
    store: Faulty
    chunker: Faulty
    embedder: Faulty
    words: WordEmbedder
    paragraphs: ParagraphChunker
    clock: Clock
    naps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        async def nap(seconds: float) -> None:
            self.naps.append(seconds)

        self.ingester = Ingester(
            self.catalog,
            self.store,
            self.chunker,
            self.embedder,
            max_document_bytes=1_000_000,
            now=self.clock,
            sleep=nap,
        )
        self.knowledge_bases = KnowledgeBases(
            self.catalog,
            self.store,
            self.chunker,
            self.embedder,
            now=self.clock,
        )
        self.rebuilds = Rebuilds(
            self.catalog,
            self.store,
            self.chunker,
            self.embedder,
            now=self.clock,
        )
        self.sweeper = Sweeper(self.catalog, self.store, grace_seconds=60)

    async def make(self, name: str = "handbook", *, tenant: str = "default", **wanted: object) -> KnowledgeBase:
        return await self.knowledge_bases.create(tenant, NewKnowledgeBase(name=name, **wanted))

    async def ingest(
        self, knowledge_base: KnowledgeBase, external_id: str, text: str, **described: object
    ) -> IngestResult:
        document = IncomingDocument(external_id=external_id, content=text, **described)
        return await self.ingester.ingest(knowledge_base, document)

    async def sweep(self) -> None:
        """After the grace."""
        self.clock.advance(61)
        await self.sweeper.sweep()

    async def points(self, knowledge_base: KnowledgeBase) -> int:
        scope = Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id)
        count: int = await self.store.count(knowledge_base.collection, scope)
        return count
