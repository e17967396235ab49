"""A channel between two services: big messages, faults that pass, connections that stay."""

import asyncio

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc import http2
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Conflict, KbmeshError, ModelNotReady, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import ChunkerApplication, Context, raising, settings, stub

REQUEST = chunker_pb2.ChunkRequest()
LIMIT = 100_000
EIGHT_MEGABYTES = 8_000_000


def request_of(size: int) -> chunker_pb2.ChunkRequest:
    request = chunker_pb2.ChunkRequest()
    request.document.text = "x" * size
    return request


async def chunk_of_the_same_size(request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
    response = chunker_pb2.ChunkResponse()
    response.chunks.add(text="x" * len(request.document.text))
    return response


async def one_large_chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
    return await chunk_of_the_same_size(request_of(2 * LIMIT), _context)


async def failure(channel: grpc.aio.Channel, request: chunker_pb2.ChunkRequest) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(channel).Chunk(request)
    return from_rpc_error(caught.value, dependency="chunker")


async def test_grp_05_messages_over_grpcs_default_of_4_mib_pass_both_ways() -> None:
    """GRP-05."""
    async with (
        running(ChunkerApplication(chunk=chunk_of_the_same_size), settings()) as address,
        open_channel(address) as channel,
    ):
        response = await stub(channel).Chunk(request_of(EIGHT_MEGABYTES))
    assert len(response.chunks[0].text) == EIGHT_MEGABYTES


async def test_grp_05_a_request_over_the_servers_limit_is_told_the_limit() -> None:
    """GRP-05."""
    async with (
        running(ChunkerApplication(), settings(max_message_bytes=LIMIT)) as address,
        open_channel(address) as channel,
    ):
        error = await failure(channel, request_of(2 * LIMIT))
    assert error.reason is Reason.REQUEST_TOO_LARGE
    assert error.metadata["limit"] == str(LIMIT)
    assert int(error.metadata["actual"]) >= 2 * LIMIT


async def test_a_request_over_the_clients_limit_is_told_the_limit() -> None:
    async with (
        running(ChunkerApplication(), settings()) as address,
        open_channel(address, max_message_bytes=LIMIT) as channel,
    ):
        error = await failure(channel, request_of(2 * LIMIT))
    assert (error.reason, error.metadata["limit"]) == (Reason.REQUEST_TOO_LARGE, str(LIMIT))


async def test_an_answer_over_the_clients_limit_is_the_dependencys_fault() -> None:
    async with (
        running(ChunkerApplication(chunk=one_large_chunk), settings()) as address,
        open_channel(address, max_message_bytes=LIMIT) as channel,
    ):
        error = await failure(channel, REQUEST)
    assert (error.reason, error.metadata) == (Reason.DEPENDENCY_INVALID_RESPONSE, {"dependency": "chunker"})


async def test_an_answer_over_the_servers_limit_is_the_dependencys_fault() -> None:
    async with (
        running(ChunkerApplication(chunk=one_large_chunk), settings(max_message_bytes=LIMIT)) as address,
        open_channel(address) as channel,
    ):
        error = await failure(channel, REQUEST)
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    async with running(ChunkerApplication(), settings()) as address:
        pass
    async with open_channel(address) as channel:
        error = await failure(channel, REQUEST)
    assert (error.reason, error.metadata) == (Reason.DEPENDENCY_UNAVAILABLE, {"dependency": "chunker"})


async def test_a_stranger_behind_the_address_is_an_invalid_response() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            error = await failure(channel, REQUEST)
    finally:
        await server.stop(None)
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


async def test_a_fault_that_passes_is_retried() -> None:
    faults: list[KbmeshError] = [ModelNotReady("m", "loading")] * 3

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        if faults:
            raise faults.pop()
        return chunker_pb2.ChunkResponse()

    async with running(ChunkerApplication(chunk=chunk), settings()) as address, open_channel(address) as channel:
        assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()
    assert faults == []


async def test_a_fault_that_is_not_about_availability_is_not_retried() -> None:
    calls = 0

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        nonlocal calls
        calls += 1
        raise Conflict("r", "changed")

    async with running(ChunkerApplication(chunk=chunk), settings()) as address, open_channel(address) as channel:
        assert (await failure(channel, REQUEST)).reason is Reason.CONFLICT
    assert calls == 1


async def test_an_outage_is_not_made_worse_by_retries() -> None:
    calls = 0

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        nonlocal calls
        calls += 1
        raise ModelNotReady("m", "loading")

    async with running(ChunkerApplication(chunk=chunk), settings()) as address, open_channel(address) as channel:
        await asyncio.gather(*(failure(channel, REQUEST) for _ in range(100)))
    assert calls < 200  # 400, were every call tried four times


async def test_a_call_from_outside_of_any_call_works_too() -> None:
    async with running(ChunkerApplication(), settings()) as address, open_channel(address) as channel:
        assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()


async def test_a_typed_error_crosses_the_interceptors_of_a_channel() -> None:
    application = ChunkerApplication(chunk=raising(Conflict("handbook", "changed")))
    async with running(application, settings()) as address, open_channel(address) as channel:
        error = await failure(channel, REQUEST)
    assert (error.reason, error.metadata) == (Reason.CONFLICT, {"resource": "handbook"})


def test_grp_02_a_client_never_pings_more_often_than_its_server_allows() -> None:
    """GRP-02."""
    client = dict(http2.client_options(max_message_bytes=LIMIT))
    server = dict(http2.server_options(max_message_bytes=LIMIT))
    assert server["grpc.http2.min_recv_ping_interval_without_data_ms"] < client["grpc.keepalive_time_ms"]
    # Callers choose their own; every 10 s is the usual least.
    assert server["grpc.http2.min_recv_ping_interval_without_data_ms"] < 10_000
    assert server["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1


async def idle_call(allowed_milliseconds: int, *, seconds: float) -> bytes:
    """A call that is idle while its client pings once a second: gRPC's least interval."""

    async def slow(_request: bytes, _context: Context) -> bytes:
        await asyncio.sleep(seconds)
        return b"answered"

    server = grpc.aio.server(
        options=http2.server_options(max_message_bytes=LIMIT, min_ping_interval_milliseconds=allowed_milliseconds)
    )
    handlers = {"Slow": grpc.unary_unary_rpc_method_handler(slow)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = http2.client_options(max_message_bytes=LIMIT, keepalive_milliseconds=1000)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            response: bytes = await channel.unary_unary("/test.Service/Slow")(b"")
            return response
    finally:
        await server.stop(None)


async def test_grp_02_an_idle_connection_survives_its_pings() -> None:
    """GRP-02, thirty times as fast: at the ratio of the real pair, and against gRPC's default of 5 minutes."""
    pair = http2.MIN_PING_INTERVAL_MILLISECONDS * 1000 // http2.KEEPALIVE_MILLISECONDS
    ours, default = await asyncio.gather(
        idle_call(pair, seconds=5), idle_call(300_000, seconds=60), return_exceptions=True
    )
    assert ours == b"answered"
    assert isinstance(default, grpc.aio.AioRpcError)
    assert default.code() is grpc.StatusCode.UNAVAILABLE
