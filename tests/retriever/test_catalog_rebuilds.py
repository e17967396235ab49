"""A knowledge base's successor is filled beside it, and takes its place at once or not at all."""

from dataclasses import replace
from uuid import uuid4

import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_rpc.errors import Conflict, KnowledgeBaseNotFound, RebuildIncomplete, RebuildNotFound
from retriever.catalog_values import BOTH_DATABASES, described, knowledge_base, publish
from retriever.workshop import Clock

pytestmark = BOTH_DATABASES


async def begin(catalog: SqlCatalog, kb: KnowledgeBase) -> KnowledgeBase:
    successor_id = uuid4()
    successor = replace(
        kb, id=successor_id, known_as=kb.public_id, collection=f"kb-{successor_id}", embedding_model="n"
    )
    await catalog.prepare_knowledge_base(successor)
    await catalog.create_rebuild(successor, of=kb)
    return successor


async def take_in(catalog: SqlCatalog, kb: KnowledgeBase, external_id: str, source: str) -> tuple[object, int]:
    reservation = await catalog.reserve_generation(kb.id, external_id)
    await catalog.publish(
        reservation, replace(described(reservation, source, external_id, chunks=2), source_fingerprint=source)
    )
    return reservation.document_id, reservation.generation


async def test_who_reads_the_old_one_goes_on_and_who_comes_finds_the_new_one(catalog: SqlCatalog, clock: Clock) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    before = await take_in(catalog, old, "a", "one")
    began = await catalog.get_knowledge_base("default", "x")
    successor = await begin(catalog, old)
    after = await take_in(catalog, successor, "a", "one")
    assert [kb.id for kb in await catalog.list_knowledge_bases("default", limit=9, after="")] == [old.id]
    assert await catalog.get_knowledge_base("default", "x") == began, "nobody sees it before it is done"

    await catalog.update_knowledge_base("default", "x", description="meanwhile", retrieval=RetrievalDefaults(weight=3))
    clock.advance(5)
    now, dropped = await catalog.finish_rebuild(began, drop_outstanding=False)
    assert (now.id, now.public_id, now.embedding_model, dropped) == (successor.id, old.id, "n", 0)
    assert (now.description, now.retrieval.weight, now.document_count, now.chunk_count) == ("meanwhile", 3, 1, 2)
    assert now.generation > began.generation
    for name in ("x", str(old.id)):
        assert await catalog.get_knowledge_base("default", name) == now
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.get_knowledge_base("default", str(successor.id))

    hits = [before, after]
    assert list(await catalog.valid_documents({began.id: began.generation}, hits)) == [before]
    assert list(await catalog.valid_documents({now.id: now.generation}, hits)) == [after]

    assert await catalog.deleted_knowledge_bases(older_than_seconds=60, limit=9) == []
    clock.advance(61)
    [gone] = await catalog.deleted_knowledge_bases(older_than_seconds=60, limit=9)
    assert (gone.id, gone.collection) == (old.id, old.collection)
    await catalog.forget_knowledge_base(gone)
    assert await catalog.get_knowledge_base("default", "x") == now

    again = await begin(catalog, now)
    assert (await catalog.find_rebuild(now)) is not None
    await take_in(catalog, again, "a", "one")
    third, _ = await catalog.finish_rebuild(now, drop_outstanding=False)
    assert third.public_id == old.id, "callers know it by the first id, however often it was rebuilt"


