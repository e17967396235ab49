"""What every vector store must do: Qdrant's engine behind kbmesh-edge, Pinecone's SDK against a server that speaks its
API, and the example of a store of one's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.util import find_spec
from uuid import uuid4

import edge_process
import numpy as np
import pytest
from kbmesh_retriever.stores.pinecone import PineconeStore
from kbmesh_retriever.stores.port import (
    ChunkRange,
    CollectionInfo,
    Condition,
    Distance,
    Hit,
    Point,
    PointFilter,
    Scope,
    SearchQuery,
    SearchResult,
    SparseVector,
    VectorStore,
)
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_rpc.errors import Conflict, InvalidField
from memory_store import MemoryStore
from pinecone_server import API_KEY, PineconeServer, pinecone_server
from store_points import DIMENSION, chunk, direction, document, names, scope, words

NewStore = Callable[[], VectorStore]
"""Connects once more to what is stored."""

PINECONE = pytest.param(
    "pinecone",
    marks=pytest.mark.skipif(find_spec("pinecone") is None, reason="kbmesh-retriever[pinecone] is not installed"),
)


@pytest.fixture(scope="module")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with edge_process.edge_process(tmp_path_factory.mktemp("store") / "data") as url:
        yield url


@pytest.fixture(scope="module")
def pinecone() -> Iterator[PineconeServer]:
    with pinecone_server() as server:
        server.lag = 1
        yield server


@pytest.fixture(params=["qdrant", PINECONE, "memory"])
async def new_store(request: pytest.FixtureRequest) -> AsyncIterator[NewStore]:
    async with AsyncExitStack() as opened:
        only = MemoryStore()

        def connect() -> VectorStore:
            store: VectorStore
            match request.param:
                case "qdrant":
                    store = QdrantStore.connect(request.getfixturevalue("edge_url"))
                case "pinecone":
                    store = PineconeStore.connect(API_KEY, host=request.getfixturevalue("pinecone").url)
                case _:
                    store = only
            opened.push_async_callback(store.close)
            return store

        yield connect


@pytest.fixture
def store(new_store: NewStore) -> VectorStore:
    return new_store()


@pytest.fixture
async def collection(store: VectorStore) -> str:
    name = f"kb-{uuid4()}"
    await store.ensure_collection(name, dimension=DIMENSION)
    return name


HANDBOOK = scope("acme", "handbook")
STRANGERS = (scope("globex", "handbook"), scope("acme", "wiki"))


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


async def test_a_point_that_is_written_again_is_replaced_whole(store: VectorStore, collection: str) -> None:
    """Its vectors, its words and its payload: what the new one does not have is gone."""
    old = chunk(HANDBOOK, "a.md", "alpha", dense=direction(1.0), metadata={"team": "ops"}, author="ann", tags=["red"])
    new = chunk(HANDBOOK, "a.md", "beta", dense=direction(0.0, 1.0), metadata={"year": "2024"})
    await store.upsert(collection, [old, chunk(HANDBOOK, "b.md", "gamma", dense=direction(0.6, 0.8))])
    await store.upsert(collection, [new])
    found = await search(store, collection, HANDBOOK, "alpha")
    assert (names(found.dense), found.keyword) == (["b.md", "a.md"], ())
    assert found.dense[1].payload == new.payload
    assert names((await search(store, collection, HANDBOOK, "beta")).keyword) == ["a.md"]
    for condition in (Condition(field="author", any_of=("ann",)), Condition(field="metadata.team", any_of=("ops",))):
        assert (await search(store, collection, HANDBOOK, filter=PointFilter(all=(condition,)))).dense == ()


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


async def test_a_word_counts_by_its_value_in_the_chunk_and_its_weight_in_the_query(
    store: VectorStore, collection: str
) -> None:
    def held(name: str, values: dict[int, float]) -> Point:
        sparse = SparseVector(indices=tuple(values), values=tuple(values.values()))
        return replace(chunk(HANDBOOK, name, ""), sparse=sparse)

    await store.upsert(collection, [held("little", {1: 0.5}), held("much", {1: 2.0}), held("other", {2: 1.9, 3: 1.0})])
    query = SparseVector(indices=(1, 2), values=(1.0, 1.0))
    found = (await search(store, collection, HANDBOOK, sparse=query)).keyword
    # The second word is in one of three chunks and the first in two: it is the rarer.
    assert names(found) == ["other", "much", "little"]
    assert found[1].score == pytest.approx(4 * found[2].score)
    for weight, order in ((10.0, ["much", "little", "other"]), (0.1, ["other", "much", "little"])):
        query = SparseVector(indices=(1, 2), values=(weight, 1.0))
        again = (await search(store, collection, HANDBOOK, sparse=query)).keyword
        assert names(again) == order
        assert {hit.id: hit.score for hit in again}[found[1].id] == pytest.approx(weight * found[1].score)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "dedicated"])
async def test_a_shared_collection_shows_each_its_own(store: VectorStore, shared: bool) -> None:
    """Same text, same vectors, same document ids: only tenant and knowledge base differ."""
    collection = f"kb-{uuid4()}"
    await store.ensure_collection(collection, dimension=DIMENSION, shared=shared)
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


SOURCES: dict[str, dict[str, object]] = {
    "mail": {
        "source_type": "email",
        "media_type": "message/rfc822",
        "metadata": {"year": "2024", "team": "ops"},
        "author": "ann",
        "chunk_type": "mail_header",
        "time": 1_700_000_000.5,
        "tags": ["red", "blue"],
    },
    "page": {
        "source_type": "web",
        "media_type": "text/html",
        "metadata": {"year": "2025.5", "team": "sales"},
        "author": "bob",
        "time": 1_800_000_000,
        "tags": ["blue"],
    },
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
    "chunk type": (PointFilter(all=(Condition(field="chunk_type", any_of=("mail_header", "x")),)), {"mail"}),
    "author": (PointFilter(all=(Condition(field="author", any_of=("ann", "eve")),)), {"mail"}),
    "one of several tags": (PointFilter(all=(Condition(field="tags", any_of=("red", "green")),)), {"mail"}),
    "none of the tags": (PointFilter(none=(Condition(field="tags", any_of=("red",)),)), {"page", "code", "note"}),
    "time": (PointFilter(all=(Condition(field="time", gte=1_700_000_000.5, lte=1_750_000_000),)), {"mail"}),
    "not in that time": (PointFilter(none=(Condition(field="time", gte=1_750_000_000),)), {"mail", "code", "note"}),
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


async def test_chunks_are_read_by_their_place(store: VectorStore, collection: str) -> None:
    def of(name: str, first: int, last: int, generation: int = 2) -> ChunkRange:
        return ChunkRange(document_id=document(name), generation=generation, first=first, last=last)

    async def read(
        scope_: Scope, *ranges: ChunkRange, principals: tuple[str, ...] | None = None
    ) -> list[tuple[str, int, int]]:
        found = await store.read_chunks(collection, scope_, ranges, principals=principals)
        assert {one.payload["tenant"] for one in found} <= {scope_.tenant}
        assert all(one.payload == written[one.id].payload for one in found)
        return sorted((one.payload["external_id"], one.payload["generation"], one.payload["index"]) for one in found)

    points = [
        chunk(of_, name, f"report {index}", generation=generation, index=index, **payload)
        for of_ in (HANDBOOK, scope("globex", "handbook"), scope("acme", "wiki"))
        for name, payload in (("a.md", {}), ("b.md", {"principals": ["ann"], "blank_before": "\n\n"}))
        for generation in (1, 2)
        for index in range(150 if name == "a.md" else 5)
    ]
    written = {point.id: point for point in points}
    await store.upsert(collection, points)

    assert await read(HANDBOOK, of("a.md", 3, 5)) == [("a.md", 2, 3), ("a.md", 2, 4), ("a.md", 2, 5)]
    assert await read(HANDBOOK, of("a.md", 148, 200)) == [("a.md", 2, 148), ("a.md", 2, 149)]
    two = await read(HANDBOOK, of("a.md", 1, 1), of("a.md", 1, 1, generation=1), of("b.md", 4, 9))
    assert two == [("a.md", 1, 1), ("a.md", 2, 1), ("b.md", 2, 4)]
    assert await read(HANDBOOK, of("a.md", 0, 2), of("a.md", 1, 3)) == [("a.md", 2, index) for index in range(4)]
    assert len(await read(HANDBOOK, of("a.md", 0, 149))) == 150
    assert await read(HANDBOOK) == []
    assert await read(HANDBOOK, of("c.md", 0, 9)) == []
    assert await read(scope("globex", "wiki"), of("a.md", 0, 9)) == []
    assert await read(HANDBOOK, of("a.md", 0, 0), of("b.md", 0, 0), principals=()) == [("a.md", 2, 0)]
    assert await read(HANDBOOK, of("b.md", 0, 0), principals=("eve",)) == []
    assert await read(HANDBOOK, of("b.md", 0, 0), principals=("eve", "ann")) == [("b.md", 2, 0)]
    assert await store.read_chunks("absent", HANDBOOK, [of("a.md", 0, 1)]) == []


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
    assert not await store.exists(collection)
    assert await store.info(collection) is None
    assert await search(store, collection, HANDBOOK) == SearchResult(dense=(), keyword=())
    await store.ensure_collection(collection, dimension=DIMENSION + 1)
    assert await store.count(collection, HANDBOOK) == 0


async def test_a_collection_that_does_not_exist_holds_nothing(store: VectorStore) -> None:
    assert await search(store, "absent", HANDBOOK) == SearchResult(dense=(), keyword=())
    assert await store.count("absent", HANDBOOK) == 0
    await store.delete_generations("absent", HANDBOOK, document("a"), [1])
    await store.delete_knowledge_base("absent", HANDBOOK, drop_collection=False)
    await store.update_payload("absent", HANDBOOK, document("a"), 1, {"tags": ["x"]})
    await store.delete_matching("absent", HANDBOOK, PointFilter(all=(Condition(field="source_type", any_of=("web",)),)))
    assert not await store.exists("absent")


async def test_many_may_ensure_one_collection_at_once(new_store: NewStore, store: VectorStore) -> None:
    name = f"kb-{uuid4()}"
    stores = [new_store() for _ in range(4)]
    await asyncio.gather(*(each.ensure_collection(name, dimension=DIMENSION) for each in [*stores, *stores]))
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


async def test_one_of_several_may_close_and_close_again(new_store: NewStore, store: VectorStore) -> None:
    one = new_store()
    await one.health()
    await one.close()
    await one.close()
    await store.health()


@pytest.mark.parametrize("distance", Distance)
async def test_nearer_is_better_by_every_distance(store: VectorStore, distance: Distance) -> None:
    name = f"kb-{uuid4()}"
    await store.ensure_collection(name, dimension=DIMENSION, distance=distance)
    await store.upsert(
        name,
        [
            chunk(HANDBOOK, "far", "alpha", dense=direction(1.0, 2.0)),
            chunk(HANDBOOK, "near", "alpha beta", dense=direction(1.0, 0.1)),
            chunk(HANDBOOK, "middle", "beta", dense=direction(3.0, 4.0)),
        ],
    )
    found = await search(store, name, HANDBOOK, "beta", distance=distance)
    assert names(found.dense) == ["near", "middle", "far"]
    # Of unit length all three are the cosine, so a threshold means the same.
    assert found.dense[1].score == pytest.approx(0.6, abs=1e-6)
    assert sorted(names(found.keyword)) == ["middle", "near"]
    found = await search(store, name, HANDBOOK, distance=distance, min_dense_score=found.dense[1].score)
    assert names(found.dense) == ["near", "middle"]


async def test_lengths_count_by_the_dot_product_alone(store: VectorStore) -> None:
    name = f"kb-{uuid4()}"
    await store.ensure_collection(name, dimension=DIMENSION, distance=Distance.DOT)
    await store.upsert(
        name,
        [
            chunk(HANDBOOK, "long", "x", dense=np.float32(10) * direction(1.0, 1.0)),
            chunk(HANDBOOK, "short", "x", dense=direction(1.0)),
        ],
    )
    assert names((await search(store, name, HANDBOOK, distance=Distance.DOT)).dense) == ["long", "short"]


async def test_a_collection_tells_what_it_is(store: VectorStore) -> None:
    name = f"kb-{uuid4()}"
    assert not await store.exists(name)
    assert await store.info(name) is None
    await store.ensure_collection(name, dimension=DIMENSION, distance=Distance.EUCLIDEAN, shared=True)
    assert await store.exists(name)
    for base in ("handbook", "wiki", "faq"):
        of = scope("acme", base)
        await store.upsert(name, [chunk(of, "a", "report"), chunk(of, "b", "report", index=1)])
    info = CollectionInfo(dimension=DIMENSION, distance=Distance.EUCLIDEAN, points=6, keywords=True)
    assert await store.info(name) == info

    for other in ({"dimension": DIMENSION + 1, "distance": Distance.EUCLIDEAN}, {"dimension": DIMENSION}):
        with pytest.raises(Conflict):
            await store.ensure_collection(name, **other)
    assert await store.info(name) == info


async def test_a_point_without_a_vector_is_found_by_its_words_alone(store: VectorStore, collection: str) -> None:
    point = replace(chunk(HANDBOOK, "signs", "zeta"), dense=None)
    await store.upsert(collection, [point, chunk(HANDBOOK, "text", "report", dense=direction(0.0, 1.0))])
    found = await search(store, collection, HANDBOOK, "zeta")
    assert (names(found.dense), names(found.keyword)) == (["text"], ["signs"])
    (read,) = [one async for page in store.read_generation(collection, HANDBOOK, document("signs"), 1) for one in page]
    assert read.dense is None


async def test_a_version_is_read_as_it_was_written(store: VectorStore, collection: str) -> None:
    """And nothing else: no other version, no other document, nobody else's document of the same id."""
    written = [
        replace(
            chunk(HANDBOOK, "a.md", f"report {index}", dense=direction(1.0, index), index=index, metadata={"n": "1"}),
            sparse=SparseVector(indices=(3, 2**32 - 1 - index), values=(0.25 + index, 1.5)),
        )
        for index in range(250)
    ]
    others = [
        chunk(HANDBOOK, "a.md", "report", generation=2),
        chunk(HANDBOOK, "b.md", "report"),
        *(chunk(of, "a.md", "report") for of in STRANGERS),
    ]
    await store.upsert(collection, [*written, *others])

    async def read(of: Scope, name: str, generation: int, where: str = collection) -> list[Point]:
        return [
            point
            for page in [page async for page in store.read_generation(where, of, document(name), generation)]
            for point in page
        ]

    points = await read(HANDBOOK, "a.md", 1)
    found = {point.id: point for point in points}
    assert len(points) == len(found) == 250
    for point in written:
        same = found[point.id]
        assert (same.payload, same.sparse.indices) == (point.payload, point.sparse.indices)
        np.testing.assert_allclose(same.sparse.values, point.sparse.values, rtol=1e-6)
        np.testing.assert_allclose(same.dense, point.dense, rtol=1e-6)
    assert [point.id for point in await read(HANDBOOK, "a.md", 2)] == [others[0].id]
    assert [[point.id for point in await read(of, "a.md", 1)] for of in STRANGERS] == [
        [point.id] for point in others[2:]
    ]
    assert await read(STRANGERS[0], "a.md", 2) == []
    assert await read(Scope(tenant="globex", knowledge_base_id=HANDBOOK.knowledge_base_id), "a.md", 1) == []
    assert await read(HANDBOOK, "none", 1) == []
    assert await read(HANDBOOK, "a.md", 1, "absent") == []


