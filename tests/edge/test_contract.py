"""Every call that kbmesh makes of Qdrant, by the real client to a real process."""

import asyncio
from uuid import uuid4

import grpc
import pytest
from edge_points import AXES, DENSE, SPARSE, field, numbered, point
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as qdrant


async def test_server_says_what_it_is(client: AsyncQdrantClient) -> None:
    assert (await client.info()).title == "kbmesh-edge"


async def test_collection_is_described_as_it_was_made(client: AsyncQdrantClient) -> None:
    name = f"kb-{uuid4()}"
    vectors = {
        "dense": models.VectorParams(size=3, distance=models.Distance.COSINE),
        "flat": models.VectorParams(size=2, distance=models.Distance.EUCLID),
        "raw": models.VectorParams(size=5, distance=models.Distance.DOT),
    }
    sparse = {"bm25": SPARSE["bm25"], "plain": models.SparseVectorParams()}
    assert await client.create_collection(name, vectors_config=vectors, sparse_vectors_config=sparse)

    info = await client.get_collection(name)
    assert info.status == models.CollectionStatus.GREEN
    assert info.points_count == 0
    assert isinstance(info.config.params.vectors, dict)
    described = {key: (params.size, params.distance) for key, params in info.config.params.vectors.items()}
    assert described == {key: (params.size, params.distance) for key, params in vectors.items()}
    assert info.config.params.sparse_vectors is not None
    assert info.config.params.sparse_vectors["bm25"].modifier == models.Modifier.IDF
    assert info.config.params.sparse_vectors["plain"].modifier == models.Modifier.NONE


async def test_collections_are_listed_found_and_deleted(client: AsyncQdrantClient, collection: str) -> None:
    assert await client.collection_exists(collection)
    assert collection in {described.name for described in (await client.get_collections()).collections}

    assert await client.delete_collection(collection)

    assert not await client.collection_exists(collection)
    assert collection not in {described.name for described in (await client.get_collections()).collections}
    assert not await client.delete_collection(collection)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.get_collection(collection)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_of_many_creations_at_once_one_succeeds(client: AsyncQdrantClient) -> None:
    name = f"kb-{uuid4()}"
    made = await asyncio.gather(
        *(client.create_collection(name, vectors_config=DENSE) for _ in range(5)), return_exceptions=True
    )
    assert made.count(True) == 1
    refused = [error for error in made if isinstance(error, grpc.aio.AioRpcError)]
    assert [error.code() for error in refused] == [grpc.StatusCode.ALREADY_EXISTS] * 4


