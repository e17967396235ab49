"""A vector store that is down, slow, strange or of another shape."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import edge_process
import grpc
import pytest
from kbmesh_retriever.stores.port import SearchQuery, SearchResult
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_retriever.stores.schema import PAYLOAD_INDEXES, dense_vectors, sparse_vectors
from kbmesh_rpc.call import CallContext, with_call
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Conflict, DeadlineExceeded, DependencyInvalidResponse, DependencyUnavailable
from qdrant_client import grpc as qdrant
from qdrant_client import models
from store_points import DIMENSION, chunk, direction, scope, words

HANDBOOK = scope("acme", "handbook")
QUERY = SearchQuery(collection="kb", scope=HANDBOOK, dense=direction(1.0), sparse=words("report"), limit=5)


@pytest.fixture(scope="module")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with edge_process.edge_process(tmp_path_factory.mktemp("faults") / "data") as url:
        yield url


class StrangePoints(qdrant.PointsServicer):
    """Answers every query and write with what it is given, after a while."""

    def __init__(self, answer: Any, *, code: grpc.StatusCode | None, delay_seconds: float) -> None:
        self._answer = answer
        self._code = code
        self._delay_seconds = delay_seconds
        self.cancelled = asyncio.Event()

    async def QueryBatch(self, request: qdrant.QueryBatchPoints, context: Any) -> Any:  # noqa: N802 - the contract's name
        try:
            await asyncio.sleep(self._delay_seconds)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self._code is not None:
            await context.abort(self._code, "as the test wants")
        return self._answer

    Upsert = QueryBatch


@asynccontextmanager
async def strange_store(
    answer: Any = None,
    *,
    code: grpc.StatusCode | None = None,
    delay_seconds: float = 0.0,
    timeout_seconds: float = 20.0,
) -> AsyncIterator[tuple[QdrantStore, StrangePoints]]:
    server = grpc.aio.server()
    servicer = StrangePoints(answer, code=code, delay_seconds=delay_seconds)
    qdrant.add_PointsServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = QdrantStore.connect(f"http://127.0.0.1:{port}", timeout_seconds=timeout_seconds)
    try:
        yield store, servicer
    finally:
        await store.close()
        await server.stop(grace=None)


def call_with(deadline: Deadline | None) -> CallContext:
    return CallContext(request_id="r", tenant="acme", principals=(), deadline=deadline)


async def test_a_store_that_is_down_is_unavailable() -> None:
    store = QdrantStore.connect(f"http://127.0.0.1:{edge_process.free_port()}")
    for call in (
        store.health(),
        store.search(QUERY),
        store.count("kb", HANDBOOK),
        store.upsert("kb", [chunk(HANDBOOK, "a", "report")]),
        store.ensure_collection("kb", dimension=DIMENSION),
        store.delete_knowledge_base("kb", HANDBOOK, drop_collection=True),
    ):
        with pytest.raises(DependencyUnavailable) as caught:
            await call
        assert caught.value.metadata == {"dependency": "qdrant"}
    await store.close()


async def test_a_store_that_comes_back_is_used_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    port = edge_process.free_port()
    store = QdrantStore.connect(f"http://127.0.0.1:{port}")
    first = edge_process.start_edge(data, port)
    try:
        edge_process.wait_until_serving(first, port)
        await store.ensure_collection("kb", dimension=DIMENSION)
        await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])
        first.kill()
        first.wait()
        with pytest.raises(DependencyUnavailable):
            await store.search(QUERY)
        second = edge_process.start_edge(data, port)
        try:
            edge_process.wait_until_serving(second, port)
            found = await _once_connected(store)
            assert len(found.dense) == len(found.keyword) == 1
        finally:
            edge_process.stop(second)
    finally:
        edge_process.stop(first)
        await store.close()


async def _once_connected(store: QdrantStore) -> SearchResult:
    """The channel waits a little between its attempts to connect."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.search(QUERY)
            except DependencyUnavailable:
                await asyncio.sleep(0.2)


async def test_a_call_ends_with_the_callers_deadline_and_is_cancelled() -> None:
    async with strange_store(delay_seconds=60) as (store, servicer):
        with with_call(call_with(Deadline.after(0.3))), pytest.raises(DeadlineExceeded) as caught:
            await store.search(QUERY)
        assert caught.value.metadata == {"stage": "qdrant"}
        async with asyncio.timeout(20):
            await servicer.cancelled.wait()


async def test_a_call_ends_with_the_stores_own_timeout_where_the_caller_has_none() -> None:
    async with strange_store(delay_seconds=60, timeout_seconds=0.3) as (store, _):
        with with_call(call_with(None)), pytest.raises(DeadlineExceeded):
            await store.search(QUERY)


async def test_nothing_is_sent_after_the_deadline() -> None:
    store = QdrantStore.connect(f"http://127.0.0.1:{edge_process.free_port()}")
    with with_call(call_with(Deadline.after(0.0))), pytest.raises(DeadlineExceeded):
        await store.search(QUERY)
    await store.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.UNAVAILABLE, DependencyUnavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, DependencyUnavailable),
        (grpc.StatusCode.CANCELLED, DependencyUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.INVALID_ARGUMENT, DependencyInvalidResponse),
        (grpc.StatusCode.INTERNAL, DependencyInvalidResponse),
        (grpc.StatusCode.UNAUTHENTICATED, DependencyInvalidResponse),
        (grpc.StatusCode.PERMISSION_DENIED, DependencyInvalidResponse),
        (grpc.StatusCode.UNIMPLEMENTED, DependencyInvalidResponse),
    ],
)
async def test_every_status_is_one_of_the_ports_errors(code: grpc.StatusCode, error: type[Exception]) -> None:
    async with strange_store(code=code) as (store, _):
        with pytest.raises(error):
            await store.search(QUERY)


