"""KEDA asks one replica of the embedder how much work all of them have."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from externalscaler import externalscaler_pb2 as pb2
from externalscaler.externalscaler_pb2_grpc import ExternalScalerStub
from kbmesh.embedder.v1 import embedder_pb2
from kbmesh.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from kbmesh.load.v1 import load_pb2
from kbmesh.load.v1.load_pb2_grpc import LoadServiceStub
from kbmesh_embedder.application import make_application
from kbmesh_embedder.backends.fake import embed_words
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.scaler.trigger import Peers
from kbmesh_rpc.server import RunningServer
from kbmesh_rpc.status import from_rpc_error
from prometheus_client import REGISTRY

METRIC = "kbmesh_tokens"
PORT = 7402


class Gate:
    """Holds every run of a fake model until it is let go."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def __call__(self, model: str, words: tuple[str, ...]) -> object:
        assert self._open.wait(30)
        return embed_words(model, words)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    gate.let_go()
    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", gate)
    return gate


class Replicas:
    """Embedders on this machine, and the headless name that they stand behind."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.servers: list[RunningServer] = []
        self.behind_the_name: list[str] = []

    async def start(self, **settings: object) -> str:
        """Starts one more, and gives its address."""
        chosen = EmbedderSettings(
            **{"port": 0, "metrics_port": 0, "backend": "fake", "scaler_peers": f"embedder-headless:{PORT}", **settings}
        )
        application = await make_application(chosen)
        server = await RunningServer.start(application, chosen)
        self._stack.push_async_callback(server.drain)
        await application.warm_up()
        await server.ready()
        self.servers.append(server)
        address = f"127.0.0.1:{server.port}"
        self.behind_the_name.append(f"ipv4:{address}")
        return address

    async def resolve(self, peers: Peers) -> Sequence[str]:
        assert peers == Peers(host="embedder-headless", port=PORT)
        return self.behind_the_name


@pytest.fixture
async def replicas(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        made = Replicas(stack)
        # Name resolution is the only part of this that is not real.
        monkeypatch.setattr("kbmesh_rpc.scaler.peer_calls.resolve", made.resolve)
        monkeypatch.setattr("kbmesh_rpc.scaler.registrations.FRESH_SECONDS", 0.0)
        monkeypatch.setattr("kbmesh_rpc.scaler.registrations.STREAM_SECONDS", 0.02)
        yield made
        gate.let_go()


class Keda:
    """Asks as KEDA's operator does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = ExternalScalerStub(channel)

    @staticmethod
    def scaled_object(**metadata: str) -> pb2.ScaledObjectRef:
        given = {"scalerAddress": "embedder:7402", "targetTokens": "20000", **metadata}
        return pb2.ScaledObjectRef(name="embedder", namespace="kbmesh", scalerMetadata=given)

    async def tokens(self, **metadata: str) -> float:
        request = pb2.GetMetricsRequest(scaledObjectRef=self.scaled_object(**metadata), metricName=METRIC)
        (value,) = (await self.stub.GetMetrics(request)).metricValues
        assert value.metricName == METRIC
        return value.metricValueFloat

    async def is_active(self, **metadata: str) -> bool:
        return (await self.stub.IsActive(self.scaled_object(**metadata))).result

    async def refusal(self, **metadata: str) -> KbmeshError:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await self.tokens(**metadata)
        return from_rpc_error(failure.value, dependency="scaler")


@asynccontextmanager
async def keda(address: str) -> AsyncIterator[Keda]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Keda(channel)


