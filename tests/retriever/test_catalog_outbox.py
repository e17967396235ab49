"""What is deleted while the vector store is down, by a process that is then killed, is deleted all the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from edge_process import client, free_port, start_edge, stop, wait_until_serving
from kbmesh_retriever.stores.port import Scope
from kbmesh_rpc.errors import DependencyInvalidResponse, DependencyUnavailable
from retriever.catalog_values import BOTH_DATABASES
from retriever.kill_scenes import Setting, closed, stage
from retriever.mesh_fakes import always
from retriever.workshop import Workshop


@asynccontextmanager
async def opened(setting: Setting) -> AsyncIterator[Workshop]:
    workshop = await setting.open()
    yield workshop
    await closed(workshop)


@BOTH_DATABASES
async def test_deleted_while_the_store_was_down_by_a_process_that_was_killed(catalog_url: str, tmp_path: Path) -> None:
    """ING-02: a document, a knowledge base of its own, one among others, and a rebuild that was given up."""
    port, folder = free_port(), tmp_path / "engine"
    engine = start_edge(folder, port)
    await asyncio.to_thread(wait_until_serving, engine, port)
    edge_url = f"http://127.0.0.1:{port}"
    setting = Setting(catalog_url=catalog_url, edge_url=edge_url, fingerprint=uuid4().hex * 2, name="kept")
    async with opened(setting) as workshop:
        for name, placement in (("kept", "shared"), ("dedicated", "dedicated"), ("shared", "shared")):
            kb = await workshop.make(name, placement=placement)
            for external_id in "ab":
                await workshop.ingest(kb, external_id, f"everlasting {external_id}\n\neverlasting too")
        kept = await workshop.catalog.get_knowledge_base("default", "kept")
        successor = await workshop.rebuilds.start(kept, chunking={"size": 500}, placement="dedicated")
        await workshop.ingest(successor, "a", "everlasting a")

    # The store goes away, the deletions are done, and the process that did them with it.
    await asyncio.to_thread(stop, engine)
    with stage() as on_stage:
        step = await asyncio.to_thread(on_stage.act, "deletions", setting, die_at=7)
    assert step == "after delete_knowledge_base"
    async with opened(setting) as workshop:
        names = await workshop.catalog.list_knowledge_bases("default", limit=9, after="")
        assert [kb.name for kb in names] == ["kept"]
        assert [one.external_id for one in await workshop.catalog.list_documents(kept.id, limit=9, after="")] == ["b"]
        with pytest.raises(DependencyUnavailable):
            await workshop.sweep()

    engine = start_edge(folder, port)
    await asyncio.to_thread(wait_until_serving, engine, port)
    try:
        async with opened(setting) as workshop:
            await workshop.sweep()
            assert await workshop.points(kept) == 2
            store = client(edge_url)
            assert [found.name for found in (await store.get_collections()).collections] == [kept.collection]
            assert (await store.count(kept.collection)).count == 2
            await store.close()
            assert await workshop.catalog.due_for_deletion(older_than_seconds=0, limit=9) == []
            assert await workshop.catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9) == []
    finally:
        await asyncio.to_thread(stop, engine)


async def test_what_cannot_be_deleted_keeps_nothing_else_from_it(workshop: Workshop) -> None:
    stuck, other = await workshop.make("stuck"), await workshop.make("other")
    gone = await workshop.make("gone")
    for kb in (stuck, other, gone):
        await workshop.ingest(kb, "a", "Text.")
    await workshop.catalog.delete_document(stuck.id, "a")
    await workshop.catalog.delete_document(other.id, "a")
    await workshop.knowledge_bases.delete("default", "gone")
    real = workshop.store.delete_generations

    async def refuse(collection: str, scope: Scope, document: UUID, generations: object) -> None:
        if collection == stuck.collection:
            raise DependencyInvalidResponse("qdrant", "no")
        await real(collection, scope, document, generations)

    workshop.store.delete_generations = refuse
    with pytest.raises(DependencyInvalidResponse):
        await workshop.sweep()
    assert [await workshop.points(kb) for kb in (stuck, other, gone)] == [1, 0, 0]
    del workshop.store.delete_generations
    await workshop.sweep()
    assert await workshop.points(stuck) == 0


async def test_a_store_that_does_not_answer_is_asked_once(workshop: Workshop) -> None:
    kb = await workshop.make()
    for external_id in "abc":
        await workshop.ingest(kb, external_id, "Text.")
        await workshop.catalog.delete_document(kb.id, external_id)
    workshop.store.before("delete_generations", always(DependencyUnavailable("qdrant", "down")))
    with pytest.raises(DependencyUnavailable):
        await workshop.sweep()
    assert workshop.store.calls["delete_generations"] == 1
    workshop.store.heal()
    await workshop.sweep()
    assert await workshop.points(kb) == 0