async def test_what_changed_or_failed_meanwhile_is_outstanding(catalog: SqlCatalog) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    for external_id in "abcd":
        await take_in(catalog, old, external_id, f"{external_id}1")
    successor = await begin(catalog, old)
    for external_id in "abc":
        await take_in(catalog, successor, external_id, f"{external_id}1")
    await take_in(catalog, old, "b", "b2")
    await catalog.note_rebuild_failure(successor.id, "d", "ERROR_REASON_EMPTY_TEXT")
    await catalog.note_rebuild_failure(successor.id, "c", "ERROR_REASON_QUEUE_FULL")
    await catalog.note_rebuild_failure(old.id, "a", "ERROR_REASON_QUEUE_FULL")
    await catalog.note_rebuild_failure(successor.id, "x" * 4000 + "\0", "ERROR_REASON_INVALID_FIELD")
    progress = await catalog.rebuild_progress(old, successor)
    assert (progress.total, progress.done, progress.failed) == (4, 2, 1)
    assert progress.failures == {"d": "ERROR_REASON_EMPTY_TEXT"}, "c is there; what failed of it was another attempt"
    with pytest.raises(RebuildIncomplete) as caught:
        await catalog.finish_rebuild(old, drop_outstanding=False)
    assert caught.value.metadata == {"knowledge_base": "x", "outstanding": "2"}

    await take_in(catalog, successor, "b", "b2")
    await take_in(catalog, successor, "d", "d1")
    progress = await catalog.rebuild_progress(old, successor)
    assert (progress.total, progress.done, progress.failed, dict(progress.failures)) == (4, 4, 0, {})
    _, dropped = await catalog.finish_rebuild(old, drop_outstanding=False)
    assert dropped == 0


async def test_what_is_outstanding_goes_only_where_the_caller_says_so(catalog: SqlCatalog) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    await take_in(catalog, old, "a", "a1")
    await take_in(catalog, old, "b", "b1")
    await take_in(catalog, await begin(catalog, old), "a", "a1")
    now, dropped = await catalog.finish_rebuild(old, drop_outstanding=True)
    assert (dropped, now.document_count) == (1, 1)


async def test_documents_of_before_their_sources_were_hashed_are_told_by_their_content(catalog: SqlCatalog) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    await publish(catalog, old.id, "t", "a")
    successor = await begin(catalog, old)
    await take_in(catalog, successor, "a", "a1")
    assert (await catalog.rebuild_progress(old, successor)).done == 1


async def test_what_is_deleted_meanwhile_does_not_come_back(catalog: SqlCatalog, clock: Clock) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    for external_id in "ab":
        await take_in(catalog, old, external_id, "1")
    successor = await begin(catalog, old)
    for external_id in "ab":
        await take_in(catalog, successor, external_id, "1")
    await catalog.delete_document(old.id, "a")
    clock.advance(61)
    due = await catalog.due_for_deletion(older_than_seconds=60, limit=9)
    assert {one.knowledge_base.collection for one in due} == {old.collection, successor.collection}
    now, _ = await catalog.finish_rebuild(old, drop_outstanding=False)
    assert [document.external_id for document in await catalog.list_documents(now.id, limit=9, after="")] == ["b"]


async def test_there_is_one_at_a_time_and_it_can_be_given_up(catalog: SqlCatalog) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    with pytest.raises(RebuildNotFound):
        await catalog.cancel_rebuild(old)
    with pytest.raises(RebuildNotFound):
        await catalog.finish_rebuild(old, drop_outstanding=True)
    first = await begin(catalog, old)
    with pytest.raises(Conflict):
        await begin(catalog, old)
    reservation = await catalog.reserve_generation(first.id, "a")
    await catalog.cancel_rebuild(old)
    assert await catalog.find_rebuild(old) is None
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.publish(reservation, described(reservation))
    await catalog.abandon(reservation)
    assert first.id in {gone.id for gone in await catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9)}
    assert (await begin(catalog, old)).id != first.id


async def test_a_knowledge_base_takes_its_rebuild_along(catalog: SqlCatalog) -> None:
    old = knowledge_base("x")
    await catalog.create_knowledge_base(old)
    successor = await begin(catalog, old)
    await take_in(catalog, successor, "a", "1")
    await catalog.delete_knowledge_base("default", "x")
    gone = await catalog.deleted_knowledge_bases(older_than_seconds=0, limit=9)
    assert {one.id for one in gone} == {old.id, successor.id}
    late = replace(successor, id=uuid4())
    await catalog.prepare_knowledge_base(late)
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.create_rebuild(late, of=old)
