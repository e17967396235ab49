"""A tenant's knowledge bases come, are found, and go."""

import asyncio

import pytest
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.port import RetrievalDefaults
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_rpc.errors import (
    Conflict,
    KnowledgeBaseAlreadyExists,
    KnowledgeBaseNotFound,
)
from retriever.catalog_values import BOTH_DATABASES, knowledge_base, publish
from retriever.workshop import Clock
from sqlalchemy import text

pytestmark = BOTH_DATABASES


async def test_names_belong_to_a_tenant(catalog: SqlCatalog) -> None:
    ours, theirs = knowledge_base("notes"), knowledge_base("notes", tenant="rival")
    await catalog.create_knowledge_base(ours)
    await catalog.create_knowledge_base(theirs)
    with pytest.raises(KnowledgeBaseAlreadyExists):
        await catalog.create_knowledge_base(knowledge_base("notes"))
    assert await catalog.get_knowledge_base("default", "notes") == ours
    assert await catalog.get_knowledge_base("rival", "notes") == theirs
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.get_knowledge_base("default", str(theirs.id))
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.delete_knowledge_base("default", str(theirs.id))


async def test_many_are_resolved_by_name_or_id(catalog: SqlCatalog) -> None:
    first, second = knowledge_base("first"), knowledge_base("second")
    await catalog.create_knowledge_base(first)
    await catalog.create_knowledge_base(second)
    asked = ["first", str(second.id), "absent", str(knowledge_base().id)]
    assert await catalog.resolve_knowledge_bases("default", asked) == {"first": first, str(second.id): second}
    assert await catalog.resolve_knowledge_bases("default", []) == {}


async def test_pages_follow_the_names(catalog: SqlCatalog) -> None:
    for name in ("delta", "alpha", "charlie", "bravo"):
        await catalog.create_knowledge_base(knowledge_base(name))
    page = await catalog.list_knowledge_bases("default", limit=3, after="alpha")
    assert [one.name for one in page] == ["bravo", "charlie", "delta"]


async def test_what_is_half_made_is_not_seen(catalog: SqlCatalog, clock: Clock) -> None:
    half = knowledge_base("half")
    await catalog.prepare_knowledge_base(half)
    assert await catalog.list_knowledge_bases("default", limit=9, after="") == []
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.get_knowledge_base("default", str(half.id))
    other = knowledge_base("half")
    await catalog.create_knowledge_base(other)
    with pytest.raises(KnowledgeBaseAlreadyExists):
        await catalog.create_knowledge_base(half)
    await catalog.abandon_knowledge_base(half.id)
    with pytest.raises(Conflict):
        await catalog.create_knowledge_base(half)
    assert [gone.id for gone in await catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9)] == [half.id]
    await catalog.abandon_knowledge_base(other.id)
    assert await catalog.get_knowledge_base("default", "half") == other, "what is made cannot be given up"


async def test_a_deleted_one_is_remembered_until_it_is_forgotten(
    catalog: SqlCatalog, catalog_url: str, clock: Clock
) -> None:
    kb = knowledge_base("x")
    await catalog.create_knowledge_base(kb)
    await publish(catalog, kb.id, "t", chunks=3)
    at_work = await catalog.reserve_generation(kb.id, "late")
    deleted, documents = await catalog.delete_knowledge_base("default", "x")
    assert (deleted.id, deleted.chunk_count, documents) == (kb.id, 3, 1)
    assert await catalog.find_document(kb.id, "a") is None
    assert await catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9) == [], "a writer is at work"
    await catalog.abandon(at_work)
    assert await catalog.deleted_knowledge_bases(older_than_seconds=60, limit=9) == []
    clock.advance(61)

    again = SqlCatalog(catalog_url, now=clock)
    await again.open()
    [remembered] = await again.deleted_knowledge_bases(older_than_seconds=60, limit=9)
    assert (remembered.id, remembered.collection) == (kb.id, kb.collection)
    assert await again.due_for_deletion(older_than_seconds=0, limit=9) == [], "it goes as a whole"
    await again.forget_knowledge_base(remembered)
    assert await again.deleted_knowledge_bases(older_than_seconds=0, limit=9) == []
    await again.close()


async def test_a_live_one_is_never_forgotten(catalog: SqlCatalog) -> None:
    kb = knowledge_base("x")
    await catalog.create_knowledge_base(kb)
    await catalog.forget_knowledge_base(kb)
    assert await catalog.get_knowledge_base("default", "x") == kb


async def test_an_update_changes_what_it_names(catalog: SqlCatalog, clock: Clock) -> None:
    kb = knowledge_base("x")
    await catalog.create_knowledge_base(kb)
    clock.advance(5)
    described = await catalog.update_knowledge_base("default", "x", description="new", retrieval=None)
    assert (described.description, described.retrieval) == ("new", kb.retrieval)
    assert described.updated_at == clock()
    weighted = await catalog.update_knowledge_base(
        "default", str(kb.id), description=None, retrieval=RetrievalDefaults(weight=2.5, vector_top_k=7)
    )
    assert (weighted.description, weighted.retrieval) == (
        "new",
        RetrievalDefaults(weight=2.5, vector_top_k=7, min_vector_score=0.2),
    )


async def test_a_reader_who_is_cancelled_twice_leaves_nothing_running(catalog_url: str) -> None:
    """As by a deadline and by the caller's leaving: the second comes while the first still ends the connection."""
    database = Database(catalog_url)
    await database.open("reader")
    counting = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000) SELECT count(*) FROM n"
    begun = asyncio.Event()

    async def read() -> None:
        async with database.reading() as connection:
            begun.set()
            await connection.execute(text(counting))

    before = asyncio.all_tasks()
    for times in (1, 2, 3):
        begun.clear()
        reader = asyncio.create_task(read())
        await begun.wait()
        for _ in range(times):
            await asyncio.sleep(0)
            reader.cancel()
        await asyncio.wait([reader])
        assert reader.cancelled()
    await read()
    await database.close()
    assert asyncio.all_tasks() == before


async def test_opening_again_keeps_everything(catalog: SqlCatalog, catalog_url: str) -> None:
    await catalog.create_knowledge_base(knowledge_base("x"))
    await catalog.close()
    again = SqlCatalog(catalog_url)
    await again.open()
    await again.health()
    assert [kb.name for kb in await again.list_knowledge_bases("default", limit=9, after="")] == ["x"]
    await again.close()
