"""Somebody keeps a folder of documents in a knowledge base, and syncs it again and again."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.mesh.port import Chunked, Embedded, SourceDocument
from kbmesh_retriever.stores.port import Scope, SearchQuery
from kbmesh_rpc.errors import (
    DependencyInvalidResponse,
    DependencyUnavailable,
    DocumentEmpty,
    DocumentTooLarge,
    EmptyText,
    InferenceFailed,
    InvalidField,
    KbmeshError,
    QueueFull,
    Reason,
)
from retriever.mesh_fakes import ParagraphChunker, always, vector_of
from retriever.workshop import Workshop

TEN = "\n\n".join(f"Paragraph number p{i}x about turbines." for i in range(10))
THREE = "\n\n".join(f"Paragraph number p{i}x about turbines." for i in range(3))
EMBEDDER_DOWN = DependencyUnavailable("embedder", "down")


async def texts_found(workshop: Workshop, knowledge_base: KnowledgeBase, query: str) -> list[str]:
    """What a reader finds now, by keyword: hits whose version is current."""
    current = await workshop.catalog.get_knowledge_base(knowledge_base.tenant, str(knowledge_base.id))
    result = await workshop.store.search(
        SearchQuery(
            collection=current.collection,
            scope=Scope(tenant=current.tenant, knowledge_base_id=current.id),
            dense=vector_of(query),
            sparse=encode_query(query),
            limit=500,
        )
    )
    pairs = [(UUID(hit.payload["document_id"]), hit.payload["generation"]) for hit in result.keyword]
    valid = await workshop.catalog.valid_documents({current.id: current.generation}, pairs)
    return [hit.payload["text"] for hit, pair in zip(result.keyword, pairs, strict=True) if pair in valid]


async def test_an_unchanged_document_costs_nothing(workshop: Workshop) -> None:
    kb = await workshop.make()
    first = await workshop.ingest(kb, "a.md", TEN)
    assert (first.outcome, first.chunks, first.embedded) == ("new", 10, 10)
    before = dict(workshop.store.calls), len(workshop.words.texts), workshop.paragraphs.cut

    again = await workshop.ingest(kb, "a.md", TEN)

    assert (again.outcome, again.chunks, again.embedded, again.tokens) == ("unchanged", 10, 0, 0)
    assert again.document_id == first.document_id
    assert (dict(workshop.store.calls), len(workshop.words.texts), workshop.paragraphs.cut) == before
    assert (await workshop.catalog.get_knowledge_base("default", "handbook")).generation == 1


async def test_a_new_version_with_fewer_chunks_leaves_none_behind(workshop: Workshop) -> None:
    """ING-02"""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", TEN)
    changed = await workshop.ingest(kb, "a.md", THREE)
    assert (changed.outcome, changed.chunks) == ("changed", 3)
    assert await texts_found(workshop, kb, "p9x") == []
    await workshop.sweep()
    assert await workshop.points(kb) == 3
    assert await texts_found(workshop, kb, "p1x") == ["Paragraph number p1x about turbines."]

    await workshop.catalog.delete_document(kb.id, "a.md")
    assert await texts_found(workshop, kb, "p1x") == []
    await workshop.sweep()
    assert await workshop.points(kb) == 0
    emptied = await workshop.catalog.get_knowledge_base("default", "handbook")
    assert (emptied.document_count, emptied.chunk_count, emptied.generation) == (0, 0, 3)


async def test_the_old_version_stays_while_the_embedder_is_down(workshop: Workshop) -> None:
    """ING-01"""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", "The valve is red.")
    first = await workshop.catalog.get_document(kb.id, "a.md")
    workshop.embedder.before("embed", always(EMBEDDER_DOWN))
    with pytest.raises(DependencyUnavailable):
        await workshop.ingest(kb, "a.md", "The valve is blue.")
    assert await texts_found(workshop, kb, "valve") == ["The valve is red."]
    assert await workshop.catalog.get_document(kb.id, "a.md") == first

    workshop.embedder.heal()
    assert (await workshop.ingest(kb, "a.md", "The valve is blue.")).outcome == "changed"
    assert await texts_found(workshop, kb, "valve") == ["The valve is blue."]


async def test_a_failed_write_leaves_nothing(workshop: Workshop) -> None:
    """The points may have been written although the answer was lost."""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", "The valve is red.")
    workshop.store.after("upsert", always(DependencyUnavailable("qdrant", "lost")))
    with pytest.raises(DependencyUnavailable):
        await workshop.ingest(kb, "a.md", TEN)
    assert await texts_found(workshop, kb, "turbines") == []
    workshop.store.heal()
    await workshop.sweep()
    assert await workshop.points(kb) == 1


async def test_other_settings_take_a_document_in_again_once(workshop: Workshop) -> None:
    """ING-04"""
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", THREE)
    workshop.paragraphs.version = "2"
    assert (await workshop.ingest(kb, "a.md", THREE)).outcome == "changed"
    assert (await workshop.ingest(kb, "a.md", THREE)).outcome == "unchanged"


async def test_a_new_title_or_link_keeps_the_chunks(workshop: Workshop) -> None:
    kb = await workshop.make()
    written = datetime(2025, 5, 5, tzinfo=UTC)
    await workshop.ingest(kb, "a.md", THREE, author="Ada", created_at=written)
    embedded = len(workshop.words.texts)
    moved = await workshop.ingest(kb, "a.md", THREE, uri="https://example.org/a", author="Ada", created_at=written)
    assert (moved.outcome, moved.embedded, moved.chunks) == ("changed", 0, 3)
    document = await workshop.catalog.get_document(kb.id, "a.md")
    assert (document.title, document.uri) == ("Paragraph number p0x about turbines.", "https://example.org/a")
    assert (document.author, document.created_at, document.generation) == ("Ada", written, 1)
    assert len(workshop.words.texts) == embedded
    assert (await workshop.catalog.get_knowledge_base("default", "handbook")).generation == 2


async def test_taking_the_title_away_brings_the_found_one_back(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", THREE, title="Turbines")
    assert (await workshop.catalog.get_document(kb.id, "a.md")).title == "Turbines"
    await workshop.ingest(kb, "a.md", THREE)
    assert (await workshop.catalog.get_document(kb.id, "a.md")).title == "Paragraph number p0x about turbines."


async def test_metadata_reaches_the_chunks(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", THREE, metadata={"team": "red"})
    assert (await workshop.ingest(kb, "a.md", THREE, metadata={"team": "blue"})).outcome == "changed"
    assert (await workshop.catalog.get_document(kb.id, "a.md")).metadata == {"team": "blue"}


class ForwardedMail(ParagraphChunker):
    """A mail, and as its second chunk one that came with it and has no date of its own."""

    async def chunk(self, document: SourceDocument, *, chunking: Mapping[str, Any], embedding_model: str) -> Chunked:
        chunked = await super().chunk(document, chunking=chunking, embedding_model=embedding_model)
        header = {"from": "ann@example.com", "date": "2025-03-04T10:00:00+01:00", "subject": "Fwd"}
        outer, inner = chunked.chunks
        unknown = {name: document.metadata.get(name, "") for name in header}
        return replace(
            chunked,
            metadata=header,
            chunks=(
                replace(outer, metadata={**header, **document.metadata}),
                replace(inner, metadata={**unknown, "from": "bob@example.com", **document.metadata}),
            ),
        )


async def test_a_forwarded_mail_has_no_date_but_its_own(workshop: Workshop) -> None:
    kb = await workshop.make()
    workshop.chunker.become(ForwardedMail())
    await workshop.ingest(kb, "a.eml", "Mail about turbines\n\nForwarded turbines", metadata={"subject": "Kept"})
    found = await workshop.store.search(
        SearchQuery(
            collection=kb.collection,
            scope=Scope(tenant=kb.tenant, knowledge_base_id=kb.id),
            dense=vector_of("turbines"),
            sparse=encode_query("turbines"),
            limit=10,
        )
    )
    outer, inner = sorted(found.keyword, key=lambda hit: hit.payload["index"])
    assert outer.payload["metadata"] == {
        "from": "ann@example.com",
        "date": "2025-03-04T10:00:00+01:00",
        "subject": "Kept",
    }
    assert inner.payload["metadata"] == {"from": "bob@example.com", "subject": "Kept"}


async def test_a_chunk_without_vector_fails_its_document(workshop: Workshop) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a.md", "The valve is red.")
    embed = workshop.words.embed

    async def one_fails(texts: list[str], **named: object) -> Embedded:
        answer = await embed(texts, **named)
        errors = (*answer.errors[:-1], InferenceFailed("words", "NaN"))
        vectors = np.concatenate([answer.vectors[:-1], np.zeros((1, answer.vectors.shape[1]), np.float32)])
        return Embedded(
            vectors=vectors,
            errors=errors,
            tokens=answer.tokens,
            tokens_cut=answer.tokens_cut,
            model=answer.model,
            fingerprint=answer.fingerprint,
        )

    workshop.words.embed = one_fails
    with pytest.raises(KbmeshError) as caught:
        await workshop.ingest(kb, "a.md", THREE)
    assert caught.value.reason is Reason.INFERENCE_FAILED
    assert "chunk 2" in caught.value.message
    assert await texts_found(workshop, kb, "valve") == ["The valve is red."]


UNREADABLE = "\ue000\ue001"


async def test_a_chunk_that_the_model_cannot_read_is_kept_for_its_words(workshop: Workshop) -> None:
    kb = await workshop.make(retrieval=RetrievalDefaults(min_vector_score=-1))
    result = await workshop.ingest(kb, "a.md", f"The valve is red.\n\n{UNREADABLE}\n\nПриветствие\n\nThe end.")
    assert (result.outcome, result.chunks, result.embedded) == ("new", 4, 2)
    assert [(warning.reason, dict(warning.metadata)) for warning in result.warnings] == [
        (Reason.EMPTY_TEXT, {"chunk": "1"}),
        (Reason.EMPTY_TEXT, {"chunk": "2"}),
    ]
    assert await texts_found(workshop, kb, "Приветствие") == ["Приветствие"]
    # It has no meaning, so none is near to it, not even by the least of scores.
    scope = Scope(tenant=kb.tenant, knowledge_base_id=kb.id)
    query = SearchQuery(
        collection=kb.collection, scope=scope, dense=vector_of("valve"), sparse=None, limit=9, min_dense_score=-1
    )
    found = (await workshop.store.search(query)).dense
    assert {hit.payload["text"] for hit in found} == {"The valve is red.", "The end."}
    assert (await workshop.ingest(kb, "a.md", "The valve is blue.")).chunks == 1
    await workshop.sweep()
    assert await workshop.points(kb) == 1


async def test_what_the_caller_kept_out_of_embedding_is_found_by_its_words_alone(workshop: Workshop) -> None:
    kb = await workshop.make()
    cut = workshop.paragraphs.chunk

    async def quoting(document: SourceDocument, **named: Any) -> Chunked:
        chunked = await cut(document, **named)
        marked = tuple(replace(one, embedding_excluded=one.text.startswith(">")) for one in chunked.chunks)
        return replace(chunked, chunks=marked)

    workshop.paragraphs.chunk = quoting
    result = await workshop.ingest(kb, "mail", "The valve is red.\n\n> Which gasket?\n\nThe end.")
    assert (result.outcome, result.chunks, result.embedded, result.warnings) == ("new", 3, 2, ())
    assert await texts_found(workshop, kb, "gasket") == ["> Which gasket?"]
    result = await workshop.ingest(kb, "only quotes", "> What about the flange?")
    assert (result.outcome, result.chunks, result.embedded) == ("new", 1, 0)
    assert await texts_found(workshop, kb, "flange") == ["> What about the flange?"]


async def test_slk_09_what_the_caller_leaves_out_altogether_is_gone_after_the_next_sync(workshop: Workshop) -> None:
    """A channel of bots alone, taken in again without bots: the chunker read it, and has nothing to give."""
    kb = await workshop.make()
    await workshop.ingest(kb, "#alerts", "CPU 97% on node-3")
    cut = workshop.paragraphs.chunk

    async def without_bots(document: SourceDocument, **named: Any) -> Chunked:
        return replace(await cut(document, **named), chunks=())

    workshop.paragraphs.chunk = without_bots
    result = await workshop.ingest(kb, "#alerts", "CPU 98% on node-3")
    assert (result.outcome, result.chunks, result.embedded) == ("changed", 0, 0)
    assert await texts_found(workshop, kb, "CPU") == []
    await workshop.sweep()
    assert await workshop.points(kb) == 0


async def test_a_document_of_which_the_model_can_read_nothing_fails(workshop: Workshop) -> None:
    kb = await workshop.make()
    with pytest.raises(EmptyText):
        await workshop.ingest(kb, "a.md", UNREADABLE)
    assert await workshop.points(kb) == 0


async def test_vectors_of_another_shape_are_refused(workshop: Workshop) -> None:
    kb = await workshop.make()
    embed = workshop.words.embed

    async def short(texts: list[str], **named: object) -> Embedded:
        return await embed(texts[:-1], **named)

    workshop.words.embed = short
    with pytest.raises(DependencyInvalidResponse):
        await workshop.ingest(kb, "a.md", THREE)
    assert await workshop.points(kb) == 0


async def test_a_full_queue_is_waited_for(workshop: Workshop) -> None:
    kb = await workshop.make()
    full = QueueFull(queued_tokens=9, limit=9, retry_after_seconds=2.5)
    workshop.embedder.before("embed", lambda call: full if call < 3 else None)
    assert (await workshop.ingest(kb, "a.md", THREE)).outcome == "new"
    assert workshop.naps == [2.5, 2.5, 2.5]


async def test_cut_off_chunks_are_counted(workshop: Workshop) -> None:
    kb = await workshop.make()
    result = await workshop.ingest(kb, "long", "word " * 300 + "\n\nshort")
    assert (result.truncated, result.tokens) == (1, 257)


UNACCEPTABLE: list[tuple[IncomingDocument, type[KbmeshError]]] = [
    (IncomingDocument(external_id="", content="x"), InvalidField),
    (IncomingDocument(external_id="x" * 1025, content="x"), InvalidField),
    (IncomingDocument(external_id="x\0", content="x"), InvalidField),
    (IncomingDocument(external_id="x", content=None), InvalidField),
    (IncomingDocument(external_id="x", content=""), DocumentEmpty),
    (IncomingDocument(external_id="x", content=" \n "), DocumentEmpty),
    (IncomingDocument(external_id="x", content=b"y" * 1_000_001), DocumentTooLarge),
    (IncomingDocument(external_id="x", content="x", metadata={str(i): "" for i in range(65)}), InvalidField),
    (IncomingDocument(external_id="x", content="x", uri="u" * 5000), InvalidField),
]


async def test_what_cannot_be_taken_in_says_why(workshop: Workshop) -> None:
    kb = await workshop.make()
    for document, error in UNACCEPTABLE:
        with pytest.raises(error):
            await workshop.ingester.ingest(kb, document)
    assert await workshop.points(kb) == 0


async def test_ret_27_a_chunk_that_comes_twice_is_one_point_and_one_hit(workshop: Workshop) -> None:
    """RET-27: two chunks of one document over characters 0 to 10."""
    cut = workshop.paragraphs.chunk

    async def twice(*arguments: Any, **named: Any) -> Chunked:
        chunked = await cut(*arguments, **named)
        (chunk,) = chunked.chunks
        return replace(chunked, chunks=(chunk, replace(chunk, index=1)))

    workshop.paragraphs.chunk = twice
    kb = await workshop.make()
    result = await workshop.ingest(kb, "d", "Pump one.")
    assert (result.outcome, result.chunks, result.embedded) == ("new", 1, 1)
    assert await workshop.points(kb) == 1
    assert await texts_found(workshop, kb, "pump") == ["Pump one."]


async def test_two_tenants_have_knowledge_bases_of_one_name(workshop: Workshop) -> None:
    ours = await workshop.make("notes", placement="shared")
    theirs = await workshop.make("notes", tenant="rival", placement="shared")
    assert ours.collection == (await workshop.make("more", placement="shared")).collection != theirs.collection
    await workshop.ingest(ours, "a", "Our secret valve.")
    await workshop.ingest(theirs, "a", "Their secret valve.")
    assert await texts_found(workshop, ours, "secret valve") == ["Our secret valve."]
    assert await texts_found(workshop, theirs, "secret valve") == ["Their secret valve."]

    await workshop.knowledge_bases.delete("rival", "notes")
    await workshop.sweep()
    assert (await workshop.points(ours), await workshop.points(theirs)) == (1, 0)


async def test_two_writers_of_one_document(workshop: Workshop) -> None:
    """Another process publishes between this one's reservation and its publication."""
    kb = await workshop.make()
    other = Workshop(
        catalog=workshop.catalog,
        store=workshop.store,
        chunker=workshop.chunker,
        embedder=workshop.embedder,
        words=workshop.words,
        paragraphs=workshop.paragraphs,
        clock=workshop.clock,
    )

    async def overtake(call: int) -> None:
        if call == 0:
            await other.ingest(kb, "a.md", "The valve is blue.")

    workshop.store.after("upsert", overtake)
    assert (await workshop.ingest(kb, "a.md", "The valve is red.")).outcome == "changed"
    assert await texts_found(workshop, kb, "valve") == ["The valve is red."]
    assert workshop.words.texts.count("The valve is red.") == 1, "what was embedded once is written again"
    await workshop.sweep()
    assert await workshop.points(kb) == 1


async def test_two_writers_of_the_same_version(workshop: Workshop) -> None:
    kb = await workshop.make()
    results = await asyncio.gather(*(workshop.ingest(kb, "a.md", THREE) for _ in range(5)))
    assert sorted(result.outcome for result in results) == ["new", "unchanged", "unchanged", "unchanged", "unchanged"]
    assert len(workshop.words.texts) == 3