async def test_a_version_that_was_read_can_be_written_again(store: VectorStore, collection: str) -> None:
    """As the copy of a document whose metadata have changed is made: what is found stays as it was."""
    await store.upsert(
        collection,
        [
            chunk(HANDBOOK, "a.md", "alpha beta", dense=direction(0.6, 0.8), time=1_700_000_000.5, tags=["x"]),
            replace(chunk(HANDBOOK, "a.md", "gamma", index=1), dense=None),
        ],
    )
    before = await search(store, collection, HANDBOOK, "alpha gamma")
    for _ in range(2):
        pages = [page async for page in store.read_generation(collection, HANDBOOK, document("a.md"), 1)]
        for page in pages:
            await store.upsert(collection, page)
    after = await search(store, collection, HANDBOOK, "alpha gamma")
    for one, other in ((before.dense, after.dense), (before.keyword, after.keyword)):
        assert [(hit.id, hit.payload) for hit in one] == [(hit.id, hit.payload) for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other])


async def test_payloads_are_changed_in_place(store: VectorStore, collection: str) -> None:
    def version(generation: int) -> list[Point]:
        return [
            chunk(
                HANDBOOK,
                "a.md",
                "report",
                generation=generation,
                index=index,
                metadata={"team": "ops", "year": "2024"},
                author="ann",
            )
            for index in range(3)
        ]

    await store.upsert(collection, [*version(1), *version(2)])
    change = {"metadata": {"team": "sales"}, "tags": ["new"], "author": None}
    await store.update_payload(collection, HANDBOOK, document("a.md"), 2, change, indexes=[0, 2])
    await store.update_payload(collection, scope("globex", "handbook"), document("a.md"), 2, {"tags": ["stolen"]})

    async def kept(condition: Condition) -> set[tuple[int, int]]:
        found = await search(store, collection, HANDBOOK, filter=PointFilter(all=(condition,)))
        return {(hit.payload["generation"], hit.payload["index"]) for hit in found.dense}

    assert await kept(Condition(field="metadata.team", any_of=("sales",))) == {(2, 0), (2, 2)}
    assert await kept(Condition(field="tags", any_of=("new",))) == {(2, 0), (2, 2)}
    assert await kept(Condition(field="tags", any_of=("stolen",))) == set()
    assert await kept(Condition(field="author", any_of=("ann",))) == {(1, 0), (1, 1), (1, 2), (2, 1)}
    # Numbers of the former metadata do not outlive it.
    assert await kept(Condition(field="metadata.year", gte=0)) == {(1, 0), (1, 1), (1, 2), (2, 1)}
    (first, *_) = [
        one async for page in store.read_generation(collection, HANDBOOK, document("a.md"), 2) for one in page
    ]
    expected = next(point.payload for point in version(2) if point.payload["index"] == first.payload["index"])
    if first.payload["index"] != 1:
        expected = {key: value for key, value in {**expected, **change}.items() if value is not None}
    assert first.payload == expected
    for key, value in {
        "tenant": "globex",
        "knowledge_base_id": str(scope("globex", "handbook").knowledge_base_id),
        "document_id": str(document("b.md")),
        "generation": 3,
        "index": 7,
    }.items():
        with pytest.raises(ValueError):
            await store.update_payload(collection, HANDBOOK, document("a.md"), 2, {key: value, "tags": ["new"]})
    assert await kept(Condition(field="tags", any_of=("new",))) == {(2, 0), (2, 2)}