async def test_a_deleted_collection_can_be_made_again_with_other_vectors(
    client: AsyncQdrantClient, collection: str
) -> None:
    await client.upsert(collection, [point(1, AXES[0])])
    await client.delete_collection(collection)
    await client.create_collection(
        collection, vectors_config={"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    )
    assert (await client.count(collection)).count == 0


async def test_payload_indexes_are_made_and_described(client: AsyncQdrantClient, collection: str) -> None:
    tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    await client.create_payload_index(collection, "tenant", tenant)
    await client.create_payload_index(collection, "tenant", tenant)
    await client.create_payload_index(
        collection, "generation", models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER)
    )
    await client.create_payload_index(collection, "document_id", models.PayloadSchemaType.KEYWORD)

    schema = (await client.get_collection(collection)).payload_schema
    assert {field: index.data_type for field, index in schema.items()} == {
        "tenant": models.PayloadSchemaType.KEYWORD,
        "generation": models.PayloadSchemaType.INTEGER,
        "document_id": models.PayloadSchemaType.KEYWORD,
    }
    assert isinstance(schema["tenant"].params, models.KeywordIndexParams)
    assert schema["tenant"].params.is_tenant


async def test_points_come_back_as_they_were_written(client: AsyncQdrantClient, collection: str) -> None:
    payload: dict[str, object] = {
        "text": "naïve 日本 🎈",
        "generation": 3,
        "start": -(2**53),
        "score": 1.5,
        "flag": True,
        "nothing": None,
        "pages": [1, 2],
        "heading_path": ["One", "Two"],
        "metadata": {"a.b": "c", "": "empty"},
    }
    await client.upsert(collection, [point(1, [0.6, 0.8, 0.0, 0.0], [7, 3], payload)], wait=True)

    (record,) = await client.retrieve(collection, [numbered(1)], with_payload=True, with_vectors=True)
    assert record.id == numbered(1)
    assert record.payload == payload
    assert isinstance(record.vector, dict)
    assert record.vector["dense"] == pytest.approx([0.6, 0.8, 0.0, 0.0])
    assert record.vector["bm25"] == models.SparseVector(indices=[3, 7], values=[1.0, 1.0])

    (record,) = await client.retrieve(collection, [numbered(1)], with_payload=["text"], with_vectors=["bm25"])
    assert record.payload == {"text": payload["text"]}
    assert isinstance(record.vector, dict)
    assert set(record.vector) == {"bm25"}


async def test_writing_a_point_again_replaces_it(client: AsyncQdrantClient, collection: str) -> None:
    await client.upsert(collection, [point(1, AXES[0], payload={"a": 1, "b": 2})])
    await client.upsert(collection, [point(1, AXES[1], payload={"b": 3})])

    (found,) = (await client.query_points(collection, AXES[1], using="dense")).points
    assert found.score == pytest.approx(1.0)
    assert found.payload == {"b": 3}


async def test_dense_search_orders_limits_skips_and_cuts(client: AsyncQdrantClient, collection: str) -> None:
    vectors = [[1.0, 0.1 * number, 0.0, 0.0] for number in range(5)]
    await client.upsert(collection, [point(number, vector) for number, vector in enumerate(vectors)])

    async def found(**options: object) -> list[object]:
        answer = await client.query_points(collection, AXES[0], using="dense", **options)
        return [hit.id for hit in answer.points]

    assert await found() == [numbered(number) for number in range(5)]
    assert await found(limit=2) == [numbered(0), numbered(1)]
    assert await found(limit=2, offset=1) == [numbered(1), numbered(2)]
    assert await found(score_threshold=0.99) == [numbered(0), numbered(1)]
    assert await found(search_params=models.SearchParams(exact=True, hnsw_ef=10)) == await found()
    answer = await client.query_points(collection, AXES[0], using="dense", with_payload=False)
    assert {hit.payload for hit in answer.points} == {None}


async def test_a_batch_answers_dense_and_sparse_in_its_order(client: AsyncQdrantClient, collection: str) -> None:
    await client.upsert(
        collection, [point(1, AXES[0], [10]), point(2, AXES[1], [10, 20]), point(3, AXES[2], payload={"a": "b"})]
    )
    sparse, dense, nothing = await client.query_batch_points(
        collection,
        [
            models.QueryRequest(query=models.SparseVector(indices=[20], values=[1.0]), using="bm25"),
            models.QueryRequest(query=AXES[2], using="dense", limit=1, with_payload=True),
            models.QueryRequest(query=models.SparseVector(indices=[99], values=[1.0]), using="bm25"),
        ],
    )
    assert [hit.id for hit in sparse.points] == [numbered(2)]
    assert [(hit.id, hit.payload) for hit in dense.points] == [(numbered(3), {"a": "b"})]
    assert nothing.points == []


async def test_rare_words_weigh_more_than_common_ones_only_with_idf(client: AsyncQdrantClient) -> None:
    scores = {}
    for modifier in (models.Modifier.IDF, models.Modifier.NONE):
        name = f"kb-{uuid4()}"
        sparse = {"bm25": models.SparseVectorParams(modifier=modifier)}
        await client.create_collection(name, vectors_config=DENSE, sparse_vectors_config=sparse)
        await client.upsert(name, [point(number, AXES[0], [1]) for number in range(9)] + [point(9, AXES[0], [2])])
        query = models.SparseVector(indices=[1, 2], values=[1.0, 1.0])
        hits = (await client.query_points(name, query, using="bm25")).points
        scores[modifier] = {hit.id: hit.score for hit in hits}
    assert scores[models.Modifier.IDF][numbered(9)] > 3 * scores[models.Modifier.IDF][numbered(0)]
    assert scores[models.Modifier.NONE][numbered(9)] == scores[models.Modifier.NONE][numbered(0)]


async def test_word_statistics_can_be_those_of_a_part(client: AsyncQdrantClient, collection: str) -> None:
    """In tenant b word 1 is rare, in the collection it is common."""
    await client.upsert(collection, [point(number, AXES[0], [1], {"tenant": "a"}) for number in range(20)])
    await client.upsert(collection, [point(20 + number, AXES[0], [2], {"tenant": "b"}) for number in range(5)])
    await client.upsert(collection, [point(30, AXES[0], [1], {"tenant": "b"})])
    of_b = models.Filter(must=[models.FieldCondition(key="tenant", match=models.MatchValue(value="b"))])
    query = models.SparseVector(indices=[1], values=[1.0])

    async def score(params: models.SearchParams | None) -> float:
        answer = await client.query_points(
            collection, query, using="bm25", query_filter=of_b, search_params=params, limit=1
        )
        return answer.points[0].score

    assert await score(models.SearchParams(idf=models.IdfCorpusParams(corpus=of_b))) > 2 * await score(None)


def keyword(key: str, *values: str) -> models.FieldCondition:
    return field(key, match=models.MatchAny(any=list(values)))


def number(key: str, *values: int) -> models.FieldCondition:
    return field(key, match=models.MatchAny(any=list(values)))


ODD = field("kind", match=models.MatchValue(value="odd"))
THREE = field("number", match=models.MatchValue(value=3))
FILTERS: dict[str, tuple[models.Filter, list[int]]] = {
    "everything": (models.Filter(), [0, 1, 2, 3]),
    "one keyword": (models.Filter(must=[ODD]), [1, 3]),
    "any keyword": (models.Filter(must=[keyword("kind", "odd", "none")]), [1, 3]),
    "no such keyword": (models.Filter(must=[field("kind", match=models.MatchExcept(**{"except": ["odd"]}))]), [0, 2]),
    "one integer": (models.Filter(must=[THREE]), [3]),
    "any integer": (models.Filter(must=[number("number", 0, 3)]), [0, 3]),
    "no such integer": (models.Filter(must=[field("number", match=models.MatchExcept(**{"except": [1, 2]}))]), [0, 3]),
    "range": (models.Filter(must=[field("number", range=models.Range(gte=1, lt=3))]), [1, 2]),
    "must not": (models.Filter(must_not=[ODD]), [0, 2]),
    "should": (models.Filter(should=[number("number", 0), THREE]), [0, 3]),
    "must and should": (models.Filter(must=[ODD], should=[number("number", 0), THREE]), [3]),
    "nested": (models.Filter(must=[ODD, models.Filter(must_not=[THREE])]), [1]),
    "min should": (models.Filter(min_should=models.MinShould(conditions=[ODD, THREE], min_count=2)), [3]),
    "ids": (models.Filter(must=[models.HasIdCondition(has_id=[numbered(1), numbered(2)])]), [1, 2]),
    "empty": (models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="tags"))]), [0, 2, 3]),
    "null": (models.Filter(must=[models.IsNullCondition(is_null=models.PayloadField(key="note"))]), [0]),
    "list": (models.Filter(must=[keyword("tags", "x")]), [1]),
    "count": (models.Filter(must=[field("tags", values_count=models.ValuesCount(gte=2))]), [1]),
    "path": (models.Filter(must=[keyword('metadata."a b"', "c")]), [3]),
}


