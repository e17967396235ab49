"""What every vector store must do, on the real engine behind kbmesh-edge."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import uuid4

import edge_process
import numpy as np
import pytest
from kbmesh_retriever.stores.port import (
    Condition,
    Hit,
    Point,
    PointFilter,
    Scope,
    SearchQuery,
    SearchResult,
    VectorStore,
)
from kbmesh_retriever.stores.qdrant import QdrantStore
from store_points import DIMENSION, chunk, direction, document, names, scope, words


@pytest.fixture(scope="module")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with edge_process.edge_process(tmp_path_factory.mktemp("store") / "data") as url:
        yield url


@pytest.fixture
async def store(edge_url: str) -> AsyncIterator[VectorStore]:
    store = QdrantStore.connect(edge_url)
    yield store
    await store.close()


@pytest.fixture
async def collection(store: VectorStore) -> str:
    name = f"kb-{uuid4()}"
    await store.ensure_collection(name, dimension=DIMENSION)
    return name


HANDBOOK = scope("acme", "handbook")


async def search(
    store: VectorStore, collection: str, of: Scope, text: str = "report", **options: object
) -> SearchResult:
    query = SearchQuery(collection=collection, scope=of, dense=direction(1.0), sparse=words(text), limit=10)
    return await store.search(replace(query, **options))


async def test_a_chunk_comes_back_whole(store: VectorStore, collection: str) -> None:
    point = chunk(
        HANDBOOK,
        "leave.md",
        "Sick leave – 病気休暇 🎈",
        dense=direction(0.6, 0.8),
        metadata={"price": "12.5", "a.b": "c"},
    )
    await store.upsert(collection, [point])

    found = await search(store, collection, HANDBOOK, "leave")
    assert found.dense == (Hit(id=point.id, score=pytest.approx(0.6), payload=point.payload),)
    assert [hit.id for hit in found.keyword] == [point.id]
    assert found.keyword[0].payload == point.payload


async def test_more_than_one_batch_is_written(store: VectorStore, collection: str) -> None:
    points = [chunk(HANDBOOK, f"{number}.md", "report", index=number) for number in range(250)]
    await store.upsert(collection, points)
    await store.upsert(collection, points)
    assert await store.count(collection, HANDBOOK) == 250
    await store.upsert(collection, [])


async def test_both_lists_are_best_first_and_no_longer_than_asked(store: VectorStore, collection: str) -> None:
    await store.upsert(
        collection,
        [
            chunk(HANDBOOK, "far", "alpha beta gamma", dense=direction(1.0, 2.0)),
            chunk(HANDBOOK, "near", "delta", dense=direction(1.0, 0.1)),
            chunk(HANDBOOK, "middle", "alpha beta", dense=direction(1.0, 1.0)),
            chunk(HANDBOOK, "one", "alpha", dense=direction(1.0, 3.0)),
        ],
    )
    found = await search(store, collection, HANDBOOK, "alpha beta gamma")
    assert names(found.dense) == ["near", "middle", "far", "one"]
    assert names(found.keyword) == ["far", "middle", "one"]
    assert all(hit.score > 0 for hit in found.keyword)

    found = await search(store, collection, HANDBOOK, "alpha beta gamma", limit=2)
    assert names(found.dense) == ["near", "middle"]
    assert names(found.keyword) == ["far", "middle"]


async def test_only_the_lists_that_are_asked_for_are_searched(store: VectorStore, collection: str) -> None:
    await store.upsert(collection, [chunk(HANDBOOK, "a", "report")])
    vectors_only = await search(store, collection, HANDBOOK, sparse=None)
    assert (names(vectors_only.dense), vectors_only.keyword) == (["a"], ())
    words_only = await search(store, collection, HANDBOOK, dense=None)
    assert (words_only.dense, names(words_only.keyword)) == ((), ["a"])
    no_words = await search(store, collection, HANDBOOK, text="")
    assert (names(no_words.dense), no_words.keyword) == (["a"], ())
    assert await search(store, collection, HANDBOOK, dense=None, sparse=None) == SearchResult(dense=(), keyword=())


async def test_equal_scores_are_ordered_by_id(store: VectorStore, collection: str) -> None:
    points = [chunk(HANDBOOK, f"{number}.md", "report", index=number) for number in range(8)]
    await store.upsert(collection, points[4:])
    await store.upsert(collection, points[:4])
    found = await search(store, collection, HANDBOOK)
    expected = sorted(point.id for point in points)
    assert [hit.id for hit in found.dense] == expected
    assert [hit.id for hit in found.keyword] == expected


async def test_the_minimum_dense_score_is_inclusive_and_leaves_words_alone(store: VectorStore, collection: str) -> None:
    await store.upsert(
        collection,
        [
            chunk(HANDBOOK, "above", "report", dense=direction(0.6, 0.8)),
            chunk(HANDBOOK, "below", "report", dense=direction(0.28, 0.96)),
            chunk(HANDBOOK, "opposite", "report", dense=direction(-1.0)),
        ],
    )
    exact = (await search(store, collection, HANDBOOK)).dense[0].score
    found = await search(store, collection, HANDBOOK, min_dense_score=exact)
    assert names(found.dense) == ["above"]
    assert sorted(names(found.keyword)) == ["above", "below", "opposite"]
    assert names((await search(store, collection, HANDBOOK, min_dense_score=0.2)).dense) == ["above", "below"]
    assert names((await search(store, collection, HANDBOOK)).dense) == ["above", "below", "opposite"]


async def test_rare_words_outweigh_common_ones(store: VectorStore, collection: str) -> None:
    """RET-23"""
    common = [chunk(HANDBOOK, f"weekly-{number}", "report status weekly") for number in range(50)]
    await store.upsert(collection, [*common, chunk(HANDBOOK, "incident", "report kraken incident")])
    found = await search(store, collection, HANDBOOK, "report kraken")
    assert names(found.keyword)[0] == "incident"
    assert found.keyword[0].score > 5 * found.keyword[1].score


async def test_a_shared_collection_shows_each_its_own(store: VectorStore, collection: str) -> None:
    """Same text, same vectors, same document ids: only tenant and knowledge base differ."""
    scopes = [scope(tenant, base) for tenant in ("acme", "globex") for base in ("handbook", "wiki")]
    strangers = [
        Scope(tenant="globex", knowledge_base_id=scopes[0].knowledge_base_id),
        Scope(tenant="acme", knowledge_base_id=scopes[2].knowledge_base_id),
        Scope(tenant="", knowledge_base_id=scopes[0].knowledge_base_id),
    ]
    points = {of: [chunk(of, f"{number}.md", "report", index=number) for number in range(5)] for of in scopes}
    for of in scopes:
        await store.upsert(collection, points[of])

    for of in scopes:
        found = await search(store, collection, of)
        own = sorted(point.id for point in points[of])
        assert [hit.id for hit in found.dense] == own
        assert [hit.id for hit in found.keyword] == own
        assert await store.count(collection, of) == 5
        assert await store.count(collection, of, document_id=document("3.md")) == 1
    for stranger in strangers:
        assert await search(store, collection, stranger) == SearchResult(dense=(), keyword=())
        assert await store.count(collection, stranger) == 0
        await store.delete_knowledge_base(collection, stranger, drop_collection=False)
        await store.delete_generations(collection, stranger, document("3.md"), [1])

    await store.delete_generations(collection, scopes[0], document("3.md"), [1])
    assert [await store.count(collection, of) for of in scopes] == [4, 5, 5, 5]
    await store.delete_knowledge_base(collection, scopes[0], drop_collection=False)
    assert [await store.count(collection, of) for of in scopes] == [0, 5, 5, 5]


SOURCES = {
    "mail": {"source_type": "email", "media_type": "message/rfc822", "metadata": {"year": "2024", "team": "ops"}},
    "page": {"source_type": "web", "media_type": "text/html", "metadata": {"year": "2025.5", "team": "sales"}},
    "code": {"source_type": "file", "strategy": "code", "metadata": {"year": "-3", "a.b": "x", "c d": "y"}},
    "note": {"source_type": "file", "metadata": {"year": "MMXX", "team": "ops"}},
}
FILTERS: dict[str, tuple[PointFilter, set[str]]] = {
    "nothing": (PointFilter(), {"mail", "page", "code", "note"}),
    "one value": (PointFilter(all=(Condition(field="source_type", any_of=("email",)),)), {"mail"}),
    "two values": (PointFilter(all=(Condition(field="source_type", any_of=("email", "web")),)), {"mail", "page"}),
    "all": (
        PointFilter(
            all=(Condition(field="source_type", any_of=("file",)), Condition(field="strategy", any_of=("code",)))
        ),
        {"code"},
    ),
    "any": (
        PointFilter(
            any=(Condition(field="source_type", any_of=("web",)), Condition(field="metadata.team", any_of=("ops",)))
        ),
        {"mail", "page", "note"},
    ),
    "none": (
        PointFilter(
            none=(Condition(field="source_type", any_of=("web",)), Condition(field="metadata.team", any_of=("ops",)))
        ),
        {"code"},
    ),
    "all, any and none": (
        PointFilter(
            all=(Condition(field="source_type", any_of=("file", "web")),),
            any=(Condition(field="metadata.team", any_of=("ops",)), Condition(field="metadata.year", gte=0)),
            none=(Condition(field="media_type", any_of=("text/html",)),),
        ),
        {"note"},
    ),
    "document": (PointFilter(all=(Condition(field="document_id", any_of=(str(document("page")),)),)), {"page"}),
    "external id": (PointFilter(all=(Condition(field="external_id", any_of=("note", "gone")),)), {"note"}),
    "name with a dot": (PointFilter(all=(Condition(field="metadata.a.b", any_of=("x",)),)), {"code"}),
    "name with a space": (PointFilter(all=(Condition(field="metadata.c d", any_of=("y",)),)), {"code"}),
    "unknown name": (PointFilter(all=(Condition(field="metadata.none", any_of=("x",)),)), set()),
    "range": (PointFilter(all=(Condition(field="metadata.year", gte=2024, lte=2025.5),)), {"mail", "page"}),
    "half a range": (PointFilter(all=(Condition(field="metadata.year", lte=0),)), {"code"}),
    "none in range": (PointFilter(none=(Condition(field="metadata.year", gte=2025),)), {"mail", "code", "note"}),
}


async def test_filters_keep_what_they_say(store: VectorStore, collection: str) -> None:
    for of in (HANDBOOK, scope("globex", "handbook")):
        await store.upsert(collection, [chunk(of, name, "report", **payload) for name, payload in SOURCES.items()])
    found = {}
    for case, (wanted, _) in FILTERS.items():
        result = await search(store, collection, HANDBOOK, filter=wanted)
        assert {hit.payload["tenant"] for hit in (*result.dense, *result.keyword)} <= {"acme"}
        assert set(names(result.dense)) == set(names(result.keyword))
        found[case] = set(names(result.dense))
    assert found == {case: expected for case, (_, expected) in FILTERS.items()}


async def test_generations_of_one_document_are_deleted(store: VectorStore, collection: str) -> None:
    def version(name: str, generation: int) -> list[Point]:
        return [chunk(HANDBOOK, name, "report", generation=generation, index=index) for index in range(3)]

    for generation in (1, 2, 3):
        await store.upsert(collection, version("a.md", generation))
    await store.upsert(collection, version("b.md", 1))

    await store.delete_generations(collection, HANDBOOK, document("a.md"), [])
    assert await store.count(collection, HANDBOOK, document_id=document("a.md")) == 9
    await store.delete_generations(collection, HANDBOOK, document("a.md"), {1, 2})
    found = await search(store, collection, HANDBOOK)
    left = sorted((hit.payload["external_id"], hit.payload["generation"]) for hit in found.dense)
    assert left == [("a.md", 3)] * 3 + [("b.md", 1)] * 3


async def test_a_dropped_collection_can_be_made_again(store: VectorStore, collection: str) -> None:
    await store.upsert(collection, [chunk(HANDBOOK, "a", "report")])
    await store.delete_knowledge_base(collection, HANDBOOK, drop_collection=True)
    await store.delete_knowledge_base(collection, HANDBOOK, drop_collection=True)
    assert await search(store, collection, HANDBOOK) == SearchResult(dense=(), keyword=())
    await store.ensure_collection(collection, dimension=DIMENSION + 1)
    assert await store.count(collection, HANDBOOK) == 0


async def test_a_collection_that_does_not_exist_holds_nothing(store: VectorStore) -> None:
    assert await search(store, "absent", HANDBOOK) == SearchResult(dense=(), keyword=())
    assert await store.count("absent", HANDBOOK) == 0
    await store.delete_generations("absent", HANDBOOK, document("a"), [1])
    await store.delete_knowledge_base("absent", HANDBOOK, drop_collection=False)


async def test_many_may_ensure_one_collection_at_once(edge_url: str, store: VectorStore) -> None:
    name = f"kb-{uuid4()}"
    stores = [QdrantStore.connect(edge_url) for _ in range(4)]
    await asyncio.gather(*(each.ensure_collection(name, dimension=DIMENSION) for each in [*stores, *stores]))
    for each in stores:
        await each.close()
    await store.upsert(name, [chunk(HANDBOOK, "a", "report")])
    assert names((await search(store, name, HANDBOOK)).keyword) == ["a"]


async def test_ensuring_again_keeps_what_is_there(store: VectorStore, collection: str) -> None:
    await store.upsert(collection, [chunk(HANDBOOK, "a", "report")])
    await store.ensure_collection(collection, dimension=DIMENSION)
    assert await store.count(collection, HANDBOOK) == 1


async def test_float_vectors_of_other_layouts_are_stored(store: VectorStore, collection: str) -> None:
    """A row of a transposed or strided matrix is a vector like any other."""
    matrix = np.asfortranarray(np.stack([direction(1.0), direction(0.0, 1.0)]))
    await store.upsert(collection, [chunk(HANDBOOK, "a", "report", dense=matrix[0])])
    assert (await search(store, collection, HANDBOOK)).dense[0].score == pytest.approx(1.0)


async def test_the_store_is_healthy(store: VectorStore) -> None:
    await store.health()