async def test_a_change_in_place_is_of_all_chunks_of_one_version(store: VectorStore, collection: str) -> None:
    """Where no chunk is named. Vectors and words stay, and so do neighbours."""
    meant = [
        chunk(HANDBOOK, "a.md", f"alpha w{index}", dense=direction(1.0, index), index=index, generation=2)
        for index in range(250)
    ]
    neighbours = [
        chunk(HANDBOOK, "a.md", "alpha", index=300),
        chunk(HANDBOOK, "b.md", "alpha", generation=2),
        *(chunk(of, "a.md", "alpha", generation=2) for of in STRANGERS),
    ]
    await store.upsert(collection, [*meant, *neighbours])
    await store.update_payload(collection, HANDBOOK, document("a.md"), 2, {"tags": ["new"]})
    for _ in range(2):  # a call may be repeated
        await store.update_payload(collection, HANDBOOK, document("a.md"), 2, {"author": "ann"}, indexes=[7, 249, 999])

    tagged = PointFilter(all=(Condition(field="tags", any_of=("new",)),))
    found = await search(store, collection, HANDBOOK, "alpha", filter=tagged, limit=1000)
    assert {hit.id for hit in found.dense} == {hit.id for hit in found.keyword} == {point.id for point in meant}
    by_ann = PointFilter(all=(Condition(field="author", any_of=("ann",)),))
    found = await search(store, collection, HANDBOOK, "w249", filter=by_ann)
    assert {hit.payload["index"] for hit in found.dense} == {7, 249}
    assert [hit.payload["index"] for hit in found.keyword] == [249]
    for of in STRANGERS:
        assert (await search(store, collection, of, filter=tagged)).dense == ()
    pages = [page async for page in store.read_generation(collection, HANDBOOK, document("a.md"), 2)]
    read = {point.id: point for page in pages for point in page}
    assert len(read) == 250
    for point in meant:
        np.testing.assert_allclose(read[point.id].dense, point.dense, rtol=1e-6)
        assert read[point.id].sparse.indices == point.sparse.indices