@pytest.mark.parametrize("indexed", [False, True])
async def test_filters_keep_the_same_points_with_and_without_an_index(
    client: AsyncQdrantClient, collection: str, indexed: bool
) -> None:
    payloads: list[dict[str, object]] = [
        {"kind": "odd" if number % 2 else "even", "number": number} for number in range(4)
    ]
    payloads[0]["note"] = None
    payloads[1]["tags"] = ["x", "y"]
    payloads[3]["metadata"] = {"a b": "c"}
    await client.upsert(collection, [point(i, AXES[i], payload=payload) for i, payload in enumerate(payloads)])
    if indexed:
        await client.create_payload_index(collection, "kind", models.PayloadSchemaType.KEYWORD)
        await client.create_payload_index(collection, "number", models.PayloadSchemaType.INTEGER)

    scrolled, searched, counted = {}, {}, {}
    for name, (wanted, _) in FILTERS.items():
        counted[name] = (await client.count(collection, wanted)).count
        scrolled[name] = [record.id for record in (await client.scroll(collection, wanted))[0]]
        hits = (await client.query_points(collection, AXES[0], using="dense", query_filter=wanted)).points
        searched[name] = sorted(str(hit.id) for hit in hits)
    expected = {name: [numbered(number) for number in numbers] for name, (_, numbers) in FILTERS.items()}
    assert scrolled == expected
    assert searched == expected
    assert counted == {name: len(numbers) for name, (_, numbers) in FILTERS.items()}


