"""A caller meets an embedder whose model is still loading."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from embedder.calls import Embedder
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import EmbedderApplication
from kbmesh_embedder.backends.fake import FakeBackend, embed_words
from kbmesh_embedder.backends.port import EmbeddingBackend, InputType, Priority, Truncation
from kbmesh_embedder.models import ModelRegistry
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.errors import DeviceLost, DeviceUnavailable, ModelFolderError
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.server import RunningServer
from kbmesh_rpc.status import from_rpc_error

SERVICE = "kbmesh.embedder.v1.EmbedderService"


@asynccontextmanager
async def listening(
    names: list[str], load: Callable[[str], Awaitable[EmbeddingBackend]], *, retry_seconds: float = 0.0
) -> AsyncIterator[tuple[RunningServer, EmbedderApplication, grpc.aio.Channel]]:
    """A server that has not warmed up, and a channel that does not ask for its health first."""
    settings = EmbedderSettings(port=0, metrics_port=0)
    application = EmbedderApplication(ModelRegistry(names, load, retry_seconds=retry_seconds), settings)
    server = await RunningServer.start(application, settings)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, application, channel
    finally:
        await server.drain()


async def status(channel: grpc.aio.Channel, name: str = SERVICE) -> int:
    health = health_pb2_grpc.HealthStub(channel)
    return (await health.Check(health_pb2.HealthCheckRequest(service=name))).status


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


async def test_one_model_that_cannot_be_loaded_keeps_the_server_from_serving_until_it_can() -> None:
    """GRP-08: ready means all models, not none; those that are there answer by name meanwhile."""
    broken = True

    async def load(name: str) -> EmbeddingBackend:
        if broken and name == "broken":
            raise OSError("the disk is gone")
        return FakeBackend(name, limits=QueueLimits())

    async with listening(["good", "broken"], load, retry_seconds=0.01) as (server, application, channel):
        embedder = Embedder(channel)
        warming = asyncio.create_task(application.warm_up())
        models = await until_told(embedder, "broken")
        assert "the disk is gone" in models["broken"].not_ready_reason
        assert models["good"].ready
        assert await status(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await status(channel, "liveness") == health_pb2.HealthCheckResponse.SERVING
        assert (await embedder.vectors(["text"], model="good")).any()
        assert (await embedder.refusal(["text"], model="broken")).reason is Reason.MODEL_NOT_READY
        broken = False
        await warming
        await server.ready()
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING


async def test_a_model_that_cannot_be_loaded_ends_the_warm_up_where_it_is_not_to_be_tried_again() -> None:
    async def load(name: str) -> EmbeddingBackend:
        raise OSError("the disk is gone")

    async with listening(["broken"], load) as (_, application, channel):
        with pytest.raises(OSError, match="disk"):
            await application.warm_up()
        assert await status(channel) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_required_device_that_is_not_there_is_not_waited_for() -> None:
    async def load(name: str) -> EmbeddingBackend:
        raise DeviceUnavailable("cuda", available=("cpu",), message="no driver")

    async with listening(["model"], load, retry_seconds=0.01) as (_, application, _):
        with pytest.raises(DeviceUnavailable):
            await application.warm_up()


async def test_a_device_that_is_lost_takes_health_and_liveness_down_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one who waits learns it, ListModels tells why, the other model goes on, and a new session heals it."""
    monkeypatch.setattr("kbmesh_onnx.model_roster.WATCH_SECONDS", 0.01)
    gone = absent = False

    def embed(model: str, words: tuple[str, ...]) -> np.ndarray:
        if gone and model == "lost":
            raise DeviceLost("CUDA failure 719: unspecified launch failure")
        return embed_words(model, words)

    async def load(name: str) -> EmbeddingBackend:
        if absent:
            raise OSError("no device")
        return FakeBackend(name, limits=QueueLimits())

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", embed)
    async with listening(["lost", "other"], load, retry_seconds=0.01) as (server, application, channel):
        embedder = Embedder(channel)
        await application.warm_up()
        await server.ready()
        gone = absent = True
        assert (await embedder.refusal(["text"], model="lost")).reason is Reason.MODEL_NOT_READY
        await until_status(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await status(channel, "liveness") == health_pb2.HealthCheckResponse.NOT_SERVING
        models = await until_told(embedder, "lost")
        assert not models["lost"].ready
        assert models["other"].ready
        assert (await embedder.vectors(["text"], model="other")).any()
        gone = absent = False
        await until_status(channel, health_pb2.HealthCheckResponse.SERVING)
        assert await status(channel, "liveness") == health_pb2.HealthCheckResponse.SERVING
        assert (await embedder.vectors(["text"], model="lost")).any()


async def test_a_device_that_is_lost_while_another_model_cannot_be_loaded_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbmesh_onnx.model_roster.WATCH_SECONDS", 0.01)
    gone = False

    def embed(model: str, words: tuple[str, ...]) -> np.ndarray:
        if gone:
            raise DeviceLost("CUDA failure 719: unspecified launch failure")
        return embed_words(model, words)

    async def load(name: str) -> EmbeddingBackend:
        if gone or name == "broken":
            raise OSError("no such folder")
        return FakeBackend(name, limits=QueueLimits())

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", embed)
    async with listening(["lost", "broken"], load, retry_seconds=0.01) as (_, application, channel):
        embedder = Embedder(channel)
        warming = asyncio.create_task(application.warm_up())
        await until_told(embedder, "broken")
        gone = True
        assert (await embedder.refusal(["text"], model="lost")).reason is Reason.MODEL_NOT_READY
        await until_status(channel, health_pb2.HealthCheckResponse.NOT_SERVING, "liveness")
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)


