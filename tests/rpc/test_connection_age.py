"""Connections age, so that callers find new replicas; no call is lost by it."""

import asyncio

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.http2 import server_options
from kbmesh_rpc.server import running
from rpc.chunker_application import ChunkerApplication, Context, settings, stub

REQUEST = chunker_pb2.ChunkRequest()


async def test_calls_go_on_over_connection_after_connection() -> None:
    peers: list[str] = []

    async def chunk(_request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        peers.append(context.peer())
        await asyncio.sleep(0.01)
        return chunker_pb2.ChunkResponse()

    async with (
        running(ChunkerApplication(chunk=chunk), settings(max_connection_age_seconds=1)) as address,
        open_channel(address) as channel,
    ):

        async def caller() -> None:
            while len(set(peers)) < 3:
                await stub(channel).Chunk(REQUEST)

        await asyncio.gather(*(caller() for _ in range(4)))
    assert len(set(peers)) >= 3


async def test_a_call_that_is_older_than_its_connection_may_be_has_the_grace() -> None:
    """A call that takes longer than the age ends well where the grace holds it, and is cut where it does not."""

    async def slow(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        await asyncio.sleep(4)
        return chunker_pb2.ChunkResponse()

    async def outcome(grace_seconds: float) -> chunker_pb2.ChunkResponse:
        options = settings(max_connection_age_seconds=1, grace_seconds=grace_seconds)
        async with (
            running(ChunkerApplication(chunk=slow), options) as address,
            grpc.aio.insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel,
        ):
            response: chunker_pb2.ChunkResponse = await stub(channel).Chunk(REQUEST, timeout=60)
            return response

    held, cut = await asyncio.gather(outcome(30), outcome(0), return_exceptions=True)
    assert held == chunker_pb2.ChunkResponse()
    assert isinstance(cut, grpc.aio.AioRpcError)
    assert cut.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("grace", "milliseconds"), [(30.0, 30_000), (0.0, 1000)])
def test_the_grace_of_a_connection_is_that_of_a_drain(grace: float, milliseconds: int) -> None:
    options = dict(server_options(max_message_bytes=1024, max_connection_age_seconds=60, grace_seconds=grace))
    assert options["grpc.max_connection_age_ms"] == 60_000
    assert options["grpc.max_connection_age_grace_ms"] == milliseconds
    assert "grpc.max_connection_age_ms" not in dict(server_options(max_message_bytes=1024))
