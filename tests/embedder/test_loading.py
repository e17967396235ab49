"""A caller meets an embedder whose model is still loading."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from embedder.calls import Embedder
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import EmbedderApplication
from kbmesh_embedder.backends.fake import FakeBackend
from kbmesh_embedder.backends.port import EmbeddingBackend
from kbmesh_embedder.models import ModelRegistry
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import RunningServer

SERVICE = "kbmesh.embedder.v1.EmbedderService"


@asynccontextmanager
async def listening(
    names: list[str], load: Callable[[str], Awaitable[EmbeddingBackend]]
) -> AsyncIterator[tuple[RunningServer, EmbedderApplication, grpc.aio.Channel]]:
    """A server that has not warmed up, and a channel that does not ask for its health first."""
    settings = EmbedderSettings(port=0, metrics_port=0)
    application = EmbedderApplication(ModelRegistry(names, load), settings)
    server = await RunningServer.start(application, settings)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, application, channel
    finally:
        await server.drain()


async def status(channel: grpc.aio.Channel) -> int:
    health = health_pb2_grpc.HealthStub(channel)
    return (await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))).status


async def test_it_is_not_serving_and_says_so_until_every_model_has_run() -> None:
    """GRP-07: SERVING means that the first call succeeds."""
    loaded = asyncio.Event()

    async def load_slowly(name: str) -> EmbeddingBackend:
        await loaded.wait()
        return FakeBackend(name, limits=QueueLimits())

    async with listening(["slow", "other"], load_slowly) as (server, application, channel):
        embedder = Embedder(channel)
        warming = asyncio.create_task(application.warm_up())
        assert await status(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
        error = await embedder.refusal(["text"])
        assert (error.reason, error.metadata) == (Reason.MODEL_NOT_READY, {"model": "slow"})
        models = (await embedder.stub.ListModels(pb2.ListModelsRequest())).models
        assert [(model.name, model.ready, bool(model.not_ready_reason)) for model in models] == [
            ("slow", False, True),
            ("other", False, True),
        ]

        loaded.set()
        await warming
        await server.ready()
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING
        assert (await embedder.vectors(["text"])).shape == (1, 384)
        models = (await embedder.stub.ListModels(pb2.ListModelsRequest())).models
        assert all(model.ready for model in models)


async def test_one_model_that_cannot_be_loaded_keeps_the_server_from_serving() -> None:
    """GRP-08: ready means all models, not none."""

    async def load(name: str) -> EmbeddingBackend:
        if name == "broken":
            raise OSError("the disk is gone")
        return FakeBackend(name, limits=QueueLimits())

    async with listening(["good", "broken"], load) as (_, application, channel):
        with pytest.raises(OSError, match="disk"):
            await application.warm_up()
        assert await status(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
