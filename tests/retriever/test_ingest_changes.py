"""A sync runs every night: it must cost what has changed and lose nothing that was not meant to go."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.document import MAX_METADATA_BYTES
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.mesh.port import Chunked, SourceDocument
from kbmesh_retriever.stores.port import Condition, PointFilter, Scope, SearchQuery
from kbmesh_rpc.errors import (
    DependencyUnavailable,
    DocumentEmpty,
    DocumentShrunk,
    RequestTooLarge,
)
from retriever.mesh_fakes import always
from retriever.workshop import Workshop

LONG = "\n\n".join(f"Paragraph number p{i}x tells of turbines and of their blades." for i in range(40))
SHORT = "Sign in to go on."


async def teams_found(workshop: Workshop, knowledge_base: KnowledgeBase, team: str) -> list[tuple[int, str]]:
    """Index and metadata of what a reader finds now who filters by a team."""
    current = await workshop.catalog.get_knowledge_base(knowledge_base.tenant, knowledge_base.name)
    found = await workshop.store.search(
        SearchQuery(
            collection=current.collection,
            scope=Scope(tenant=current.tenant, knowledge_base_id=current.id),
            dense=None,
            sparse=encode_query("turbines"),
            limit=500,
            filter=PointFilter(all=(Condition(field="metadata.team", any_of=(team,)),)),
        )
    )
    pairs = [(UUID(hit.payload["document_id"]), hit.payload["generation"]) for hit in found.keyword]
    valid = await workshop.catalog.valid_documents({current.id: current.generation}, pairs)
    return sorted(
        (hit.payload["index"], hit.payload["metadata"]["team"])
        for hit, pair in zip(found.keyword, pairs, strict=True)
        if pair in valid
    )


async def vectors(workshop: Workshop, knowledge_base: KnowledgeBase, external_id: str) -> dict[int, bytes]:
    document = await workshop.catalog.get_document(knowledge_base.id, external_id)
    scope = Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id)
    return {
        point.payload["index"]: np.asarray(point.dense).round(5).tobytes()
        async for page in workshop.store.read_generation(
            knowledge_base.collection, scope, document.id, document.generation
        )
        for point in page
    }


async def test_other_metadata_is_neither_cut_nor_embedded(workshop: Workshop) -> None:
    kb = await workshop.make()
    first = await workshop.ingest(kb, "a.md", LONG, metadata={"team": "red", "floor": "2"})
    cut, embedded = workshop.paragraphs.cut, len(workshop.words.texts)
    before = await vectors(workshop, kb, "a.md")

    moved = await workshop.ingest(kb, "a.md", LONG, metadata={"team": "blue"})

    assert (moved.outcome, moved.chunks, moved.embedded, moved.tokens) == ("changed", 40, 0, 0)
    assert moved.document_id == first.document_id
    assert (workshop.paragraphs.cut, len(workshop.words.texts)) == (cut, embedded)
    assert await vectors(workshop, kb, "a.md") == before
    assert await teams_found(workshop, kb, "red") == []
    assert await teams_found(workshop, kb, "blue") == [(index, "blue") for index in range(40)]
    assert (await workshop.catalog.get_document(kb.id, "a.md")).metadata == {"team": "blue"}
    assert (await workshop.ingest(kb, "a.md", LONG, metadata={"team": "blue"})).outcome == "unchanged"
    await workshop.sweep()
    assert await workshop.points(kb) == 40


async def test_a_reader_never_sees_old_and_new_metadata_together(workshop: Workshop) -> None:
    """The copy is written page by page; searches run all along."""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", LONG * 4, metadata={"team": "red"})
    chunks = (await workshop.catalog.get_document(kb.id, "a.md")).chunk_count
    assert chunks > 100
    done = False
    seen: set[str] = set()

    async def search() -> None:
        while not done:
            red, blue = await teams_found(workshop, kb, "red"), await teams_found(workshop, kb, "blue")
            assert {len(red), len(blue)} <= {0, chunks}
            seen.update(["red"] if red else [], ["blue"] if blue else [])
            await asyncio.sleep(0)

    async def move() -> None:
        nonlocal done
        for team in ("blue", "red", "blue"):
            await workshop.ingest(kb, "a.md", LONG * 4, metadata={"team": team})
        done = True

    async with asyncio.TaskGroup() as group:
        group.create_task(search())
        group.create_task(move())
    assert seen == {"red", "blue"}


async def test_what_was_found_comes_back_when_the_caller_takes_his_own_away(workshop: Workshop) -> None:
    kb = await workshop.make()
    cut = workshop.paragraphs.chunk

    async def with_team(document: SourceDocument, **named: Any) -> Chunked:
        chunked = await cut(document, **named)
        own = replace(chunked.chunks[0], metadata={"team": "green"})
        return replace(chunked, chunks=(own, *chunked.chunks[1:]), metadata={"team": "found", "from": "Ada"})

    workshop.paragraphs.chunk = with_team
    text = "First about turbines.\n\nSecond about turbines."
    await workshop.ingest(kb, "a.md", text, metadata={"team": "red"})
    assert await teams_found(workshop, kb, "red") == [(0, "red"), (1, "red")]
    await workshop.ingest(kb, "a.md", text)
    assert await teams_found(workshop, kb, "green") == [(0, "green")]
    assert await teams_found(workshop, kb, "found") == [(1, "found")]
    assert (await workshop.catalog.get_document(kb.id, "a.md")).metadata == {"team": "found", "from": "Ada"}
    await workshop.ingest(kb, "a.md", text, metadata={"team": "blue"})
    assert await teams_found(workshop, kb, "blue") == [(0, "blue"), (1, "blue")]


async def test_a_copy_that_fails_leaves_the_old_metadata(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", LONG, metadata={"team": "red"})
    workshop.store.after("upsert", always(DependencyUnavailable("qdrant", "lost")))
    with pytest.raises(DependencyUnavailable):
        await workshop.ingest(kb, "a.md", LONG, metadata={"team": "blue"})
    assert len(await teams_found(workshop, kb, "red")) == 40
    workshop.store.heal()
    await workshop.sweep()
    assert await workshop.points(kb) == 40


async def test_chunks_that_the_store_has_lost_are_made_anew(workshop: Workshop) -> None:
    """Somebody put back an old copy of the store: copying what is left would make the loss lasting."""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", LONG, metadata={"team": "red"})
    document = await workshop.catalog.get_document(kb.id, "a.md")
    scope = Scope(tenant=kb.tenant, knowledge_base_id=kb.id)
    await workshop.store.delete_generations(kb.collection, scope, document.id, [document.generation])
    moved = await workshop.ingest(kb, "a.md", LONG, metadata={"team": "blue"})
    assert (moved.outcome, moved.embedded) == ("changed", 40)
    assert len(await teams_found(workshop, kb, "blue")) == 40


async def test_metadata_that_is_too_large_is_refused(workshop: Workshop) -> None:
    kb = await workshop.make()
    with pytest.raises(RequestTooLarge):
        await workshop.ingest(kb, "a.md", LONG, metadata={"note": "x" * MAX_METADATA_BYTES})


@pytest.mark.parametrize(("left", "now"), [("", 0), (" \n", 0), (SHORT, len(SHORT))])
async def test_a_shrunken_read_is_not_taken_for_a_deletion(workshop: Workshop, left: str, now: int) -> None:
    """The share was not mounted, or the site answered with its login page."""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", LONG)
    embedded = len(workshop.words.texts)
    with pytest.raises(DocumentShrunk) as refused:
        await workshop.ingest(kb, "a.md", left)
    assert refused.value.metadata == {"before": str(len(LONG)), "now": str(now), "unit": "characters"}
    assert len(workshop.words.texts) == embedded
    assert (await workshop.ingest(kb, "a.md", LONG)).outcome == "unchanged"


async def test_a_shrunken_document_goes_in_when_the_caller_means_it(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", LONG)
    meant = await workshop.ingest(kb, "a.md", SHORT, allow_shrink=True)
    assert (meant.outcome, meant.chunks) == ("changed", 1)
    emptied = await workshop.ingest(kb, "a.md", "", allow_shrink=True)
    assert (emptied.outcome, emptied.chunks, emptied.document_id) == ("changed", 0, meant.document_id)
    assert (await workshop.ingest(kb, "a.md", "")).outcome == "unchanged"
    await workshop.sweep()
    assert await workshop.points(kb) == 0
    assert (await workshop.ingest(kb, "a.md", LONG)).chunks == 40


async def test_an_empty_document_that_was_never_there_is_empty(workshop: Workshop) -> None:
    kb = await workshop.make()
    with pytest.raises(DocumentEmpty):
        await workshop.ingest(kb, "a.md", "", allow_shrink=True)


async def test_a_document_may_lose_most_of_itself_step_by_step(workshop: Workshop) -> None:
    """What is left is compared with the version that is there, not with the longest that ever was."""
    kb = await workshop.make()
    for size in (len(LONG), len(LONG) // 3, len(LONG) // 9):
        assert (await workshop.ingest(kb, "a.md", LONG[:size])).outcome in ("new", "changed")