async def test_documents_and_what_a_filter_keeps_are_deleted(store: VectorStore, collection: str) -> None:
    stranger = scope("globex", "handbook")
    for of in (HANDBOOK, stranger):
        await store.upsert(collection, [chunk(of, name, "report", **payload) for name, payload in SOURCES.items()])
    await store.upsert(collection, [chunk(HANDBOOK, "mail", "report", generation=2)])
    await store.delete_document(collection, HANDBOOK, document("mail"))
    assert sorted(names((await search(store, collection, HANDBOOK)).dense)) == ["code", "note", "page"]
    await store.delete_matching(
        collection, HANDBOOK, PointFilter(none=(Condition(field="source_type", any_of=("web",)),))
    )
    assert names((await search(store, collection, HANDBOOK)).dense) == ["page"]
    assert await store.count(collection, stranger) == len(SOURCES)
    with pytest.raises(ValueError):
        await store.delete_matching(collection, stranger, PointFilter())
    assert await store.count(collection, stranger) == len(SOURCES)
    await store.delete_document("absent", HANDBOOK, document("mail"))


async def test_points_that_name_principals_are_for_them_alone(store: VectorStore, collection: str) -> None:
    await store.upsert(
        collection,
        [
            chunk(HANDBOOK, "open", "report"),
            chunk(HANDBOOK, "empty", "report", principals=[]),
            chunk(HANDBOOK, "ann's", "report", principals=["user:ann", "group:ops"]),
            chunk(HANDBOOK, "bob's", "report", principals=["user:bob"]),
        ],
    )

    async def seen_by(principals: list[str] | None) -> list[str]:
        found = await search(store, collection, HANDBOOK, principals=principals)
        assert sorted(names(found.dense)) == sorted(names(found.keyword))
        return sorted(names(found.dense))

    assert await seen_by(None) == ["ann's", "bob's", "empty", "open"]
    assert await seen_by([]) == ["empty", "open"]
    assert await seen_by(["user:eve", '"user:ann"', "$ne"]) == ["empty", "open"]
    assert await seen_by(["group:ops", "user:eve"]) == ["ann's", "empty", "open"]
    with pytest.raises(InvalidField):
        await search(
            store,
            collection,
            HANDBOOK,
            filter=PointFilter(any=(Condition(field="principals", any_of=("user:bob",)),)),
        )


