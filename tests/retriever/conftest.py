"""Real catalog and real store for the retriever's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from edge_process import edge_process
from kbmesh_retriever.application import RetrieverApplication
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.server import running
from postgres_process import PostgresServer
from retriever.mesh_fakes import Faulty, ParagraphChunker, WordEmbedder
from retriever.workshop import Clock, Workshop


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: SQLite, or what a test asks for by `BOTH_DATABASES`."""
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture
async def catalog(catalog_url: str, clock: Clock) -> AsyncIterator[SqlCatalog]:
    catalog = SqlCatalog(catalog_url, now=clock)
    await catalog.open()
    yield catalog
    await catalog.close()


@pytest.fixture(scope="session")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One engine for all tests: each has collections of its own."""
    with edge_process(tmp_path_factory.mktemp("engine") / "edge") as url:
        yield url


@pytest.fixture
async def store(edge_url: str) -> AsyncIterator[QdrantStore]:
    store = QdrantStore.connect(edge_url)
    yield store
    await store.close()


@pytest.fixture
def workshop(catalog: SqlCatalog, store: QdrantStore, clock: Clock) -> Workshop:
    words, paragraphs = WordEmbedder(fingerprint=uuid4().hex * 2), ParagraphChunker()
    return Workshop(
        catalog=Faulty(catalog),
        store=Faulty(store),
        chunker=Faulty(paragraphs),
        embedder=Faulty(words),
        words=words,
        paragraphs=paragraphs,
        clock=clock,
    )


@pytest.fixture
async def retriever_address(workshop: Workshop, tmp_path: Path) -> AsyncIterator[str]:
    """The whole retriever over the workshop's catalog, store and services."""
    settings = RetrieverSettings(port=0, metrics_port=0, home=tmp_path, sweep_interval_seconds=3600)
    application = RetrieverApplication(
        settings,
        catalog=workshop.catalog,
        store=workshop.store,
        chunker=workshop.chunker,
        embedder=workshop.embedder,
        reranker=None,
    )
    async with running(application, settings) as address:
        yield address
