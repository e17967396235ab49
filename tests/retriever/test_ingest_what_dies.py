"""Something that ingestion needs dies in the middle of a night's work. Each document that did not go in says why, and
in the morning the same job sends what is left: all of it is there once, and nothing besides."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import edge_process
import pytest
from kbmesh_client import AsyncKbmeshClient, IngestDocument, IngestOutcome, IngestResult
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.errors import DependencyUnavailable
from postgres_process import PostgresServer, postgres_missing, postgres_process
from retriever.workshop import Workshop
from sqlalchemy import event
from structlog.testing import capture_logs

COUNT = 60


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    """Kept and not written: errors with all that lies behind them take longer to write than to happen."""
    with capture_logs() as entries:
        yield entries


DOCUMENTS = [
    IngestDocument(external_id=f"d{number}", content=f"First part of {number}.\n\nSecond part of {number}.")
    for number in range(COUNT)
]


async def night(address: str, documents: Sequence[IngestDocument] = DOCUMENTS) -> dict[str, IngestResult]:
    """What became of each; each has one result."""
    async with AsyncKbmeshClient(address) as client:
        results = [entry async for entry in client.ingest("handbook", documents, job_id="nightly", concurrency=4)]
    assert Counter(entry.external_id for entry in results) == Counter(document.external_id for document in documents)
    return {entry.external_id: entry for entry in results}


def reasons(results: dict[str, IngestResult]) -> set[str]:
    assert all((entry.error is None) == (entry.outcome is not IngestOutcome.FAILED) for entry in results.values())
    return {entry.error.reason for entry in results.values() if entry.error is not None}


async def check_the_morning_after(
    workshop: Workshop, knowledge_base: KnowledgeBase, address: str, first: dict[str, IngestResult]
) -> None:
    again = await night(address)
    assert reasons(again) == set()
    done = {name for name, entry in first.items() if entry.error is None}
    assert {name for name, entry in again.items() if entry.resumed} <= done
    assert all(again[name].outcome is not IngestOutcome.CHANGED for name in again), "nothing was taken in twice"
    once_more = await night(address)
    assert all(entry.resumed for entry in once_more.values())
    await workshop.sweep()
    now = await workshop.catalog.get_knowledge_base("default", knowledge_base.name)
    assert (now.document_count, now.chunk_count, await workshop.points(now)) == (COUNT, 2 * COUNT, 2 * COUNT)


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server that a test may restart."""
    if missing := postgres_missing():
        pytest.skip(missing)
    with postgres_process() as server:
        yield server


async def test_postgresql_is_restarted(
    own_postgres: PostgresServer, workshop: Workshop, retriever_address: str
) -> None:
    catalog = SqlCatalog(own_postgres.new_database(), now=workshop.clock)
    await catalog.open()
    workshop.catalog.become(catalog)
    knowledge_base = await workshop.make()
    restarted: list[asyncio.Task[None]] = []

    def restart(call: int) -> None:
        if call == 5 and not restarted:
            restarted.append(asyncio.create_task(asyncio.to_thread(own_postgres.restart)))

    workshop.catalog.after("reserve_generations", restart)
    workshop.catalog.after("reserve_generation", restart)
    first = await night(retriever_address)
    await asyncio.gather(*restarted)
    assert restarted
    assert reasons(first) == {"DEPENDENCY_UNAVAILABLE"}
    assert any(entry.error is None for entry in first.values())
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)
    await catalog.close()


@pytest.fixture
async def own_store(workshop: Workshop, tmp_path: Path) -> AsyncIterator["Edge"]:
    """A vector store that a test may kill."""
    edge = Edge(data=tmp_path / "edge", port=edge_process.free_port())
    edge.start()
    store = QdrantStore.connect(f"http://127.0.0.1:{edge.port}", timeout_seconds=5)
    workshop.store.become(store)
    yield edge
    await store.close()
    edge_process.stop(edge.process)