async def test_scrolling_meets_each_point_once(client: AsyncQdrantClient, collection: str) -> None:
    await client.upsert(collection, [point(number, AXES[0]) for number in range(7)])
    seen: list[object] = []
    offset: object = None
    while True:
        records, offset = await client.scroll(collection, limit=3, offset=offset)
        seen += [record.id for record in records]
        if offset is None:
            break
    assert seen == [numbered(number) for number in range(7)]


async def test_points_are_deleted_by_id_and_by_filter(client: AsyncQdrantClient, collection: str) -> None:
    await client.upsert(
        collection, [point(number, AXES[0], [number], {"half": "low" if number < 3 else "high"}) for number in range(6)]
    )
    await client.delete(collection, models.PointIdsList(points=[numbered(5), numbered(77)]), wait=True)
    assert (await client.count(collection)).count == 5

    low = models.Filter(must=[field("half", match=models.MatchValue(value="low"))])
    await client.delete(collection, models.FilterSelector(filter=low), wait=True)
    records, _ = await client.scroll(collection)
    assert [record.id for record in records] == [numbered(3), numbered(4)]
    assert (await client.get_collection(collection)).points_count == 2


async def test_unsigned_integers_are_ids_too(client: AsyncQdrantClient, collection: str) -> None:
    await client.upsert(collection, [models.PointStruct(id=2**63, vector={"dense": AXES[0]})])
    (record,) = await client.retrieve(collection, [2**63])
    assert record.id == 2**63


async def test_the_older_way_of_sending_vectors_is_understood(edge_url: str, collection: str) -> None:
    """Clients older than the `vector` oneof put values and indices in fields that are deprecated now."""
    async with grpc.aio.insecure_channel(edge_url.removeprefix("http://")) as channel:
        points = qdrant.PointsStub(channel)
        vectors = {
            "dense": qdrant.Vector(data=AXES[0]),
            "bm25": qdrant.Vector(data=[1.0], indices=qdrant.SparseIndices(data=[5])),
        }
        struct = qdrant.PointStruct(
            id=qdrant.PointId(num=1), vectors=qdrant.Vectors(vectors=qdrant.NamedVectors(vectors=vectors))
        )
        await points.Upsert(qdrant.UpsertPoints(collection_name=collection, points=[struct]))
        answer = await points.Get(
            qdrant.GetPoints(
                collection_name=collection,
                ids=[qdrant.PointId(num=1)],
                with_vectors=qdrant.WithVectorsSelector(enable=True),
            )
        )
    stored = answer.result[0].vectors.vectors.vectors
    assert list(stored["dense"].dense.data) == AXES[0]
    assert list(stored["bm25"].sparse.indices) == [5]


async def test_keys_of_a_payload_are_set_and_taken_away(client: AsyncQdrantClient, collection: str) -> None:
    payloads: list[dict[str, object]] = [
        {"kind": "a", "metadata": {"team": "ops", "year": "2024"}},
        {"kind": "a", "note": "x"},
        {"kind": "b", "note": "x"},
    ]
    await client.upsert(collection, [point(i, AXES[i], payload=payload) for i, payload in enumerate(payloads)])
    await client.create_payload_index(collection, "note", models.PayloadSchemaType.KEYWORD)

    of_kind_a = models.Filter(must=[field("kind", match=models.MatchValue(value="a"))])
    await client.set_payload(collection, {"metadata": {"team": "sales"}, "note": "y"}, of_kind_a, wait=True)
    await client.set_payload(collection, {"note": "z"}, [numbered(2)], wait=True)
    await client.delete_payload(collection, ["metadata", "absent"], [numbered(1)], wait=True)
    await client.delete_payload(
        collection, ["kind"], models.Filter(must=[field("note", match=models.MatchValue(value="z"))]), wait=True
    )
    records = await client.retrieve(collection, [numbered(i) for i in range(3)], with_payload=True)
    assert {record.id: record.payload for record in records} == {
        numbered(0): {"kind": "a", "metadata": {"team": "sales"}, "note": "y"},
        numbered(1): {"kind": "a", "note": "y"},
        numbered(2): {"note": "z"},
    }
    found = await client.count(collection, models.Filter(must=[field("note", match=models.MatchValue(value="y"))]))
    assert found.count == 2
