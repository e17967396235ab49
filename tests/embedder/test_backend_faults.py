"""Models that misbehave: one bad text fails alone, a full queue says when to come back, the late are dropped."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from embedder.calls import Embedder, matrix, reason
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import EmbedderApplication
from kbmesh_embedder.backends.fake import FakeBackend, embed_words
from kbmesh_embedder.backends.port import EmbeddingBackend
from kbmesh_embedder.models import ModelRegistry
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.batcher import BatchReport, DropReason, Lane, QueueLimits
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import running

LIMITS = QueueLimits(queue_tokens=20, tenant_reserve=0)


@asynccontextmanager
async def serving(backend: EmbeddingBackend) -> AsyncIterator[Embedder]:
    async def give(name: str) -> EmbeddingBackend:
        return backend

    settings = EmbedderSettings(port=0, metrics_port=0)
    application = EmbedderApplication(ModelRegistry(["fake"], give), settings)
    async with running(application, settings) as target, open_channel(target) as channel:
        yield Embedder(channel)


def _strange(model: str, words: tuple[str, ...]) -> np.ndarray:
    if words[0] == "poison":
        raise ValueError("the model chokes")
    if words[0] == "nan":
        return np.full(384, np.nan, dtype=np.float32)
    if words[0] == "zero":
        return np.zeros(384, dtype=np.float32)
    return embed_words(model, words)


@pytest.mark.parametrize("dimensions", [None, 64])
async def test_a_text_without_a_usable_vector_fails_alone(
    monkeypatch: pytest.MonkeyPatch, dimensions: int | None
) -> None:
    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", _strange)
    async with serving(FakeBackend("fake", limits=LIMITS)) as embedder:
        texts = ["good one", "nan", "zero", "poison", "good two"]
        response = await embedder.embed(texts, dimensions=dimensions)
        vectors = matrix(response)
        for index in (1, 2, 3):
            assert reason(response.receipts[index].error) is Reason.INFERENCE_FAILED
            assert response.receipts[index].error.metadata == {"model": "fake"}
            assert not vectors[index].any()
        for index in (0, 4):
            assert not response.receipts[index].HasField("error")
            np.testing.assert_allclose(np.linalg.norm(vectors[index]), 1, atol=1e-5)


class Queue:
    """Knows how many tokens wait."""

    def __init__(self) -> None:
        self.tokens = 0
        self._changed = asyncio.Event()

    def queued(self, lane: Lane, tokens: int) -> None:
        self.tokens = tokens
        self._changed.set()

    def running(self, tokens: int) -> None:
        return

    def ran(self, report: BatchReport) -> None:
        return

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        return

    async def holds(self, tokens: int) -> None:
        while self.tokens != tokens:
            self._changed.clear()
            await self._changed.wait()


async def test_a_full_queue_refuses_and_who_has_left_never_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    may_run, entered = threading.Event(), threading.Event()
    may_run.set()

    def slow(model: str, words: tuple[str, ...]) -> np.ndarray:
        seen.append(words[0])
        entered.set()
        may_run.wait()
        return embed_words(model, words)

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", slow)
    queue = Queue()
    async with serving(FakeBackend("fake", limits=LIMITS, observer=queue)) as embedder:
        may_run.clear()
        entered.clear()
        in_model = asyncio.create_task(embedder.embed(["running"]))
        await asyncio.to_thread(entered.wait)
        leaver = asyncio.create_task(embedder.embed(["leaver " * 15]))
        await queue.holds(17)
        refused = await embedder.refusal(["refused " * 5])
        assert refused.reason is Reason.QUEUE_FULL
        assert refused.metadata == {"queued_tokens": "17", "limit": "20"}
        assert refused.retry_after_seconds is not None
        assert refused.retry_after_seconds > 0
        leaver.cancel()
        await queue.holds(0)
        may_run.set()
        await in_model
        await embedder.embed(["after"])
    assert seen == ["warm", "running", "after"]


async def test_a_call_whose_deadline_passes_in_the_queue_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    may_run, entered = threading.Event(), threading.Event()
    may_run.set()

    def slow(model: str, words: tuple[str, ...]) -> np.ndarray:
        seen.append(words[0])
        entered.set()
        may_run.wait()
        return embed_words(model, words)

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", slow)
    queue = Queue()
    async with serving(FakeBackend("fake", limits=LIMITS, observer=queue)) as embedder:
        may_run.clear()
        entered.clear()
        in_model = asyncio.create_task(embedder.embed(["running"]))
        await asyncio.to_thread(entered.wait)
        request = pb2.EmbedRequest(texts=["late"], input_type=pb2.INPUT_TYPE_QUERY)
        assert await embedder.stub.Embed(request, timeout=0.2).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await queue.holds(0)
        may_run.set()
        await in_model
    assert seen == ["warm", "running"]


async def test_a_request_of_a_stream_that_is_refused_is_told_when_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_run, entered = threading.Event(), threading.Event()
    may_run.set()

    def slow(model: str, words: tuple[str, ...]) -> np.ndarray:
        entered.set()
        may_run.wait()
        return embed_words(model, words)

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", slow)
    queue = Queue()
    async with serving(FakeBackend("fake", limits=LIMITS, observer=queue)) as embedder:
        may_run.clear()
        entered.clear()
        in_model = asyncio.create_task(embedder.embed(["running"]))
        await asyncio.to_thread(entered.wait)
        waiting = asyncio.create_task(embedder.embed(["waiting " * 15]))
        await queue.holds(17)
        request = pb2.EmbedRequest(texts=["refused " * 5], input_type=pb2.INPUT_TYPE_DOCUMENT)
        answers = await embedder.stream([pb2.EmbedStreamRequest(sequence=7, request=request)])
        may_run.set()
        await asyncio.gather(in_model, waiting)
    assert reason(answers[7].error) is Reason.QUEUE_FULL
    assert answers[7].error.retry_after_ms > 0
