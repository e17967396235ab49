"""Pinecone that is slow to show what was written, overloaded, down or strange, by its own SDK."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from edge_process import free_port
from kbmesh_retriever.stores.pinecone import PineconeStore
from kbmesh_retriever.stores.port import Distance, SearchQuery, SearchResult, SparseVector
from kbmesh_rpc.call import CallContext, with_call
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import (
    Conflict,
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    RequestTooLarge,
)
from pinecone_server import API_KEY, Fault, PineconeServer, pinecone_server
from store_points import DIMENSION, chunk, direction, document, names, scope, words

pytestmark = pytest.mark.skipif(find_spec("pinecone") is None, reason="kbmesh-retriever[pinecone] is not installed")

HANDBOOK = scope("acme", "handbook")
QUERY = SearchQuery(collection="kb", scope=HANDBOOK, dense=direction(1.0), sparse=words("report"), limit=5)
INDEX = f"kbmesh-{DIMENSION}-cosine"


@pytest.fixture
def server() -> Iterator[PineconeServer]:
    with pinecone_server() as server:
        yield server


@pytest.fixture
async def store(server: PineconeServer) -> AsyncIterator[PineconeStore]:
    store = PineconeStore.connect(API_KEY, host=server.url, timeout_seconds=20)
    await store.ensure_collection("kb", dimension=DIMENSION)
    yield store
    await store.close()


def call_with(deadline: Deadline) -> CallContext:
    return CallContext(request_id="r", tenant="acme", principals=(), deadline=deadline)


async def test_a_write_returns_once_searches_see_it(server: PineconeServer, store: PineconeStore) -> None:
    server.lag = 3
    await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])
    assert server.count("/documents/search") > 3
    assert names((await store.search(QUERY)).dense) == ["a"]

    await store.update_payload("kb", HANDBOOK, document("a"), 1, {"author": "ann"})
    assert (await store.search(QUERY)).dense[0].payload["author"] == "ann"
    await store.delete_generations("kb", HANDBOOK, document("a"), [1])
    assert await store.search(QUERY) == SearchResult(dense=(), keyword=())


async def test_a_write_that_is_not_seen_in_time_is_not_called_done(server: PineconeServer) -> None:
    store = PineconeStore.connect(API_KEY, host=server.url, visible_seconds=0.3)
    await store.ensure_collection("kb", dimension=DIMENSION)
    server.lag = 1_000_000
    with pytest.raises(DeadlineExceeded) as caught:
        await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])
    assert caught.value.metadata == {"stage": "pinecone"}
    await store.close()


async def test_a_write_whose_place_in_the_log_is_not_told_is_not_called_done(
    server: PineconeServer, store: PineconeStore
) -> None:
    server.forgets_lsn = True
    with pytest.raises(DependencyInvalidResponse):
        await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_passing_fault_is_met_by_asking_again(
    server: PineconeServer, store: PineconeStore, status: int
) -> None:
    """By the SDK, after the Retry-After that it is told."""
    for path in ("/documents/upsert", "/documents/search", "/documents/delete"):
        server.faults.append(Fault(path=path, status=status, headers={"Retry-After": "0"}))
    await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])
    assert names((await store.search(QUERY)).keyword) == ["a"]
    await store.delete_document("kb", HANDBOOK, document("a"))
    assert server.faults == []
    assert await store.count("kb", HANDBOOK) == 0


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, DependencyUnavailable),
        (500, DependencyUnavailable),
        (503, DependencyUnavailable),
        (400, DependencyInvalidResponse),
        (401, DependencyInvalidResponse),
        (403, DependencyInvalidResponse),
        (409, DependencyInvalidResponse),
        (413, DependencyInvalidResponse),
    ],
)
async def test_a_lasting_fault_is_one_of_the_ports_errors_and_names_the_store(
    server: PineconeServer, store: PineconeStore, status: int, error: type[DependencyUnavailable]
) -> None:
    fault = Fault(path="/documents/search", status=status, headers={"Retry-After": "0"})
    server.faults += [fault] * 10
    with pytest.raises(error) as caught:
        await store.search(replace(QUERY, sparse=None))
    assert caught.value.metadata == {"dependency": "pinecone"}
    assert API_KEY not in caught.value.message


async def test_an_answer_that_is_none_says_so(server: PineconeServer, store: PineconeStore) -> None:
    server.faults.append(Fault(path="/documents/search", status=200, body=b"<html>"))
    with pytest.raises(DependencyInvalidResponse):
        await store.search(replace(QUERY, sparse=None))
    stranger = {"matches": [{"_id": "1", "_score": 1.0}], "namespace": "x", "usage": {"read_units": 1}}
    server.faults.append(Fault(path="/documents/search", status=200, body=json.dumps(stranger).encode()))
    with pytest.raises(DependencyInvalidResponse):
        await store.search(replace(QUERY, sparse=None))


async def test_a_call_ends_with_the_callers_deadline(server: PineconeServer, store: PineconeStore) -> None:
    server.faults += [Fault(path="/documents/search", delay_seconds=2.0)] * 2
    with with_call(call_with(Deadline.after(0.3))), pytest.raises(DeadlineExceeded) as caught:
        await store.search(QUERY)
    assert caught.value.metadata == {"stage": "pinecone"}
    asked = len(server.requests)
    with with_call(call_with(Deadline.after(0.0))), pytest.raises(DeadlineExceeded):
        await store.search(QUERY)
    assert len(server.requests) == asked


async def test_an_overload_longer_than_the_deadline_is_not_waited_for(
    server: PineconeServer, store: PineconeStore
) -> None:
    server.faults += [Fault(path="/documents/search", status=429, headers={"Retry-After": "30"})] * 4
    with with_call(call_with(Deadline.after(0.5))), pytest.raises(DeadlineExceeded):
        await store.search(replace(QUERY, sparse=None))


async def test_a_call_ends_with_the_stores_own_timeout(server: PineconeServer) -> None:
    store = PineconeStore.connect(API_KEY, host=server.url, timeout_seconds=0.3)
    server.faults += [Fault(path="/indexes", delay_seconds=1.0)] * 4
    with pytest.raises(DeadlineExceeded):
        await store.health()
    await store.close()


async def test_a_store_that_is_down_is_unavailable() -> None:
    store = PineconeStore.connect(API_KEY, host=f"http://127.0.0.1:{free_port()}", timeout_seconds=30)
    for call in (store.health(), store.search(QUERY), store.ensure_collection("kb", dimension=DIMENSION)):
        with pytest.raises(DependencyUnavailable) as caught:
            await call
        assert caught.value.metadata == {"dependency": "pinecone"}
    await store.close()


async def test_a_wrong_key_is_refused_and_not_told(server: PineconeServer) -> None:
    store = PineconeStore.connect("pc-wrong-key", host=server.url)
    with pytest.raises(DependencyInvalidResponse) as caught:
        await store.health()
    assert "pc-wrong-key" not in caught.value.message
    await store.close()


async def test_an_index_without_sparse_vectors_is_searched_by_vectors_alone_and_says_so(
    server: PineconeServer,
) -> None:
    dense = {"type": "dense_vector", "dimension": DIMENSION, "metric": "cosine"}
    server.add_index(INDEX, {"dense": dense})
    store = PineconeStore.connect(API_KEY, host=server.url)
    await store.ensure_collection("kb", dimension=DIMENSION)
    await store.upsert("kb", [chunk(HANDBOOK, "a", "report")])
    found = await store.search(QUERY)
    assert (names(found.dense), found.keyword, found.keyword_served) == (["a"], (), False)
    assert (await store.search(replace(QUERY, sparse=None))).keyword_served
    info = await store.info("kb")
    assert info is not None
    assert not info.keywords
    await store.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"dense": {"type": "dense_vector", "dimension": DIMENSION + 1, "metric": "cosine"}},
        {"dense": {"type": "dense_vector", "dimension": DIMENSION, "metric": "euclidean"}},
        {"_values": {"type": "dense_vector", "dimension": DIMENSION, "metric": "cosine"}},
    ],
    ids=["dimension", "metric", "another program's"],
)
async def test_an_index_of_another_shape_is_refused(server: PineconeServer, fields: dict[str, object]) -> None:
    server.add_index(INDEX, fields)
    store = PineconeStore.connect(API_KEY, host=server.url)
    with pytest.raises(Conflict):
        await store.ensure_collection("kb", dimension=DIMENSION)
    await store.close()


async def test_knowledge_bases_of_one_dimension_share_an_index_and_nothing_else(
    server: PineconeServer, store: PineconeStore
) -> None:
    """Names are spelled so that no tenant can write another's namespace."""
    await store.ensure_collection("shared-1", dimension=DIMENSION, shared=True)
    scopes = [
        scope(tenant, "handbook") for tenant in ("acme", "acme/x", "../acme", "acme%2Fx", "", "Ä" * 300, "Ä" * 301)
    ]
    for number, of in enumerate(scopes):
        await store.upsert("shared-1", [chunk(of, f"{number}.md", "report")])
    for number, of in enumerate(scopes):
        found = await store.search(replace(QUERY, collection="shared-1", scope=of))
        assert names(found.dense) == names(found.keyword) == [f"{number}.md"]
    assert list(server.indexes) == [INDEX]
    await store.ensure_collection("far", dimension=DIMENSION, distance=Distance.EUCLIDEAN)
    await store.ensure_collection("wide", dimension=DIMENSION + 1)
    assert sorted(server.indexes) == [INDEX, f"kbmesh-{DIMENSION}-euclidean", f"kbmesh-{DIMENSION + 1}-cosine"]


