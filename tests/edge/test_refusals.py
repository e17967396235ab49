"""What kbmesh-edge refuses: wrong requests, unknown collections, and what only a Qdrant server does."""

from collections.abc import Awaitable, Callable

import grpc
import pytest
from edge_points import AXES, DENSE, field, numbered, point
from qdrant_client import AsyncQdrantClient, models
from qdrant_client import grpc as qdrant


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


@pytest.mark.parametrize(
    "vector",
    [
        {"dense": [1.0, 0.0, 0.0]},
        {"dense": []},
        {"dense": [float("nan"), 0.0, 0.0, 0.0]},
        {"dense": [float("inf"), float("-inf"), 0.0, 0.0]},
        {"sparse": AXES[0]},
        AXES[0],
        {"bm25": AXES[0]},
        {"dense": models.SparseVector(indices=[1], values=[1.0])},
        {"bm25": models.SparseVector(indices=[1, 1], values=[1.0, 1.0])},
        {"bm25": models.SparseVector(indices=[1, 2], values=[1.0])},
        {"bm25": models.SparseVector(indices=[1], values=[float("nan")])},
    ],
)
async def test_a_vector_that_does_not_fit_is_refused_and_harms_nothing(
    client: AsyncQdrantClient, standing: str, vector: object
) -> None:
    """The engine stops on some of these, and would stop again when its log is replayed."""
    await client.upsert(standing, [point(1, AXES[0], [1])])
    refused = models.PointStruct.model_construct(id=numbered(2), vector=vector, payload={})
    assert await code_of(client.upsert(standing, [point(4, AXES[0]), refused])) is grpc.StatusCode.INVALID_ARGUMENT

    await client.upsert(standing, [point(3, AXES[1], [1, 2])])
    assert (await client.count(standing)).count == 2
    query = models.SparseVector(indices=[1], values=[1.0])
    assert len((await client.query_points(standing, query, using="bm25")).points) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda client, name: client.query_points(name, [1.0], using="dense"),
        lambda client, name: client.query_points(name, AXES[0], using="other"),
        lambda client, name: client.query_points(name, AXES[0]),
        lambda client, name: client.query_points(name, AXES[0], using="bm25"),
        lambda client, name: client.query_points(name, AXES[0], using="dense", limit=2**40),
        lambda client, name: client.count(name, models.Filter(must=[field("a[", match=models.MatchValue(value="b"))])),
        lambda client, name: client.retrieve(name, ["not-a-uuid"]),
        lambda client, name: client.upsert(name, []),
        lambda client, name: client.create_payload_index(name, "a[", models.PayloadSchemaType.KEYWORD),
        lambda client, name: client.create_collection("../evil", vectors_config=DENSE),
        lambda client, name: client.create_collection("..", vectors_config=DENSE),
        lambda client, name: client.create_collection("a/b", vectors_config=DENSE),
        lambda client, name: client.create_collection("", vectors_config=DENSE),
        lambda client, name: client.create_collection("a" * 300, vectors_config=DENSE),
        lambda client, name: client.create_collection("no-vectors"),
        lambda client, name: client.create_collection(
            "no-size", vectors_config={"dense": models.VectorParams(size=10**9, distance=models.Distance.DOT)}
        ),
    ],
)
async def test_what_is_wrong_is_refused(
    client: AsyncQdrantClient, standing: str, call: Callable[[AsyncQdrantClient, str], Awaitable[object]]
) -> None:
    assert await code_of(call(client, standing)) is grpc.StatusCode.INVALID_ARGUMENT


NO_SUCH_NUMBER = 77


def no_such_field_type(client: AsyncQdrantClient, name: str) -> Awaitable[object]:
    message = qdrant.CreateFieldIndexCollection(collection_name=name, field_name="a")
    message.field_type = NO_SUCH_NUMBER  # a newer client's
    return client.grpc_points.CreateFieldIndex(message)


def no_such_distance(client: AsyncQdrantClient, name: str) -> Awaitable[object]:
    message = qdrant.CreateCollection(collection_name=f"{name}-distance")
    message.vectors_config.params_map.map["dense"].size = 4
    message.vectors_config.params_map.map["dense"].distance = NO_SUCH_NUMBER
    return client.grpc_collections.Create(message)


def no_such_modifier(client: AsyncQdrantClient, name: str) -> Awaitable[object]:
    message = qdrant.CreateCollection(collection_name=f"{name}-modifier")
    message.sparse_vectors_config.map["bm25"].modifier = NO_SUCH_NUMBER
    return client.grpc_collections.Create(message)