async def test_ret_22_equal_text_in_two_knowledge_bases_is_two_records(store: VectorStore, collection: str) -> None:
    """RET-22."""
    one, other = scope("acme", "a"), scope("acme", "b")
    text = "Holiday policy: 25 days"
    await store.upsert(collection, [chunk(one, "1", text)])
    await store.upsert(collection, [chunk(other, "9", text)])
    assert names((await search(store, collection, one, text)).keyword) == ["1"]
    await store.delete_document(collection, one, document("1"))
    found = await search(store, collection, other, text)
    assert (names(found.dense), names(found.keyword)) == (["9"], ["9"])


async def test_ret_18_an_empty_collection_gives_empty_lists(store: VectorStore, collection: str) -> None:
    """RET-18."""
    assert await search(store, collection, HANDBOOK, "anything") == SearchResult(dense=(), keyword=())


async def test_ret_08_lists_do_not_depend_on_how_many_collections_hold_them(store: VectorStore) -> None:
    """RET-08. What a store gives is lists with scores of one kind, whole, and fused by nobody: the same points in one
    collection and among many others have the same vector scores, and a threshold keeps the same ones."""
    few, many = f"kb-{uuid4()}", f"kb-{uuid4()}"
    points = [
        chunk(HANDBOOK, f"{number}.md", f"report w{number}", dense=direction(1.0, number), index=number)
        for number in range(12)
    ]
    strangers = [
        chunk(of, f"{number}.md", "report", dense=direction(1.0), index=number)
        for of in STRANGERS
        for number in range(150)
    ]
    for name, held in ((few, points), (many, [*strangers, *points])):
        await store.ensure_collection(name, dimension=DIMENSION, shared=True)
        await store.upsert(name, held)
    for least in (None, 0.4):
        one, other = [
            await search(store, name, HANDBOOK, "report w3", min_dense_score=least, limit=12) for name in (few, many)
        ]
        assert [(hit.id, hit.score) for hit in one.dense] == [(hit.id, pytest.approx(hit.score)) for hit in other.dense]
        assert {hit.id for hit in one.keyword} == {hit.id for hit in other.keyword} == {point.id for point in points}
        assert (names(one.keyword)[0], names(other.keyword)[0]) == ("3.md", "3.md")
    assert 0 < len((await search(store, few, HANDBOOK, min_dense_score=0.4)).dense) < 12


async def test_a_long_list_comes_with_its_payloads(store: VectorStore, collection: str) -> None:
    await store.upsert(collection, [chunk(HANDBOOK, f"{number}.md", "report", index=number) for number in range(230)])
    found = await search(store, collection, HANDBOOK, limit=2000)
    assert len(found.dense) == len(found.keyword) == 230
    assert {hit.payload["text"] for hit in found.dense} == {"report"}


async def test_ret_27_a_chunk_that_comes_twice_is_one_point(store: VectorStore, collection: str) -> None:
    """RET-27."""
    twice = [chunk(HANDBOOK, "d", "report"), chunk(HANDBOOK, "d", "report")]
    await store.upsert(collection, twice)
    assert [hit.id for hit in (await search(store, collection, HANDBOOK)).dense] == [twice[0].id]
    assert await store.count(collection, HANDBOOK) == 1
