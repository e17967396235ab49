"""A retriever is killed with SIGKILL at every step of all that it does to documents and knowledge bases. A reader sees
one version of each document at any time, and a second try ends clean: nothing is left of the first in either store."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from uuid import UUID, uuid4

import pytest
from edge_process import client
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.tables import CURRENT, LIVE, generations, knowledge_bases
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.stores.port import Scope, SearchQuery
from qdrant_client import AsyncQdrantClient
from retriever.catalog_values import BOTH_DATABASES
from retriever.kill_scenes import SCENES, START, Setting, Stage, View, closed, set_up, stage
from retriever.workshop import START as EPOCH
from retriever.workshop import Workshop
from sqlalchemy import select

READER = ("bob",)


@pytest.fixture(scope="module")
def on_stage() -> Iterator[Stage]:
    with stage() as made:
        yield made


async def view(workshop: Workshop, name: str) -> View:
    """What a reader sees, in the order in which a search looks: counter, vector store, catalog."""
    kb = await workshop.catalog.get_knowledge_base("default", name)
    found = await workshop.store.search(
        SearchQuery(
            collection=kb.collection,
            scope=Scope(tenant=kb.tenant, knowledge_base_id=kb.id),
            dense=None,
            sparse=encode_query("everlasting"),
            limit=1000,
            principals=READER,
        )
    )
    hits = [(UUID(hit.payload["document_id"]), hit.payload["generation"], hit.payload) for hit in found.keyword]
    valid = await workshop.catalog.valid_documents({kb.id: kb.generation}, [hit[:2] for hit in hits])
    seen: View = {}
    for document_id, generation, payload in sorted(hits, key=lambda hit: hit[2]["index"]):
        if (document_id, generation) in valid and valid[document_id, generation].is_for(READER):
            seen.setdefault(payload["external_id"], []).append(payload["text"])
    listed = await workshop.catalog.list_documents(kb.id, limit=100, after="")
    assert {document.external_id: document.chunk_count for document in listed if document.is_for(READER)} == {
        external_id: len(texts) for external_id, texts in seen.items()
    }
    assert (kb.document_count, kb.chunk_count) == (len(listed), sum(document.chunk_count for document in listed))
    return seen


async def check_nothing_is_left(setting: Setting, engine: AsyncQdrantClient) -> set[str]:
    """Only what is current is in the catalog, and only that in the vector store. Gives the collections that it has."""
    database = Database(setting.catalog_url)
    async with database.reading() as connection:
        assert set(await connection.scalars(select(generations.c.state))) == {CURRENT}
        rows = (await connection.execute(select(knowledge_bases))).mappings().all()
    await database.close()
    assert {row["state"] for row in rows} == {LIVE}
    chunks: Counter[str] = Counter()
    for row in rows:
        chunks[row["collection"]] += row["chunk_count"]
    assert {name: (await engine.count(name)).count for name in chunks} == dict(chunks)
    return set(chunks)


async def collections(engine: AsyncQdrantClient) -> set[str]:
    return {found.name for found in (await engine.get_collections()).collections}


@pytest.mark.timeout(600)
@BOTH_DATABASES
@pytest.mark.parametrize("scene", SCENES)
async def test_killed_at_every_step(scene: str, catalog_url: str, edge_url: str, on_stage: Stage) -> None:
    """ING-01, ING-02, ING-04, ING-07. The reader is another process, which was there before and stays."""
    before, after = START, SCENES[scene].end
    setting = Setting(catalog_url=catalog_url, edge_url=edge_url, fingerprint=uuid4().hex * 2, name="")
    workshop, engine = await setting.open(), client(edge_url)
    others = await collections(engine)
    steps: list[str] = []
    changed = False
    for number in count():
        setting = replace(setting, name=f"kb-{number}", seconds=(workshop.clock.now - EPOCH).total_seconds())
        await set_up(workshop, setting.name)
        step = await asyncio.to_thread(on_stage.act, scene, setting, die_at=number)
        seen = await view(workshop, setting.name)
        assert seen == after if changed or not step else seen in (before, after), f"killed {step}"
        changed = changed or seen == after != before
        await SCENES[scene].act(workshop, setting.name)
        assert await view(workshop, setting.name) == after
        # On PostgreSQL the dead process is known to be dead; on SQLite its reservations time out.
        workshop.clock.advance(0 if catalog_url.startswith("postgresql") else 3600)
        await workshop.sweep()
        await workshop.sweep()
        assert await view(workshop, setting.name) == after
        ours = await check_nothing_is_left(setting, engine)
        for name in await collections(engine) - others - ours:
            # A shared one stays for whoever comes next.
            assert name.startswith("shared-")
            assert (await engine.count(name)).count == 0
        if not step:
            break
        steps.append(step)
    await engine.close()
    await closed(workshop)
    assert len(steps) >= 4, steps