@pytest.mark.parametrize("call", [no_such_field_type, no_such_distance, no_such_modifier])
async def test_a_number_that_no_enum_has_is_refused(
    client: AsyncQdrantClient, standing: str, call: Callable[[AsyncQdrantClient, str], Awaitable[object]]
) -> None:
    assert await code_of(call(client, standing)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_name_of_any_length_is_answered(client: AsyncQdrantClient) -> None:
    for name in ("absent\r\n\x1b" + "x" * 1_000_000, "\x00"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.count(name)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        told = caught.value.details() or ""
        assert len(told) <= 256
        assert told.isprintable()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_collection("absent"),
        lambda client: client.upsert("absent", [point(1, AXES[0])]),
        lambda client: client.query_points("absent", AXES[0], using="dense"),
        lambda client: client.query_batch_points("absent", [models.QueryRequest(query=AXES[0], using="dense")]),
        lambda client: client.count("absent"),
        lambda client: client.scroll("absent"),
        lambda client: client.retrieve("absent", [1]),
        lambda client: client.delete("absent", models.PointIdsList(points=[1])),
        lambda client: client.create_payload_index("absent", "a", models.PayloadSchemaType.KEYWORD),
    ],
)
async def test_a_collection_that_does_not_exist_is_not_found(
    client: AsyncQdrantClient, call: Callable[[AsyncQdrantClient], Awaitable[object]]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(client)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "Collection `absent` doesn't exist!" in (caught.value.details() or "")


@pytest.mark.parametrize(
    "call",
    [
        lambda client, name: client.list_snapshots(name),
        lambda client, name: client.create_snapshot(name),
        lambda client, name: client.create_full_snapshot(),
        lambda client, name: client.get_aliases(),
        lambda client, name: client.update_collection_aliases(
            [models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=name, alias_name="current"))]
        ),
        lambda client, name: client.update_collection(name, optimizers_config=models.OptimizersConfigDiff()),
        lambda client, name: client.facet(name, "tenant"),
        lambda client, name: client.search_matrix_pairs(name),
        lambda client, name: client.query_points_groups(name, "tenant", query=AXES[0], using="dense"),
        lambda client, name: client.query_points(
            name, models.RecommendQuery(recommend=models.RecommendInput(positive=[1]))
        ),
        lambda client, name: client.query_points(
            name, models.DiscoverQuery(discover=models.DiscoverInput(target=AXES[0], context=[])), using="dense"
        ),
        lambda client, name: client.query_points(name, models.OrderByQuery(order_by="a")),
        lambda client, name: client.query_points(name),
        lambda client, name: client.query_points(name, numbered(1), using="dense"),
        lambda client, name: client.query_points(
            name,
            models.FusionQuery(fusion=models.Fusion.RRF),
            prefetch=[models.Prefetch(query=AXES[0], using="dense")],
        ),
        lambda client, name: client.scroll(name, order_by="number"),
        lambda client, name: client.count(name, models.Filter(must=[field("text", match=models.MatchText(text="a"))])),
        lambda client, name: client.count(
            name, models.Filter(must=[field("flag", match=models.MatchValue(value=True))])
        ),
        lambda client, name: client.set_payload(name, {"a": 1}, [1], key="b"),
        lambda client, name: client.overwrite_payload(name, {"a": 1}, [1]),
        lambda client, name: client.clear_payload(name, [1]),
        lambda client, name: client.update_vectors(name, [models.PointVectors(id=1, vector={"dense": AXES[0]})]),
        lambda client, name: client.delete_vectors(name, ["dense"], [1]),
        lambda client, name: client.delete_payload_index(name, "tenant"),
        lambda client, name: client.create_payload_index(name, "text", models.PayloadSchemaType.TEXT),
        lambda client, name: client.create_collection(
            "unnamed", vectors_config=models.VectorParams(size=4, distance=models.Distance.COSINE)
        ),
        lambda client, name: client.create_collection(
            "quantized",
            vectors_config=DENSE,
            quantization_config=models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
            ),
        ),
        lambda client, name: client.create_collection("sharded", vectors_config=DENSE, shard_number=2),
    ],
)
async def test_what_only_a_qdrant_server_does_is_unimplemented(
    client: AsyncQdrantClient, standing: str, call: Callable[[AsyncQdrantClient, str], Awaitable[object]]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(client, standing)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "kbmesh-edge does not serve" in (caught.value.details() or "")
