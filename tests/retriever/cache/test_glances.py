"""What is read in one step, and remembered, is what the catalog holds at that moment, whoever wrote it."""

from uuid import uuid4

from kbmesh_retriever.catalog.port import KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.catalog.sql import SqlCatalog
from retriever.workshop import START, Workshop
from sqlalchemy import event


def knowledge_base(name: str) -> KnowledgeBase:
    return KnowledgeBase(
        id=uuid4(),
        tenant="acme",
        name=name,
        embedding_model="words",
        model_fingerprint="f",
        dimension=3,
        collection=f"kb-{name}",
        created_at=START,
        updated_at=START,
    )


async def test_what_another_process_writes_is_seen_by_the_next_read(catalog_url: str) -> None:
    mine, other = SqlCatalog(catalog_url), SqlCatalog(catalog_url)
    await mine.open()
    await other.open()
    assert await mine.resolve_knowledge_bases("acme", ["a", "b"]) == {}
    await other.create_knowledge_base(knowledge_base("a"))
    for number in range(20):
        assert set(await mine.resolve_knowledge_bases("acme", ["a", "b"])) == {"a"}
        changed = RetrievalDefaults(vector_top_k=number + 1)
        writer = (mine, other)[number % 2]
        await writer.update_knowledge_base("acme", "a", description=None, retrieval=changed)
        for catalog in (mine, other):
            found = await catalog.resolve_knowledge_bases("acme", ["a", "b"])
            assert found["a"].retrieval.vector_top_k == number + 1
    await other.delete_knowledge_base("acme", "a")
    assert await mine.resolve_knowledge_bases("acme", ["a", "b"]) == {}
    await mine.close()
    await other.close()


async def test_what_was_not_written_is_not_read_again(catalog_url: str) -> None:
    catalog = SqlCatalog(catalog_url)
    await catalog.open()
    await catalog.create_knowledge_base(knowledge_base("a"))
    glances = catalog._database._glances
    assert glances is not None
    read: list[str] = []
    event.listen(glances.engine, "before_cursor_execute", lambda *about: read.append(about[2]))
    for _ in range(5):
        assert set(await catalog.resolve_knowledge_bases("acme", ["a"])) == {"a"}
        assert await catalog.resolve_knowledge_bases("other", ["a"]) == {}, "another tenant's read is another"
    assert sum("SELECT" in statement for statement in read) == 2
    await catalog.create_knowledge_base(knowledge_base("b"))
    assert set(await catalog.resolve_knowledge_bases("acme", ["a", "b"])) == {"a", "b"}
    assert sum("SELECT" in statement for statement in read) == 3
    await catalog.close()


async def test_each_change_of_a_document_counts(workshop: Workshop) -> None:
    """The counter that names of kept answers are made of."""
    made = await workshop.make()
    seen: list[int] = []

    async def look() -> None:
        found = await workshop.catalog.resolve_knowledge_bases("default", ["handbook"])
        seen.append(found["handbook"].generation)

    await look()
    await workshop.ingest(made, "a", "One.")
    await look()
    await workshop.ingest(made, "a", "One.")
    await look()
    await workshop.ingest(made, "a", "Two.")
    await look()
    await workshop.ingest(made, "a", "Two.", uri="https://docs.example/a")
    await look()
    await workshop.ingest(made, "a", "Two.", metadata={"team": "ops"})
    await look()
    await workshop.ingest(made, "a", "Two.", principals=("ada",))
    await look()
    await workshop.catalog.delete_document(made.id, "a")
    await look()
    assert seen[1] == seen[2], "nothing changed"
    assert seen == sorted(seen)
    assert len(set(seen)) == len(seen) - 1
