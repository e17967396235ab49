"""Two processes sync the same folder at once, and retry: of each document one version is there, and it is whole."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.stores.port import Scope, SearchQuery
from kbmesh_rpc.errors import DependencyUnavailable, DocumentShrunk
from retriever.mesh_fakes import Faulty
from retriever.workshop import Workshop


def version(number: int, chunks: int = 5) -> str:
    return "\n\n".join(f"everlasting version v{number}x part {part}" for part in range(chunks))


def another_process(workshop: Workshop, tmp_path: Path) -> tuple[SqlCatalog, Ingester]:
    """It shares database, store and services, and no lock."""
    catalog = SqlCatalog(f"sqlite:///{tmp_path / 'catalog.db'}", now=workshop.clock)
    return catalog, Ingester(
        catalog, workshop.store, workshop.chunker, workshop.embedder, max_document_bytes=1_000_000, now=workshop.clock
    )


async def texts_found(workshop: Workshop, knowledge_base: KnowledgeBase) -> list[str]:
    current = await workshop.catalog.get_knowledge_base(knowledge_base.tenant, knowledge_base.name)
    found = await workshop.store.search(
        SearchQuery(
            collection=current.collection,
            scope=Scope(tenant=current.tenant, knowledge_base_id=current.id),
            dense=None,
            sparse=encode_query("everlasting"),
            limit=500,
        )
    )
    pairs = [(UUID(hit.payload["document_id"]), hit.payload["generation"]) for hit in found.keyword]
    valid = await workshop.catalog.valid_documents({current.id: current.generation}, pairs)
    return sorted(hit.payload["text"] for hit, pair in zip(found.keyword, pairs, strict=True) if pair in valid)


async def ingest(ingester: Ingester, knowledge_base: KnowledgeBase, text: str) -> IngestResult:
    return await ingester.ingest(knowledge_base, IncomingDocument(external_id="a.md", content=text))


async def test_two_writers_leave_one_whole_version(workshop: Workshop, tmp_path: Path) -> None:
    """They write different versions again and again; whoever publishes last wins, and nobody's work is mixed in."""
    kb = await workshop.make()
    catalog, other = another_process(workshop, tmp_path)

    async def write(ingester: Ingester, numbers: range) -> None:
        for number in numbers:
            assert (await ingest(ingester, kb, version(number))).outcome in ("new", "changed")
            texts = await texts_found(workshop, kb)
            assert len(texts) == 5
            assert len({text.split()[2] for text in texts}) == 1, "one version, whole"

    async with asyncio.TaskGroup() as group:
        group.create_task(write(workshop.ingester, range(0, 20, 2)))
        group.create_task(write(other, range(1, 20, 2)))

    found = await texts_found(workshop, kb)
    assert found in (sorted(version(18).split("\n\n")), sorted(version(19).split("\n\n")))
    await workshop.sweep()
    assert await workshop.points(kb) == 5, "what lost is gone"
    now = await workshop.catalog.get_knowledge_base("default", "handbook")
    assert (now.document_count, now.chunk_count) == (1, 5)
    await catalog.close()


async def test_the_last_to_publish_wins(workshop: Workshop, tmp_path: Path) -> None:
    """The slow writer began first and was overtaken: its compare-and-set fails, and it writes again, on top."""
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)
    await ingest(fast, kb, version(0))

    async def overtake(call: int) -> None:
        if call == 0:
            await ingest(fast, kb, version(2))

    workshop.catalog.before("publish", overtake)
    embedded = len(workshop.words.texts)
    slow = await ingest(workshop.ingester, kb, version(1))
    assert (slow.outcome, slow.chunks) == ("changed", 5)
    assert await texts_found(workshop, kb) == sorted(version(1).split("\n\n"))
    assert len(workshop.words.texts) - embedded == 10, "each version was embedded once"
    await workshop.sweep()
    assert await workshop.points(kb) == 5
    await catalog.close()


async def test_a_slow_writer_is_not_overtaken_for_ever(workshop: Workshop, tmp_path: Path) -> None:
    """A fast one publishes each time the slow one is about to: what is written goes on top, and is written once."""
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)
    await ingest(fast, kb, version(0))

    async def overtake(call: int) -> None:
        if call < 30:
            await ingest(fast, kb, version(100 + call))

    workshop.catalog.before("publish", overtake)
    upserts = workshop.store.calls.get("upsert", 0)
    slow = await ingest(workshop.ingester, kb, version(1))
    assert (slow.outcome, slow.chunks) == ("changed", 5)
    assert workshop.store.calls["upsert"] - upserts == 31, "30 of the fast one, and one of the slow one"
    assert await texts_found(workshop, kb) == sorted(version(1).split("\n\n"))
    await workshop.sweep()
    assert await workshop.points(kb) == 5
    now = await workshop.catalog.get_knowledge_base("default", "handbook")
    assert (now.document_count, now.chunk_count) == (1, 5)
    assert (await ingest(fast, kb, version(2))).outcome == "changed", "numbers go on"
    assert await texts_found(workshop, kb) == sorted(version(2).split("\n\n"))
    await catalog.close()