async def embed(address: str, texts: Sequence[str], stack: AsyncExitStack) -> "asyncio.Task[object]":
    """Begins a call of texts of 10 tokens, and waits until the replica has counted them: first it has an estimate."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
    request = embedder_pb2.EmbedRequest(texts=texts, input_type=embedder_pb2.INPUT_TYPE_DOCUMENT)
    task = asyncio.ensure_future(EmbedderServiceStub(channel).Embed(request, timeout=60))
    while await load(channel) != 10 * len(texts):
        pass
    return task


async def load(channel: grpc.aio.Channel) -> int | None:
    """Tokens of one replica. None where it drains."""
    try:
        response = await LoadServiceStub(channel).GetLoad(load_pb2.GetLoadRequest())
    except grpc.aio.AioRpcError as error:
        if from_rpc_error(error, dependency="peer").reason is not Reason.SHUTTING_DOWN:
            raise
        return None
    return sum(
        each.queued_interactive_tokens + each.queued_bulk_tokens + each.running_tokens for each in response.models
    )


def texts(number: int, words: int) -> list[str]:
    return [f"text{index} " + "word " * (words - 1) for index in range(number)]


async def test_the_metric_is_the_work_of_all_replicas(replicas: Replicas, gate: Gate) -> None:
    first, second = await replicas.start(), await replicas.start()
    async with AsyncExitStack() as stack, keda(first) as asked:
        assert await asked.tokens() == 0
        assert not await asked.is_active()
        gate.hold()
        # 8 words and 2 special tokens a text.
        calls = [await embed(first, texts(3, 8), stack), await embed(second, texts(5, 8), stack)]
        assert await asked.tokens() == 80
        assert await asked.is_active()
        assert await asked.is_active(activationTokens="79")
        assert not await asked.is_active(activationTokens="80")
        async with keda(second) as other:
            assert await other.tokens() == 80
        gate.let_go()
        await asyncio.gather(*calls)
        assert await asked.tokens() == 0


async def test_the_target_comes_from_the_trigger(replicas: Replicas) -> None:
    async with keda(await replicas.start()) as asked:
        response = await asked.stub.GetMetricSpec(asked.scaled_object(targetTokens="2500.5"))
        (spec,) = response.metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 2501, 2500.5)


async def test_a_replica_that_does_not_answer_is_not_taken_for_idle(replicas: Replicas, gate: Gate) -> None:
    first = await replicas.start()
    replicas.behind_the_name.append("ipv4:127.0.0.1:1")
    async with AsyncExitStack() as stack, keda(first) as asked:
        gate.hold()
        call = await embed(first, texts(4, 8), stack)
        assert await asked.tokens() == 80  # 40, and the mean of those that answered
        gate.let_go()
        await call
        replicas.behind_the_name = ["ipv4:127.0.0.1:1"]
        error = await asked.refusal()
    assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
    assert error.metadata == {"dependency": f"embedder-headless:{PORT}"}


async def test_a_replica_that_comes_back_is_asked_again(replicas: Replicas) -> None:
    first, second = await replicas.start(), await replicas.start()
    async with keda(first) as asked:
        assert await asked.tokens() == 0
        before = _unanswered()
        await replicas.servers[1].drain()
        await asked.tokens()
        assert _unanswered() == before + 1
        replicas.behind_the_name.pop()
        await replicas.start(port=int(second.rpartition(":")[2]))
        while True:
            before = _unanswered()
            await asked.tokens()
            if _unanswered() == before:
                break


def _unanswered() -> float:
    return sum(
        REGISTRY.get_sample_value("kbmesh_scaler_unanswered_total", {"counted_as": each}) or 0.0
        for each in ("last_answer", "mean")
    )


async def test_the_callers_deadline_bounds_the_round(replicas: Replicas) -> None:
    """A replica that hangs costs the caller no more than he has."""
    first = await replicas.start(scaler_timeout_seconds=30.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        replicas.behind_the_name.append(f"ipv4:127.0.0.1:{silent.getsockname()[1]}")
        async with keda(first) as asked:
            before = _unanswered()
            request = pb2.GetMetricsRequest(scaledObjectRef=asked.scaled_object(), metricName=METRIC)
            response = await asked.stub.GetMetrics(request, timeout=1)
    assert response.metricValues[0].metricValueFloat == 0
    assert _unanswered() == before + 1


async def test_one_that_drains_counts_nothing_and_is_no_failure(replicas: Replicas, gate: Gate) -> None:
    first, second = await replicas.start(), await replicas.start(grace_seconds=30)
    async with AsyncExitStack() as stack, keda(first) as asked:
        assert await asked.tokens() == 0
        gate.hold()
        calls = [await embed(first, texts(1, 8), stack), await embed(second, texts(5, 8), stack)]
        draining = asyncio.create_task(replicas.servers[1].drain())
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(second))
        while await load(channel) is not None:
            pass
        assert await asked.tokens() == 10
        gate.let_go()
        await asyncio.gather(*calls, draining)


async def test_the_stream_tells_of_every_change(replicas: Replicas, gate: Gate) -> None:
    address = await replicas.start()
    async with AsyncExitStack() as stack, keda(address) as asked:
        stream = asked.stub.StreamIsActive(asked.scaled_object())
        assert not (await stream.read()).result
        gate.hold()
        call = await embed(address, texts(1, 8), stack)
        assert (await stream.read()).result
        # Where nobody answers the state stays, and the stream with it.
        replicas.behind_the_name, kept = [], replicas.behind_the_name
        await asyncio.sleep(0.1)
        replicas.behind_the_name = kept
        gate.let_go()
        await call
        assert not (await stream.read()).result
        stream.cancel()


async def test_a_stream_does_not_hold_up_a_drain(replicas: Replicas) -> None:
    address = await replicas.start(grace_seconds=60)
    async with keda(address) as asked:
        stream = asked.stub.StreamIsActive(asked.scaled_object())
        await stream.read()
        await asyncio.wait_for(replicas.servers[0].drain(), 10)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_bad_questions_are_refused_by_the_key(replicas: Replicas) -> None:
    async with keda(await replicas.start()) as asked:
        error = await asked.refusal(targetTokens="many")
        assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "scalerMetadata[targetTokens]"})
        error = await asked.refusal(peers="169.254.169.254:80")
        assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "scalerMetadata[peers]"})
        for call in (
            asked.stub.IsActive(pb2.ScaledObjectRef()),
            asked.stub.GetMetricSpec(pb2.ScaledObjectRef()),
            asked.stub.StreamIsActive(pb2.ScaledObjectRef()).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call
            assert from_rpc_error(failure.value, dependency="scaler").reason is Reason.INVALID_FIELD
        wrong = pb2.GetMetricsRequest(scaledObjectRef=asked.scaled_object(), metricName="cpu")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await asked.stub.GetMetrics(wrong)
        assert from_rpc_error(failure.value, dependency="scaler").metadata == {"field": "metricName"}


async def test_each_lane_is_told_apart(replicas: Replicas, gate: Gate) -> None:
    address = await replicas.start(model="one,two")
    async with AsyncExitStack() as stack:
        gate.hold()
        call = await embed(address, texts(1, 8), stack)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        request = embedder_pb2.EmbedRequest(
            texts=texts(2, 8), input_type=embedder_pb2.INPUT_TYPE_DOCUMENT, priority=embedder_pb2.PRIORITY_BULK
        )
        bulk = asyncio.ensure_future(EmbedderServiceStub(channel).Embed(request, timeout=60))
        while True:
            response = await LoadServiceStub(channel).GetLoad(load_pb2.GetLoadRequest())
            one, two = response.models
            if one.queued_bulk_tokens:
                break
            await asyncio.sleep(0.01)
        assert (one.model, one.running_tokens, one.queued_bulk_tokens) == ("one", 10, 20)
        assert (two.model, two.running_tokens, two.queued_interactive_tokens, two.queued_bulk_tokens) == (
            "two",
            0,
            0,
            0,
        )
        assert response.instance
        gate.let_go()
        await asyncio.gather(call, bulk)