async def test_a_model_that_fails_on_everything_is_found_out_and_one_met_with_poison_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbmesh_onnx.model_roster.WATCH_SECONDS", 0.01)
    broken = False

    def embed(model: str, words: tuple[str, ...]) -> np.ndarray:
        if broken or words[0] == "poison":
            raise ValueError("the model chokes")
        return embed_words(model, words)

    async def load(name: str) -> EmbeddingBackend:
        return Checked(name, limits=QueueLimits())

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", embed)
    async with listening(["model"], load, retry_seconds=0.01) as (server, application, channel):
        embedder = Embedder(channel)
        await application.warm_up()
        await server.ready()
        for _ in range(5):
            assert (await embedder.embed(["poison"])).receipts[0].HasField("error")
        await asyncio.sleep(0.1)
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING
        broken = True
        error = await first_refusal(embedder)
        assert error.reason is Reason.MODEL_NOT_READY
        await until_status(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        await until_told(embedder, "model")
        broken = False
        await until_status(channel, health_pb2.HealthCheckResponse.SERVING)


class Checked(FakeBackend):
    """Raises where its warm-up gives nothing, as a model with weights does."""

    async def warm_up(self) -> None:
        embeddings = await self.embed(
            ["warm"],
            input_type=InputType.DOCUMENT,
            truncation=Truncation.END,
            priority=Priority.INTERACTIVE,
            deadline=None,
        )
        if not embeddings.vectors.any():
            raise ModelFolderError("no vectors")


async def first_refusal(embedder: Embedder) -> KbmeshError:
    while True:
        try:
            await embedder.embed(["text"])
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error, dependency="embedder")


async def until_status(channel: grpc.aio.Channel, wanted: int, name: str = SERVICE) -> None:
    async for answer in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name)):
        if answer.status == wanted:
            return


async def until_told(embedder: Embedder, name: str) -> dict[str, pb2.Model]:
    """The models, once the one of that name has failed."""
    while True:
        models = {model.name: model for model in (await embedder.stub.ListModels(pb2.ListModelsRequest())).models}
        if models[name].not_ready_reason not in {"", "the model is still loading"}:
            return models
        await asyncio.sleep(0.01)
