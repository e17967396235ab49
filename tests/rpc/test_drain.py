"""An operator rolls out a new version: the old pods get SIGTERM and lose no call."""

import asyncio
import signal

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.drain import Drain
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import RunningServer, running
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import CHUNKER, ChunkerApplication, Context, settings, stub
from rpc.conftest import Start
from virtual_time import VirtualLoop, run_virtually

REQUEST = chunker_pb2.ChunkRequest()

Chunking = grpc.aio.UnaryUnaryCall[chunker_pb2.ChunkRequest, chunker_pb2.ChunkResponse]


def begin(channel: grpc.aio.Channel) -> Chunking:
    """Sends a call that is answered when the server's gate opens."""
    return stub(channel).Chunk(REQUEST, timeout=3600)


async def reason_of(channel: grpc.aio.Channel) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(channel).Chunk(REQUEST)
    return from_rpc_error(caught.value, dependency="chunker").reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_grp_03_calls_in_flight_finish_and_new_ones_are_refused(start: Start, number: signal.Signals) -> None:
    """GRP-03."""
    server = await start()
    server.allow("warm")
    async with grpc.aio.insecure_channel(await server.address()) as channel:
        await server.logged("serving")
        health = health_pb2_grpc.HealthStub(channel)
        watch = aiter(health.Watch(health_pb2.HealthCheckRequest(service=CHUNKER)))
        assert (await anext(watch)).status == health_pb2.HealthCheckResponse.SERVING
        calls = [begin(channel) for _ in range(20)]
        for _ in calls:
            await server.logged("begun")
        server.signal(number)
        assert (await anext(watch)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await server.logged("draining"))["in_flight"] == 20
        assert await reason_of(channel) is Reason.SHUTTING_DOWN
        assert not any(call.done() for call in calls)
        server.allow("answer")
        assert await asyncio.gather(*calls) == [chunker_pb2.ChunkResponse()] * 20
    assert await server.exit_code() == 0
    assert server.closed


async def test_a_call_that_outlasts_the_grace_is_cut_off(start: Start) -> None:
    server = await start(grace_seconds=0.2)
    server.allow("warm")
    async with grpc.aio.insecure_channel(await server.address()) as channel:
        await server.logged("serving")
        call = begin(channel)
        await server.logged("begun")
        server.signal(signal.SIGTERM)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.SHUTTING_DOWN
    assert await server.exit_code() == 0
    assert server.closed


def test_a_server_that_drains_hands_over_what_is_still_coming_in_before_it_stops() -> None:
    async def story(loop: VirtualLoop) -> None:
        drain = Drain()
        await drain.quiet(0.1, at_most_seconds=1.0)
        assert loop.time() == 0, "nobody came, so nobody is waited for"
        drain.arrived()
        waiting = asyncio.create_task(drain.quiet(0.1, at_most_seconds=1.0))
        for _ in range(5):
            await asyncio.sleep(0.09)
            assert not waiting.done()
            drain.arrived()
        await waiting
        assert loop.time() == pytest.approx(0.55)

    run_virtually(story)


def test_a_drain_does_not_wait_for_ever_for_callers_who_never_pause() -> None:
    async def story(loop: VirtualLoop) -> None:
        drain = Drain()
        drain.arrived()
        waiting = asyncio.create_task(drain.quiet(0.1, at_most_seconds=1.0))
        while not waiting.done():
            await asyncio.sleep(0.05)
            drain.arrived()
        assert loop.time() == pytest.approx(1.0, abs=0.1)

    run_virtually(story)


async def test_callers_who_never_pause_are_told_that_the_server_shuts_down() -> None:
    server = await RunningServer.start(ChunkerApplication(), settings(grace_seconds=5))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        await stub(channel).Chunk(REQUEST)
        draining = asyncio.create_task(server.drain())
        reasons = []
        while not draining.done() and len(reasons) < 10:
            try:
                await stub(channel).Chunk(REQUEST)
            except grpc.aio.AioRpcError as error:
                reasons.append(from_rpc_error(error, dependency="chunker").reason)
        assert reasons == [Reason.SHUTTING_DOWN] * 10
        await draining


@pytest.mark.parametrize("endless", [False, True])
async def test_a_stream_that_outlasts_the_grace_is_told_why(endless: bool) -> None:
    application = ChunkerApplication(endless=endless)
    server = await RunningServer.start(application, settings(grace_seconds=0))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = stub(channel).ChunkStream()
        await call.write(chunker_pb2.ChunkStreamRequest())
        assert await call.read() == chunker_pb2.ChunkStreamResponse()
        await server.drain()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.SHUTTING_DOWN
    assert application.closed == 1


async def test_a_second_signal_cuts_the_grace_short(start: Start) -> None:
    server = await start(grace_seconds=3600)
    server.allow("warm")
    async with grpc.aio.insecure_channel(await server.address()) as channel:
        await server.logged("serving")
        call = begin(channel)
        await server.logged("begun")
        server.signal(signal.SIGINT)
        await server.logged("draining")
        server.signal(signal.SIGINT)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.SHUTTING_DOWN
    assert await server.exit_code() == 0
    assert server.closed


async def test_an_endless_stream_does_not_hold_up_a_drain() -> None:
    begun = asyncio.Event()

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        begun.set()
        await asyncio.Event().wait()
        return chunker_pb2.ChunkResponse()

    application = ChunkerApplication(chunk=chunk, endless=True)
    server = await RunningServer.start(application, settings(grace_seconds=3600))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = stub(channel).Chunk(REQUEST, timeout=3600)
        await begun.wait()
        await server.drain()
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    assert application.closed == 1


async def test_a_caller_that_goes_away_does_not_hold_up_a_drain() -> None:
    begun = asyncio.Event()

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        begun.set()
        await asyncio.Event().wait()
        return chunker_pb2.ChunkResponse()

    server = await RunningServer.start(ChunkerApplication(chunk=chunk), settings(grace_seconds=3600))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = stub(channel).Chunk(REQUEST, timeout=3600)
        await begun.wait()
        draining = asyncio.create_task(server.drain())
        call.cancel()
        await draining


async def test_a_caller_of_two_replicas_does_not_notice_that_one_drains(start: Start) -> None:
    server = await start()
    server.allow("warm")
    draining_address = await server.address()
    await server.logged("serving")
    async with (
        running(ChunkerApplication(), settings()) as other_address,
        grpc.aio.insecure_channel(draining_address) as direct,
        open_channel(f"ipv4:{draining_address},{other_address}") as channel,
    ):
        held = begin(direct)
        await server.logged("begun")
        server.signal(signal.SIGTERM)
        await server.logged("draining")
        assert [await stub(channel).Chunk(REQUEST) for _ in range(6)] == [chunker_pb2.ChunkResponse()] * 6
        server.allow("answer")
        await held
    assert await server.exit_code() == 0
