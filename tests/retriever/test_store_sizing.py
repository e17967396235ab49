"""Collections are set up for the number of points that they will hold: what a Qdrant server is asked for."""

from typing import Any

import grpc
import pytest
from kbmesh_retriever.stores.port import Distance
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_retriever.stores.sizing import size_for
from kbmesh_rpc.errors import DependencyInvalidResponse
from qdrant_client import grpc as qdrant
from store_points import DIMENSION


class Recording(qdrant.CollectionsServicer):
    """Keeps what it is asked to make, and has nothing."""

    def __init__(self) -> None:
        self.created: list[qdrant.CreateCollection] = []

    async def Create(self, request: qdrant.CreateCollection, context: Any) -> Any:  # noqa: N802 - the contract's name
        self.created.append(request)
        return qdrant.CollectionOperationResponse(result=True)

    async def Get(self, request: Any, context: Any) -> None:  # noqa: N802 - the contract's name
        await context.abort(grpc.StatusCode.NOT_FOUND, "as the test wants")


async def created(by_setting: int, *, shared: bool = False, **options: Any) -> qdrant.CreateCollection:
    server, servicer = grpc.aio.server(), Recording()
    qdrant.add_CollectionsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = QdrantStore.connect(f"http://127.0.0.1:{port}", expected_points=by_setting)
    with pytest.raises(DependencyInvalidResponse):  # for it is not there afterwards
        await store.ensure_collection("kb", dimension=DIMENSION, shared=shared, **options)
    await store.close()
    await server.stop(grace=None)
    (request,) = servicer.created
    return request


async def test_words_have_idf_and_vectors_their_distance() -> None:
    """RET-23."""
    request = await created(0, distance=Distance.EUCLIDEAN)
    assert request.vectors_config.params_map.map["dense"].distance == qdrant.Distance.Euclid
    assert request.sparse_vectors_config.map["bm25"].modifier == qdrant.Modifier.Idf


async def test_a_small_collection_is_searched_exactly() -> None:
    request = await created(0)
    assert not request.HasField("quantization_config")
    assert not request.HasField("shard_number")
    # In kB of vectors: a segment below it has no graph.
    assert request.optimizers_config.indexing_threshold == 100_000 * DIMENSION * 4 // 1024


async def test_from_a_hundred_thousand_points_there_is_a_graph() -> None:
    request = await created(100_000)
    assert (request.hnsw_config.m, request.hnsw_config.ef_construct) == (16, 128)
    assert not request.HasField("optimizers_config")
    assert not request.HasField("quantization_config")


async def test_from_a_million_points_vectors_are_quantised() -> None:
    request = await created(1_000_000)
    scalar = request.quantization_config.scalar
    assert (scalar.type, scalar.always_ram) == (qdrant.QuantizationType.Int8, True)
    assert not request.HasField("shard_number")


async def test_from_a_hundred_million_points_there_are_shards_on_disk() -> None:
    request = await created(0, expected_points=1_000_000_000)
    assert request.shard_number == 50
    assert request.on_disk_payload
    assert request.vectors_config.params_map.map["dense"].on_disk
    assert request.HasField("quantization_config")


async def test_in_a_shared_collection_every_tenant_has_a_graph_of_its_own() -> None:
    for expected in (0, 100_000, 1_000_000):
        hnsw = (await created(expected, shared=True)).hnsw_config
        assert (hnsw.m, hnsw.payload_m) == (0, 16)


def test_more_points_never_mean_less() -> None:
    sizes = [size_for(10**power, dimension=384, shared=False) for power in range(3, 10)]
    shards = [size.shard_number or 1 for size in sizes]
    assert shards == sorted(shards)
    assert [size.quantization is not None for size in sizes] == [False, False, False, True, True, True, True]