async def test_requests_keep_to_the_limits(server: PineconeServer, store: PineconeStore) -> None:
    """100 records and 2 MB a request, 4 MB an answer, 10,000 hits: the server refuses anything beyond."""
    long = "気" * 11_000
    points = [chunk(HANDBOOK, f"{number}.md", "report", index=number, context=long) for number in range(205)]
    await store.upsert("kb", points)
    assert server.count("/documents/upsert") > 3
    found = await store.search(replace(QUERY, limit=20_000))
    assert len(found.dense) == len(found.keyword) == 205
    assert found.dense[0].payload["context"] == long

    asked = server.count("/documents/upsert")
    with pytest.raises(RequestTooLarge) as caught:
        await store.upsert("kb", [chunk(HANDBOOK, "huge", "report", context="気" * 14_000)])
    assert caught.value.metadata["limit"] == "40960"
    assert server.count("/documents/upsert") == asked


async def test_how_many_records_hold_a_word_is_asked_once(server: PineconeServer, store: PineconeStore) -> None:
    await store.upsert("kb", [chunk(HANDBOOK, f"{n}", "report weekly", index=n) for n in range(20)])
    await store.upsert("kb", [chunk(HANDBOOK, "incident", "report kraken")])
    query = replace(QUERY, dense=None, sparse=words("report kraken"))
    before = server.count("/documents/search")
    first = await store.search(query)
    assert server.count("/documents/search") == before + 3
    assert await store.search(query) == first
    assert server.count("/documents/search") == before + 4
    assert names(first.keyword)[0] == "incident"


async def test_any_term_id_is_taken(store: PineconeStore) -> None:
    everything = SparseVector(indices=(0, 1, 2**32 - 1), values=(0.5, 1.0, 2.0))
    await store.upsert("kb", [replace(chunk(HANDBOOK, "a", "x"), sparse=everything)])
    found = await store.search(replace(QUERY, sparse=SparseVector(indices=(2**32 - 1,), values=(1.0,))))
    assert names(found.keyword) == ["a"]
    (point,) = [one async for page in store.read_generation("kb", HANDBOOK, document("a"), 1) for one in page]
    assert point.sparse == everything
    assert point.dense is not None
    np.testing.assert_allclose(point.dense, direction(1.0))


@pytest.mark.parametrize("prefix", ["", "Upper", "a_b", "a" * 21, "ä.b"])
def test_a_prefix_that_no_index_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError):
        PineconeStore.connect(API_KEY, index_prefix=prefix)
