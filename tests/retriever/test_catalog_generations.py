"""Readers and writers of the same documents: who sees which version."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_rpc.errors import Conflict, DocumentNotFound, KnowledgeBaseNotFound
from retriever.catalog_values import BOTH_DATABASES, described, knowledge_base, publish
from retriever.workshop import Clock

pytestmark = BOTH_DATABASES


async def counter(catalog: SqlCatalog, kb: KnowledgeBase) -> int:
    return (await catalog.get_knowledge_base(kb.tenant, str(kb.id))).generation


async def test_a_reader_keeps_the_version_it_began_with(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    first = await publish(catalog, kb.id, "one")
    began = await counter(catalog, kb)
    second = await publish(catalog, kb.id, "two")
    hits = [(first.document_id, first.generation), (second.document_id, second.generation)]

    seen = await catalog.valid_documents({kb.id: began}, hits)
    assert [document.title for document in seen.values()] == ["one"]
    seen = await catalog.valid_documents({kb.id: began + 1}, hits)
    assert [document.title for document in seen.values()] == ["two"]

    await catalog.delete_document(kb.id, "a")
    assert await catalog.valid_documents({kb.id: began + 2}, hits) == {}
    assert len(await catalog.valid_documents({kb.id: began + 1}, hits)) == 1


async def test_a_reader_of_one_knowledge_base_sees_nothing_of_another(catalog: SqlCatalog) -> None:
    ours, theirs = knowledge_base(), knowledge_base(tenant="rival")
    await catalog.create_knowledge_base(ours)
    await catalog.create_knowledge_base(theirs)
    reservation = await publish(catalog, theirs.id, "secret")
    assert await catalog.valid_documents({ours.id: 99}, [(reservation.document_id, reservation.generation)]) == {}


async def test_numbers_are_never_used_again(catalog: SqlCatalog, clock: Clock) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    first = await publish(catalog, kb.id, "one")
    await catalog.delete_document(kb.id, "a")
    second = await publish(catalog, kb.id, "again")
    assert (second.document_id, second.generation) == (first.document_id, 2)

    await catalog.delete_document(kb.id, "a")
    clock.advance(100)
    for due in await catalog.due_for_deletion(older_than_seconds=60, limit=10):
        await catalog.forget(due)
    third = await publish(catalog, kb.id, "long after")
    assert third.document_id != first.document_id


async def test_of_two_writers_the_slower_one_learns_of_it(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    slow = await catalog.reserve_generation(kb.id, "a")
    fast = await publish(catalog, kb.id, "fast")
    with pytest.raises(Conflict):
        await catalog.publish(slow, described(slow, "slow"))
    current = await catalog.get_document(kb.id, "a")
    assert (current.title, current.generation) == ("fast", fast.generation)
    assert await counter(catalog, kb) == 1


async def test_an_id_is_not_taken_over_by_a_document_named_like_it(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    first = await publish(catalog, kb.id, "first", "a")
    impostor = await publish(catalog, kb.id, "impostor", str(first.document_id))
    # An external id may look like an id; until a document has that id, it names its own.
    named = await publish(catalog, kb.id, "named", str(UUID(int=7)))
    assert (await catalog.get_document(kb.id, str(UUID(int=7)))).id == named.document_id
    assert (await catalog.get_document(kb.id, str(first.document_id))).title == "first"
    assert (await catalog.delete_document(kb.id, str(first.document_id))).title == "first"
    with pytest.raises(DocumentNotFound):
        await catalog.delete_document(kb.id, str(first.document_id))
    assert (await catalog.get_document(kb.id, str(impostor.document_id))).title == "impostor"


async def test_a_description_is_not_given_to_another_version(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    await publish(catalog, kb.id, "one")
    read = await catalog.get_document(kb.id, "a")
    await publish(catalog, kb.id, "two")
    with pytest.raises(Conflict):
        await catalog.redescribe(replace(read, title="late"))
    assert (await catalog.get_document(kb.id, "a")).title == "two"


async def test_a_reservation_that_was_given_up_cannot_be_published(catalog: SqlCatalog, clock: Clock) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    reservation = await catalog.reserve_generation(kb.id, "a")
    clock.advance(3601)
    assert await catalog.due_for_deletion(older_than_seconds=60, limit=10) == []
    clock.advance(61)
    [due] = await catalog.due_for_deletion(older_than_seconds=60, limit=10)
    assert (due.document_id, due.generation, due.knowledge_base.id) == (reservation.document_id, 1, kb.id)
    with pytest.raises(Conflict):
        await catalog.publish(reservation, described(reservation))


async def test_a_stale_writer_cannot_reach_a_new_knowledge_base_of_the_same_name(catalog: SqlCatalog) -> None:
    """ING-08"""
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    reservation = await catalog.reserve_generation(old.id, "a")
    await catalog.delete_knowledge_base("default", "x")
    new = knowledge_base("x")
    await catalog.create_knowledge_base(new)
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.publish(reservation, described(reservation))
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.reserve_generation(old.id, "b")
    with pytest.raises(DocumentNotFound):
        await catalog.get_document(new.id, "a")
    assert await counter(catalog, new) == 0


async def test_counters_of_concurrent_writers_have_no_gap(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    await asyncio.gather(*(publish(catalog, kb.id, "t", f"doc-{i}", chunks=i) for i in range(20)))
    counted = await catalog.get_knowledge_base("default", "kb")
    assert (counted.generation, counted.document_count, counted.chunk_count) == (20, 20, sum(range(20)))
    assert len(await catalog.list_documents(kb.id, limit=7, after="doc-12")) == 7
    assert await catalog.due_for_deletion(older_than_seconds=0, limit=10) == []


async def test_two_processes_write_to_one_database(catalog_url: str, catalog: SqlCatalog) -> None:
    other = SqlCatalog(catalog_url)
    await other.open()
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    await asyncio.gather(
        *(publish(one, kb.id, "t", f"{number}-{i}") for number, one in enumerate([catalog, other]) for i in range(15))
    )
    assert await counter(other, kb) == 30
    await other.close()


async def test_a_killed_process_leaves_no_reservation(catalog_url: str, clock: Clock) -> None:
    killed = SqlCatalog(catalog_url, owner="killed", now=clock)
    await killed.open()
    kb = knowledge_base()
    await killed.create_knowledge_base(kb)
    half_made = knowledge_base("half")
    await killed.prepare_knowledge_base(half_made)
    reservation = await killed.reserve_generation(kb.id, "a")

    neighbour = SqlCatalog(catalog_url, now=clock)
    await neighbour.open()
    assert await neighbour.due_for_deletion(older_than_seconds=0, limit=10) == [], "its owner is alive"
    await neighbour.close()
    await killed.close()

    after = SqlCatalog(catalog_url, now=clock)
    await after.open()
    [due] = await after.due_for_deletion(older_than_seconds=0, limit=10)
    assert (due.document_id, due.generation) == (reservation.document_id, reservation.generation)
    [gone] = await after.deleted_knowledge_bases(older_than_seconds=0, limit=10)
    assert gone.id == half_made.id
    await after.close()


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["publish", "delete", "redescribe", "abandon"]), st.sampled_from("abc")), max_size=25
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=_ACTIONS)
async def test_every_reader_sees_each_document_once(catalog: SqlCatalog, actions: list[tuple[str, str]]) -> None:
    """Whatever happened before and after it began, a reader sees what was current then."""
    kb = knowledge_base(f"kb-{uuid4().hex[:20]}")
    await catalog.create_knowledge_base(kb)
    state: dict[str, int] = {}
    history: list[dict[str, int]] = [{}]
    pairs: set[tuple[UUID, int]] = set()
    names: dict[UUID, str] = {}
    for action, external_id in actions:
        match action:
            case "publish":
                reservation = await publish(catalog, kb.id, "t", external_id)
                state[external_id] = reservation.generation
                pairs.add((reservation.document_id, reservation.generation))
                names[reservation.document_id] = external_id
                history.append(dict(state))
            case "abandon":
                reservation = await catalog.reserve_generation(kb.id, external_id)
                pairs.add((reservation.document_id, reservation.generation))
                await catalog.abandon(reservation)
            case "delete" if external_id in state:
                await catalog.delete_document(kb.id, external_id)
                del state[external_id]
                history.append(dict(state))
            case "redescribe" if external_id in state:
                await catalog.redescribe(await catalog.get_document(kb.id, external_id))
                history.append(dict(state))
    assert await counter(catalog, kb) == len(history) - 1
    for as_of, expected in enumerate(history):
        seen: dict[str, list[int]] = defaultdict(list)
        for document_id, generation in await catalog.valid_documents({kb.id: as_of}, pairs):
            seen[names[document_id]].append(generation)
        assert seen == {external_id: [generation] for external_id, generation in expected.items()}