class Edge:
    def __init__(self, *, data: Path, port: int) -> None:
        self.data = data
        self.port = port

    def start(self) -> None:
        self.process = edge_process.start_edge(self.data, self.port)
        edge_process.wait_until_serving(self.process, self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def answers(workshop: Workshop) -> None:
    """The channel waits a little between its attempts to connect."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await workshop.store.health()
            except DependencyUnavailable:
                await asyncio.sleep(0.1)


async def test_the_vector_store_is_killed_and_comes_back(
    own_store: Edge, workshop: Workshop, retriever_address: str
) -> None:
    """It is killed while it writes, so that points lie in it that nobody has published."""
    knowledge_base = await workshop.make()

    async def kill(call: int) -> None:
        if call == 4:
            own_store.kill()

    workshop.store.before("upsert", kill)
    first = await night(retriever_address)
    assert reasons(first) == {"DEPENDENCY_UNAVAILABLE"}
    assert any(entry.error is None for entry in first.values())
    still_away = await night(retriever_address)
    assert {name for name, entry in still_away.items() if entry.error is None} == {
        name for name, entry in first.items() if entry.error is None
    }
    await asyncio.to_thread(own_store.start)
    await answers(workshop)
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)


async def test_the_vector_store_is_down_from_the_beginning(
    own_store: Edge, workshop: Workshop, retriever_address: str
) -> None:
    knowledge_base = await workshop.make()
    own_store.kill()
    first = await night(retriever_address)
    assert (reasons(first), {entry.outcome for entry in first.values()}) == (
        {"DEPENDENCY_UNAVAILABLE"},
        {IngestOutcome.FAILED},
    )
    await asyncio.to_thread(own_store.start)
    await answers(workshop)
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_embedder_is_killed_and_comes_back(workshop: Workshop, retriever_address: str, when: str) -> None:
    """Before it has embedded anything of a call, or after: its answer is lost all the same."""
    knowledge_base = await workshop.make()
    away = DependencyUnavailable("embedder", "the connection broke off")
    getattr(workshop.embedder, when)("embed", lambda call: away if 3 <= call < 12 else None)
    first = await night(retriever_address)
    assert reasons(first) == {"DEPENDENCY_UNAVAILABLE"}
    assert any(entry.error is None for entry in first.values())
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)


async def test_the_disk_of_the_catalog_is_full(workshop: Workshop, retriever_address: str, tmp_path: Path) -> None:
    """SQLite has no page left to write to, then somebody makes room."""
    catalog = SqlCatalog(f"sqlite:///{tmp_path / 'small.db'}", now=workshop.clock)
    await catalog.open()
    workshop.catalog.become(catalog)
    knowledge_base = await workshop.make()
    limit = PageLimit(catalog)
    await limit.set(pages=6)
    first = await night(retriever_address)
    assert reasons(first) == {"DEPENDENCY_UNAVAILABLE"}
    await limit.set(pages=1_000_000)
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)
    await catalog.close()


class PageLimit:
    """Lets a SQLite file grow by so many pages and no further: the error is that of a full disk."""

    def __init__(self, catalog: SqlCatalog) -> None:
        # There is no setting for it, and there should be none: a test alone wants a small disk.
        self._engine = catalog._database._engine
        self._pages = 0
        event.listen(self._engine.sync_engine, "begin", self._limit)

    async def set(self, *, pages: int) -> None:
        async with self._engine.connect() as connection:
            there: int = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
        self._pages = there + pages

    def _limit(self, connection: Any) -> None:
        if self._pages:
            connection.exec_driver_sql(f"PRAGMA max_page_count={self._pages}")


async def test_the_disk_of_the_vector_store_is_full(workshop: Workshop, retriever_address: str) -> None:
    """It takes some of a write and refuses the rest, for as long as there is no room."""
    knowledge_base = await workshop.make()
    full = DependencyUnavailable("qdrant", "No space left on device")
    workshop.store.after("upsert", lambda call: full if 4 <= call < 40 else None)
    first = await night(retriever_address)
    assert reasons(first) == {"DEPENDENCY_UNAVAILABLE"}
    assert any(entry.error is None for entry in first.values())
    workshop.store.heal()
    await check_the_morning_after(workshop, knowledge_base, retriever_address, first)
