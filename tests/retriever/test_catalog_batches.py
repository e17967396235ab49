"""Many documents are reserved and published together: as if one by one, at the price of one."""

from uuid import UUID

import pytest
from kbmesh_retriever.catalog.port import Document, KnowledgeBase, Reservation
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_rpc.errors import Conflict, KnowledgeBaseNotFound
from retriever.catalog_values import BOTH_DATABASES, described, knowledge_base
from retriever.workshop import Clock

pytestmark = BOTH_DATABASES


async def made(catalog: SqlCatalog) -> KnowledgeBase:
    made = knowledge_base()
    await catalog.create_knowledge_base(made)
    return made


def version(reservation: Reservation, external_id: str, *, chunks: int = 3) -> tuple[Reservation, Document]:
    return reservation, described(reservation, "a title", external_id, chunks)


async def valid(catalog: SqlCatalog, knowledge_base_id: UUID, counter: int, *pairs: tuple[UUID, int]) -> set[int]:
    found = await catalog.valid_documents({knowledge_base_id: counter}, pairs)
    return {generation for _, generation in found}


async def test_documents_become_current_together(catalog: SqlCatalog) -> None:
    kb = await made(catalog)
    names = ["b", "a", "c"]
    first = await catalog.reserve_generations(kb.id, names)
    assert [one.generation for one in first] == [1, 1, 1]
    assert len({one.document_id for one in first}) == 3
    outcomes = await catalog.publish_together(kb.id, [version(*pair) for pair in zip(first, names, strict=True)])
    assert outcomes == [None, None, None]
    now = await catalog.get_knowledge_base("default", kb.name)
    assert (now.generation, now.document_count, now.chunk_count) == (1, 3, 9)
    found = await catalog.find_documents(kb.id, names)
    assert {name: document.external_id for name, document in found.items()} == {name: name for name in names}

    again = await catalog.reserve_generations(kb.id, ["a", "d"])
    assert [(one.generation, one.replaces) for one in again] == [(2, 1), (1, None)]
    assert again[0].document_id == first[1].document_id
    pairs = [version(again[0], "a", chunks=1), version(again[1], "d")]
    assert await catalog.publish_together(kb.id, pairs) == [None, None]
    now = await catalog.get_knowledge_base("default", kb.name)
    assert (now.generation, now.document_count, now.chunk_count) == (2, 4, 10)
    both = [(again[0].document_id, 1), (again[0].document_id, 2)]
    assert await valid(catalog, kb.id, 1, *both) == {1}
    assert await valid(catalog, kb.id, 2, *both) == {2}


async def test_one_that_was_overtaken_loses_alone(catalog: SqlCatalog) -> None:
    kb = await made(catalog)
    slow = await catalog.reserve_generations(kb.id, ["a", "b"])
    fast = await catalog.reserve_generation(kb.id, "a")
    await catalog.publish(*version(fast, "a"))
    pairs = [version(slow[0], "a"), version(slow[1], "b")]
    lost, won = await catalog.publish_together(kb.id, pairs)
    assert isinstance(lost, Conflict)
    assert won is None
    assert (await catalog.get_document(kb.id, "a")).generation == fast.generation
    now = await catalog.get_knowledge_base("default", kb.name)
    assert (now.document_count, now.chunk_count) == (2, 6)


async def test_one_that_was_given_up_loses_alone(catalog: SqlCatalog) -> None:
    kb = await made(catalog)
    reserved = await catalog.reserve_generations(kb.id, ["a", "b"])
    await catalog.abandon(reserved[0])
    pairs = [version(reserved[0], "a"), version(reserved[1], "b")]
    lost, won = await catalog.publish_together(kb.id, pairs)
    assert isinstance(lost, Conflict)
    assert won is None
    assert set(await catalog.find_documents(kb.id, ["a", "b"])) == {"b"}
    now = await catalog.get_knowledge_base("default", kb.name)
    assert (now.document_count, now.chunk_count) == (1, 3)


async def test_nothing_goes_into_a_knowledge_base_that_is_gone(catalog: SqlCatalog, clock: Clock) -> None:
    kb = await made(catalog)
    reserved = await catalog.reserve_generations(kb.id, ["a", "b"])
    await catalog.delete_knowledge_base("default", kb.name)
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.publish_together(kb.id, [version(*pair) for pair in zip(reserved, ["a", "b"], strict=True)])
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.reserve_generations(kb.id, ["c", "d"])