async def test_new_metadata_are_not_overtaken_for_ever(workshop: Workshop, tmp_path: Path) -> None:
    """The other one gives other metadata to the same content, again and again."""
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)
    await ingest(fast, kb, version(0))

    async def overtake(call: int) -> None:
        if call < 30:
            other = IncomingDocument(external_id="a.md", content=version(0), metadata={"turn": str(call)})
            await fast.ingest(kb, other)

    workshop.catalog.before("publish", overtake)
    document = IncomingDocument(external_id="a.md", content=version(0), metadata={"team": "red"})
    assert (await workshop.ingester.ingest(kb, document)).outcome == "changed"
    assert (await workshop.catalog.get_document(kb.id, "a.md")).metadata == {"team": "red"}
    assert len(workshop.words.texts) == 5, "nothing was embedded again"
    await workshop.sweep()
    assert await workshop.points(kb) == 5
    assert len(await texts_found(workshop, kb)) == 5
    await catalog.close()


async def test_an_overtaken_writer_still_asks_whether_a_read_has_shrunk(workshop: Workshop, tmp_path: Path) -> None:
    """The version that came meanwhile is long, and what the slow writer read is next to nothing."""
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)

    async def overtake(call: int) -> None:
        if call == 0:
            await ingest(fast, kb, version(1, chunks=50))

    workshop.catalog.before("publish", overtake)
    with pytest.raises(DocumentShrunk):
        await ingest(workshop.ingester, kb, version(2, chunks=1))
    assert len(await texts_found(workshop, kb)) == 50
    await workshop.sweep()
    assert await workshop.points(kb) == 50
    await catalog.close()


async def test_two_writers_of_the_same_version_write_it_once(workshop: Workshop, tmp_path: Path) -> None:
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)

    async def overtake(call: int) -> None:
        if call == 0:
            await ingest(fast, kb, version(1))

    workshop.catalog.before("publish", overtake)
    assert (await ingest(workshop.ingester, kb, version(1))).outcome == "unchanged"
    document = await workshop.catalog.get_document(kb.id, "a.md")
    await workshop.sweep()
    assert (await workshop.points(kb), document.chunk_count) == (5, 5)
    await catalog.close()


async def test_metadata_and_content_of_two_writers_are_not_mixed(workshop: Workshop, tmp_path: Path) -> None:
    """One changes the metadata while the other replaces the content: the copy must not bring the old content back."""
    kb = await workshop.make()
    catalog, fast = another_process(workshop, tmp_path)
    await ingest(fast, kb, version(0))

    async def overtake(call: int) -> None:
        if call == 0:
            await ingest(fast, kb, version(2))

    workshop.catalog.before("publish", overtake)
    document = IncomingDocument(external_id="a.md", content=version(0), metadata={"team": "red"})
    result = await workshop.ingester.ingest(kb, document)
    assert result.outcome == "changed"
    assert await texts_found(workshop, kb) == sorted(version(0).split("\n\n")), "it published last, with its content"
    assert (await workshop.catalog.get_document(kb.id, "a.md")).metadata == {"team": "red"}
    await workshop.sweep()
    assert await workshop.points(kb) == 5
    await catalog.close()


async def test_a_retry_after_a_lost_answer_changes_nothing(workshop: Workshop) -> None:
    """The version was published, and the caller never heard."""
    kb = await workshop.make()
    workshop.catalog.after("publish", lambda call: DependencyUnavailable("catalog", "lost") if call == 0 else None)
    try:
        await ingest(workshop.ingester, kb, version(1))
    except DependencyUnavailable:
        pass
    else:
        raise AssertionError("the answer was not lost")
    again = await ingest(workshop.ingester, kb, version(1))
    assert (again.outcome, again.chunks, again.embedded) == ("unchanged", 5, 0)
    await workshop.sweep()
    assert await workshop.points(kb) == 5
    assert len(await texts_found(workshop, kb)) == 5


async def test_retries_over_a_flapping_store_end_clean(workshop: Workshop) -> None:
    kb = await workshop.make()
    faulty: Faulty = workshop.store
    faulty.after("upsert", lambda call: DependencyUnavailable("qdrant", "flaps") if call % 3 != 2 else None)
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append((await ingest(workshop.ingester, kb, version(1))).outcome)
        except DependencyUnavailable:
            outcomes.append("failed")
    assert outcomes == ["failed", "failed", "new", "unchanged", "unchanged", "unchanged"]
    await workshop.sweep()
    assert await workshop.points(kb) == 5
