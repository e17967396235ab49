"""Somebody searches while the documents are taken in again and again, and while processes are killed."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.stores.port import Scope, SearchQuery
from kbmesh_retriever.stores.qdrant import QdrantStore
from retriever.mesh_fakes import Faulty, ParagraphChunker, WordEmbedder
from retriever.workshop import Clock, Workshop

TESTS = Path(__file__).parent.parent


async def read(workshop: Workshop, knowledge_base: KnowledgeBase) -> dict[tuple[UUID, int], Document]:
    """The order in which a search does it: counter first, then the store, then the catalog."""
    current = await workshop.catalog.get_knowledge_base(knowledge_base.tenant, knowledge_base.name)
    found = await workshop.store.search(
        SearchQuery(
            collection=current.collection,
            scope=Scope(tenant=current.tenant, knowledge_base_id=current.id),
            dense=None,
            sparse=encode_query("everlasting"),
            limit=1000,
        )
    )
    pairs = [(UUID(hit.payload["document_id"]), hit.payload["generation"]) for hit in found.keyword]
    valid: dict[tuple[UUID, int], Document] = await workshop.catalog.valid_documents(
        {current.id: current.generation}, pairs
    )
    return valid


async def test_every_search_during_200_re_indexings_sees_one_version(workshop: Workshop) -> None:
    """ING-07. The sweeper runs all along, with the grace that the slowest of these searches needs."""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", "everlasting version 0")
    done = False
    searches = 0

    async def search() -> None:
        nonlocal searches
        while not done:
            versions = await read(workshop, kb)
            assert len(versions) == 1
            searches += 1
            await asyncio.sleep(0.005)

    async def index() -> None:
        nonlocal done
        for version in range(1, 201):
            workshop.clock.advance(10)
            result = await workshop.ingest(kb, "a.md", f"everlasting version {version}")
            assert result.outcome == "changed"
            if version % 10 == 0:
                await workshop.sweeper.sweep()
        done = True

    async with asyncio.TaskGroup() as group:
        group.create_task(search())
        group.create_task(index())
    assert searches > 50
    await workshop.sweep()
    assert await workshop.points(kb) == 1
    assert list(await read(workshop, kb)) == [
        (UUID((await workshop.ingest(kb, "a.md", "everlasting version 200")).document_id), 201)
    ]


async def test_cancelled_work_leaves_nothing(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", "everlasting one")
    written = asyncio.Event()

    async def hang(_call: int) -> None:
        written.set()
        await asyncio.sleep(3600)

    workshop.store.after("upsert", hang)
    task = asyncio.create_task(workshop.ingest(kb, "a.md", "everlasting two\n\neverlasting three"))
    await written.wait()
    assert await workshop.points(kb) == 3
    task.cancel()
    await asyncio.wait([task])
    assert [document.generation for document in (await read(workshop, kb)).values()] == [1]
    workshop.store.heal()
    await workshop.sweep()
    assert await workshop.points(kb) == 1


async def test_a_stale_job_leaves_a_new_knowledge_base_empty(workshop: Workshop) -> None:
    """ING-08, in a shared collection, where the points of the stale job would have a place to lie."""
    old = await workshop.make("x", placement="shared")

    async def replace(call: int) -> None:
        if call == 0:
            await workshop.knowledge_bases.delete("default", "x")
            await workshop.make("x", placement="shared")

    workshop.store.before("upsert", replace)
    results = await asyncio.gather(workshop.ingest(old, "a", "everlasting"), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["KnowledgeBaseNotFound"]
    new = await workshop.catalog.get_knowledge_base("default", "x")
    assert (await workshop.points(new), await workshop.points(old), new.generation) == (0, 0, 0)
    await workshop.sweep()
    assert await workshop.catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9) == []


_KILLED = """
import asyncio, sys
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.stores.qdrant import QdrantStore
from retriever.mesh_fakes import Faulty, ParagraphChunker, WordEmbedder
from retriever.workshop import Clock

async def main(catalog_url, edge_url, fingerprint, stage):
    catalog, store = Faulty(SqlCatalog(catalog_url, now=Clock())), Faulty(QdrantStore.connect(edge_url))
    async def hang(call):
        print("here", flush=True)
        await asyncio.sleep(3600)
    {"reserved": catalog, "written": store, "published": catalog}[stage].after(
        {"reserved": "reserve_generation", "written": "upsert", "published": "publish"}[stage], hang
    )
    await catalog.open()
    ingester = Ingester(
        catalog, store, ParagraphChunker(), WordEmbedder(fingerprint=fingerprint), max_document_bytes=1000
    )
    kb = await catalog.get_knowledge_base("default", "handbook")
    await ingester.ingest(kb, IncomingDocument(external_id="a.md", content="everlasting 1\\n\\neverlasting 2"))

asyncio.run(main(*sys.argv[1:]))
"""


def kill_while(catalog_url: str, edge_url: str, fingerprint: str, stage: str) -> None:
    """Takes version 2 in, in a process that is killed right after `stage`."""
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    arguments = [sys.executable, "-c", _KILLED, catalog_url, edge_url, fingerprint, stage]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("stage", ["reserved", "written", "published"])
async def test_a_process_killed_at_any_stage_leaves_one_version(catalog_url: str, edge_url: str, stage: str) -> None:
    """Killed after the reservation, after the write, or after the publication; then the sync runs again."""
    fingerprint = uuid4().hex * 2
    first = await opened(catalog_url, edge_url, fingerprint)
    kb = await first.make()
    await first.ingest(kb, "a.md", "everlasting 0")
    await closed(first)

    await asyncio.to_thread(kill_while, catalog_url, edge_url, fingerprint, stage)

    again = await opened(catalog_url, edge_url, fingerprint)
    [document] = (await read(again, kb)).values()
    assert document.chunk_count == (2 if stage == "published" else 1)
    result = await again.ingest(kb, "a.md", "everlasting 1\n\neverlasting 2")
    assert result.outcome == ("unchanged" if stage == "published" else "changed")
    [document] = (await read(again, kb)).values()
    assert document.chunk_count == 2
    await again.sweep()
    assert await again.points(kb) == 2
    assert await again.catalog.due_for_deletion(older_than_seconds=0, limit=9) == []
    await closed(again)


async def opened(catalog_url: str, edge_url: str, fingerprint: str) -> Workshop:
    clock = Clock()
    catalog = SqlCatalog(catalog_url, now=clock)
    await catalog.open()
    words, paragraphs = WordEmbedder(fingerprint=fingerprint), ParagraphChunker()
    return Workshop(
        catalog=Faulty(catalog),
        store=Faulty(QdrantStore.connect(edge_url)),
        chunker=Faulty(paragraphs),
        embedder=Faulty(words),
        words=words,
        paragraphs=paragraphs,
        clock=clock,
    )


async def closed(workshop: Workshop) -> None:
    await workshop.store.close()
    await workshop.catalog.close()