def _one_hit(point_id: qdrant.PointId) -> qdrant.QueryBatchResponse:
    hits = qdrant.BatchResult(result=[qdrant.ScoredPoint(id=point_id, score=1.0)])
    return qdrant.QueryBatchResponse(result=[hits, hits])


@pytest.mark.parametrize(
    "answer",
    [
        qdrant.QueryBatchResponse(),
        qdrant.QueryBatchResponse(result=[qdrant.BatchResult()]),
        _one_hit(qdrant.PointId(num=7)),
        _one_hit(qdrant.PointId()),
    ],
)
async def test_an_answer_that_cannot_be_used_says_so(answer: qdrant.QueryBatchResponse) -> None:
    async with strange_store(answer) as (store, _):
        with pytest.raises(DependencyInvalidResponse):
            await store.search(QUERY)


async def test_a_keyword_hit_with_nothing_in_common_is_dropped() -> None:
    scored = [qdrant.ScoredPoint(id=qdrant.PointId(uuid=str(uuid4())), score=score) for score in (1.5, 0.0, -1.0)]
    answer = qdrant.QueryBatchResponse(result=[qdrant.BatchResult(result=scored)] * 2)
    async with strange_store(answer) as (store, _):
        found = await store.search(QUERY)
    assert [hit.score for hit in found.dense] == [1.5, 0.0, -1.0]
    assert [hit.score for hit in found.keyword] == [1.5]


async def test_a_write_that_was_taken_but_not_done_in_time_is_not_called_done() -> None:
    waited = qdrant.PointsOperationResponse(result=qdrant.UpdateResult(status=qdrant.UpdateStatus.WaitTimeout))
    async with strange_store(waited) as (store, _):
        with pytest.raises(DeadlineExceeded):
            await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])


@pytest.mark.parametrize(
    ("dense", "sparse"),
    [
        (dense_vectors(DIMENSION + 1), sparse_vectors()),
        ({"dense": models.VectorParams(size=DIMENSION, distance=models.Distance.DOT)}, sparse_vectors()),
        ({"other": models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)}, sparse_vectors()),
        (dense_vectors(DIMENSION), {"bm25": models.SparseVectorParams()}),
        (dense_vectors(DIMENSION), {"other": models.SparseVectorParams(modifier=models.Modifier.IDF)}),
    ],
    ids=["dimension", "distance", "no dense vector", "no IDF", "no sparse vector"],
)
async def test_a_collection_of_another_shape_is_refused(edge_url: str, dense: Any, sparse: Any) -> None:
    """RET-23: without the IDF modifier common words would dominate and nothing would fail."""
    name = f"kb-{uuid4()}"
    client = edge_process.client(edge_url)
    await client.create_collection(name, vectors_config=dense, sparse_vectors_config=sparse)
    store = QdrantStore.connect(edge_url)
    with pytest.raises(Conflict) as caught:
        await store.ensure_collection(name, dimension=DIMENSION)
    assert caught.value.metadata == {"resource": f"collection {name}"}
    assert (await client.get_collection(name)).payload_schema == {}
    await store.close()
    await client.close()


async def test_every_field_that_kbmesh_filters_by_has_an_index(edge_url: str) -> None:
    """RET-26: also where the collection was made without them, or with some."""
    name = f"kb-{uuid4()}"
    client = edge_process.client(edge_url)
    await client.create_collection(
        name, vectors_config=dense_vectors(DIMENSION), sparse_vectors_config=sparse_vectors()
    )
    await client.create_payload_index(name, "document_id", models.PayloadSchemaType.KEYWORD)
    store = QdrantStore.connect(edge_url)
    await store.ensure_collection(name, dimension=DIMENSION)

    schema = (await client.get_collection(name)).payload_schema
    assert set(schema) == set(PAYLOAD_INDEXES) == {"tenant", "knowledge_base_id", "document_id", "generation"}
    assert isinstance(schema["tenant"].params, models.KeywordIndexParams)
    assert schema["tenant"].params.is_tenant
    await store.close()
    await client.close()


async def test_an_index_of_another_kind_is_refused(edge_url: str) -> None:
    name = f"kb-{uuid4()}"
    client = edge_process.client(edge_url)
    await client.create_collection(
        name, vectors_config=dense_vectors(DIMENSION), sparse_vectors_config=sparse_vectors()
    )
    await client.create_payload_index(name, "generation", models.PayloadSchemaType.KEYWORD)
    store = QdrantStore.connect(edge_url)
    with pytest.raises(Conflict):
        await store.ensure_collection(name, dimension=DIMENSION)
    await store.close()
    await client.close()


@pytest.mark.parametrize("url", ["localhost:6334", "ftp://host:1", "http://", "http://host:1/path", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        QdrantStore.connect(url)
