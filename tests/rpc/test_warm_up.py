"""A pod is SERVING once it can answer, and not before."""

import asyncio
import gc
import signal
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.garbage import settle
from kbmesh_rpc.server import running, serve
from kbmesh_rpc.settings import ServerSettings
from rpc.chunker_application import CHUNKER, ChunkerApplication, settings, stub
from rpc.conftest import Start

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_grp_07_health_is_not_serving_until_the_warm_up_is_done(start: Start) -> None:
    """GRP-07."""
    server = await start()
    server.allow("answer")
    async with grpc.aio.insecure_channel(await server.address()) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", CHUNKER):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == NOT_SERVING
        server.allow("warm")
        await server.logged("serving")
        for name in ("", CHUNKER):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        await stub(channel).Chunk(chunker_pb2.ChunkRequest())
        server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0


async def test_grp_10_a_long_load_is_no_reason_for_a_new_process(start: Start) -> None:
    """GRP-10: liveness has a name of its own, which does not wait for models; readiness does."""
    server = await start()
    async with grpc.aio.insecure_channel(await server.address()) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            assert (await health.Check(health_pb2.HealthCheckRequest(service="liveness"))).status == SERVING
            assert (await health.Check(health_pb2.HealthCheckRequest(service=CHUNKER))).status == NOT_SERVING
        server.allow("warm")
        await server.logged("serving")
        assert (await health.Check(health_pb2.HealthCheckRequest(service="liveness"))).status == SERVING
        server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0


async def test_calls_go_to_the_replicas_that_are_warm(start: Start) -> None:
    warming = await start()
    async with (
        running(ChunkerApplication(), settings()) as warm_address,
        open_channel(f"ipv4:{await warming.address()},{warm_address}") as channel,
    ):
        assert [await stub(channel).Chunk(chunker_pb2.ChunkRequest()) for _ in range(6)]
    warming.signal(signal.SIGTERM)
    assert await warming.exit_code() == 0
    assert not any(event["event"] == "begun" for event in warming.events)


async def test_grp_08_a_server_that_cannot_load_its_model_never_serves(start: Start) -> None:
    """GRP-08."""
    server = await start(environment={"TEST_MODEL": "no-such-model.onnx"})
    assert await server.exit_code() == 1
    failure = next(event for event in server.events if event["event"] == "the warm-up failed")
    assert "no-such-model.onnx" in failure["exception"]
    assert not any(event["event"] == "serving" for event in server.events)
    assert server.closed


async def test_a_signal_during_the_warm_up_ends_it(start: Start) -> None:
    server = await start()
    await server.address()
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0
    assert server.closed


async def test_a_taken_port_is_an_error_and_not_a_shared_port(start: Start) -> None:
    async with running(ChunkerApplication(), settings()) as address:
        server = await start(port=address.rpartition(":")[2])
        assert await server.exit_code() == 1
        assert any("cannot listen on" in event["event"] for event in server.events)
        assert server.closed


async def test_a_taken_metrics_port_is_an_error(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = await start(metrics_port=taken.getsockname()[1])
        assert await server.exit_code() == 1
        assert any("cannot serve metrics on" in event["event"] for event in server.events)


async def test_an_application_that_cannot_be_made_is_an_error() -> None:
    async def make(_settings: ServerSettings) -> ChunkerApplication:
        raise ValueError("no such folder")

    assert await serve(make, settings()) == 1


async def test_the_garbage_collector_leaves_alone_what_a_warm_server_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking through it all holds every call up, and finds nothing."""
    before = gc.get_threshold()
    warm = asyncio.Event()

    def settle_and_tell() -> None:
        settle()
        warm.set()

    monkeypatch.setattr("kbmesh_rpc.server.settle", settle_and_tell)

    async def make(_settings: ServerSettings) -> ChunkerApplication:
        return ChunkerApplication()

    serving = asyncio.create_task(serve(make, settings()))
    try:
        async with asyncio.timeout(30):
            await warm.wait()
        assert gc.get_freeze_count()
        signal.raise_signal(signal.SIGTERM)
        assert await serving == 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def test_running_closes_an_application_whose_warm_up_fails() -> None:
    application = ChunkerApplication(fault=ValueError("no such model"))
    with pytest.raises(ValueError, match="no such model"):
        async with running(application, settings()):
            raise AssertionError("it is not ready")
    assert application.closed == 1


async def test_watchers_of_health_are_told_at_once() -> None:
    warm = asyncio.Event()
    application = ChunkerApplication(warm=warm)
    async with asyncio.TaskGroup() as tasks:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        release = asyncio.Event()

        async def hold() -> None:
            async with running(application, settings(port=port)):
                await release.wait()

        tasks.create_task(hold())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = health_pb2.HealthCheckRequest(service=CHUNKER)
            watch = aiter(health_pb2_grpc.HealthStub(channel).Watch(request, wait_for_ready=True))
            assert (await anext(watch)).status == NOT_SERVING
            warm.set()
            assert (await anext(watch)).status == SERVING
            release.set()
            assert (await anext(watch)).status == NOT_SERVING
