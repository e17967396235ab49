"""What the catalog keeps of who may read, on both databases: it has the last word."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from kbmesh_retriever.catalog.database import Database, migrate
from kbmesh_retriever.catalog.port import Document, Reservation, narrows
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_rpc.errors import KnowledgeBaseNotFound
from retriever.catalog_values import BOTH_DATABASES, described, knowledge_base
from sqlalchemy import text


async def publish(catalog: SqlCatalog, kb: UUID, principals: Sequence[str], external_id: str = "a") -> Document:
    reservation = await catalog.reserve_generation(kb, external_id)
    document = replace(described(reservation, external_id=external_id), principals=tuple(principals), tags=("x", "é"))
    await catalog.publish(reservation, document)
    return document


async def who_of(catalog: SqlCatalog, kb: UUID, document: Document) -> dict[str, bool]:
    """Whether each of three may read that version, by somebody whose search begins now."""
    return await who_as_of(catalog, kb, document, (await catalog.get_knowledge_base("default", "kb")).generation)


async def who_as_of(catalog: SqlCatalog, kb: UUID, document: Document, counter: int) -> dict[str, bool]:
    pair = (document.id, document.generation)
    found = (await catalog.valid_documents({kb: counter}, [pair])).get(pair)
    return {name: found is not None and found.is_for([name]) for name in ("ann", "bob", "eve")}


@BOTH_DATABASES
async def test_what_is_said_of_a_document_is_kept(catalog: SqlCatalog) -> None:
    kb = replace(knowledge_base(), readers=("ann", "группа"), distance="dot")
    await catalog.create_knowledge_base(kb)
    found = await catalog.get_knowledge_base("default", "kb")
    assert (found.readers, found.distance) == (("ann", "группа"), "dot")
    sent = await publish(catalog, kb.id, ["ann", "bob"])
    known = await catalog.get_document(kb.id, "a")
    assert (known.principals, known.tags, known.narrowed_to) == (("ann", "bob"), ("x", "é"), ())
    assert await who_of(catalog, kb.id, sent) == {"ann": True, "bob": True, "eve": False}


@BOTH_DATABASES
async def test_published_together_as_published_alone(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    reserved: Sequence[Reservation] = await catalog.reserve_generations(kb.id, ["a", "b"])
    documents = [
        replace(described(one, external_id=name), principals=(name,), tags=(name,))
        for one, name in zip(reserved, "ab", strict=True)
    ]
    assert await catalog.publish_together(kb.id, list(zip(reserved, documents, strict=True))) == [None, None]
    for name in "ab":
        known = await catalog.get_document(kb.id, name)
        assert (known.principals, known.tags) == ((name,), (name,))


@BOTH_DATABASES
async def test_narrowing_is_at_once_and_for_every_version(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    first = await publish(catalog, kb.id, ["ann", "bob"])
    began = (await catalog.get_knowledge_base("default", "kb")).generation
    second = await publish(catalog, kb.id, ["ann", "bob"])
    before = (await catalog.get_knowledge_base("default", "kb")).generation

    await catalog.narrow(second, ["ann", "eve"], source_fingerprint="s" * 64)

    assert (await catalog.get_knowledge_base("default", "kb")).generation > before
    # Who is added has to wait until the points say so; who searches in the old version loses it as well.
    assert await who_of(catalog, kb.id, second) == {"ann": True, "bob": False, "eve": False}
    assert await who_as_of(catalog, kb.id, first, began) == {"ann": True, "bob": False, "eve": False}
    known = await catalog.get_document(kb.id, "a")
    assert (known.principals, known.narrowed_to, known.source_fingerprint) == (
        ("ann", "bob"),
        ("ann", "eve"),
        "s" * 64,
    )

    third = await publish(catalog, kb.id, ["ann", "eve"])
    assert await who_of(catalog, kb.id, third) == {"ann": True, "bob": False, "eve": True}


@BOTH_DATABASES
async def test_what_is_described_anew_is_narrowed_no_more(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    document = await publish(catalog, kb.id, [])
    await catalog.narrow(document, ["ann"], source_fingerprint="")
    assert await who_of(catalog, kb.id, document) == {"ann": True, "bob": False, "eve": False}
    await catalog.redescribe(document)
    assert await who_of(catalog, kb.id, document) == {"ann": True, "bob": True, "eve": True}


@BOTH_DATABASES
async def test_a_rebuild_is_narrowed_with_it(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    document = await publish(catalog, kb.id, ["ann", "bob"])
    rebuild = replace(kb, id=uuid4(), known_as=kb.id, collection="other")
    await catalog.prepare_knowledge_base(rebuild)
    await catalog.create_rebuild(rebuild, of=kb)
    there = await publish(catalog, rebuild.id, ["ann", "bob"])
    await publish(catalog, rebuild.id, ["eve"], external_id="another")
    await catalog.narrow(document, ["ann"], source_fingerprint="s" * 64)
    await catalog.finish_rebuild(kb, drop_outstanding=True)
    assert await who_of(catalog, rebuild.id, there) == {"ann": True, "bob": False, "eve": False}
    assert (await catalog.get_document(rebuild.id, "another")).narrowed_to == ()


@BOTH_DATABASES
async def test_narrowing_in_what_is_gone_says_so(catalog: SqlCatalog) -> None:
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    document = await publish(catalog, kb.id, [])
    await catalog.delete_knowledge_base("default", "kb")
    with pytest.raises(KnowledgeBaseNotFound):
        await catalog.narrow(document, ["ann"], source_fingerprint="")


@BOTH_DATABASES
async def test_what_was_kept_before_is_for_everybody(catalog_url: str) -> None:
    kept, document = UUID(int=4815), UUID(int=4816)
    database = Database(catalog_url)
    async with database.writing() as connection:
        await connection.run_sync(migrate, "0004")
        shown = {"kb": str(kept), "document": str(document)}
        if connection.dialect.name == "sqlite":
            shown = {"kb": kept.hex, "document": document.hex}
        for statement in EARLIER:
            await connection.execute(text(statement), shown)
    await database.close()
    catalog = SqlCatalog(catalog_url)
    await catalog.open()
    found = await catalog.get_knowledge_base("default", "kb")
    assert (found.readers, found.distance) == ((), "cosine")
    known = await catalog.get_document(kept, "a")
    assert (known.principals, known.narrowed_to, known.tags) == ((), (), ())
    assert await who_of(catalog, kept, known) == {"ann": True, "bob": True, "eve": True}
    await catalog.close()


EARLIER = (
    """INSERT INTO knowledge_bases (id, public_id, tenant, name, description, chunking, embedding_model,
    model_fingerprint, dimension, embedding_provider, vector_store, placement, collection, vector_top_k,
    min_vector_score, weight, generation, document_count, chunk_count, created_at, updated_at, state, state_since)
    VALUES (:kb, :kb, 'default', 'kb', '', '{}', 'm', 'f', 4, 'onnx', 'qdrant', 'dedicated', 'kb-old', 20, 0.2, 1, 1,
    1, 1, '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'live', '2026-01-01 00:00:00')""",
    """INSERT INTO documents (id, knowledge_base_id, external_id, current_generation, last_generation)
    VALUES (:document, :kb, 'a', 1, 1)""",
    """INSERT INTO generations (document_id, number, knowledge_base_id, state, owner, published_counter, state_since,
    title, uri, source_type, media_type, author, ingested_at, content_sha256, fingerprint, description_fingerprint,
    chunk_count, strategy, metadata)
    VALUES (:document, 1, :kb, 'current', 'o', 1, '2026-01-01 00:00:00', 't', '', 'file', 'text/plain', '',
    '2026-01-01 00:00:00', '', '', '', 1, 'fixed', '{}')""",
)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([], [], False),
        ([], ["a"], True),
        (["a"], [], False),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], True),
        (["a"], ["b"], True),
        (["a", "b"], ["b", "a"], False),
    ],
)
def test_what_narrows(before: list[str], now: list[str], expected: bool) -> None:
    assert narrows(before, now) is expected
