"""`tei.v1` with models of other kinds: prompts, no unit length, no tokens to show, not loaded, broken, draining."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import tiny_models
from kbmesh_embedder.application import EmbedderApplication, make_application
from kbmesh_embedder.backends.fake import FakeBackend, embed_words
from kbmesh_embedder.backends.onnx import OnnxBackend
from kbmesh_embedder.backends.port import EmbeddingBackend, InputType, Priority, Truncation
from kbmesh_embedder.models import ModelRegistry
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_embedder.tei import TeiModel, TextOrder, pool
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.export import export_model
from kbmesh_onnx.layout import ModelSettings
from kbmesh_rpc.errors import EmptyText, InferenceFailed, KbmeshError, Reason, RequestTooLarge
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error
from prometheus_client import REGISTRY
from tei.v1 import tei_pb2 as pb2
from tei.v1 import tei_pb2_grpc

LIMITS = QueueLimits()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models of 64 tokens with random weights."""
    models = tmp_path_factory.mktemp("models")
    source = tmp_path_factory.mktemp("source")
    prompts = ModelSettings(query_prefix="query ", document_prefix="passage ")
    for name, pooling, normalized in [("mean", "mean", True), ("cls", "cls", True), ("plain", "mean", False)]:
        written = tiny_models.write_tiny_encoder(source / name, pooling=pooling, normalized=normalized)
        export_model(written, models / name, settings=prompts)
    return models


@asynccontextmanager
async def opened(folder: Path, name: str) -> AsyncIterator[OnnxBackend]:
    backend = OnnxBackend.open(name, folder / name, device="cpu", require_device="", threads=1, limits=LIMITS)
    try:
        yield backend
    finally:
        await backend.close()


async def tei_model(backend: EmbeddingBackend, *, text_characters: int = 1000) -> TeiModel:
    async def give(name: str) -> EmbeddingBackend:
        return backend

    models = ModelRegistry(["model"], give)
    await models.load()
    return TeiModel(models, text_characters=text_characters)


def order(text: str, **options: object) -> TextOrder:
    return TextOrder(**{"text": text, "truncation": Truncation.END, "prompt_name": None, **options})


async def vector(backend: EmbeddingBackend, text: str, input_type: InputType) -> np.ndarray:
    embeddings = await backend.embed(
        [text], input_type=input_type, truncation=Truncation.END, priority=Priority.BULK, deadline=None
    )
    return embeddings.vectors[0]


async def test_a_prompt_stands_before_a_text_only_where_it_is_named(folder: Path) -> None:
    async with opened(folder, "mean") as backend:
        model = await tei_model(backend)

        async def embedded(prompt_name: str | None, text: str = "port key") -> np.ndarray:
            return (await model.embed(order(text, prompt_name=prompt_name, normalize=True), deadline=None)).vectors

        query = await vector(backend, "port key", InputType.QUERY)
        document = await vector(backend, "port key", InputType.DOCUMENT)
        np.testing.assert_allclose(await embedded("query"), query, atol=1e-5)
        np.testing.assert_allclose(await embedded("document"), document, atol=1e-5)
        np.testing.assert_allclose(await embedded("passage"), document, atol=1e-5)
        np.testing.assert_allclose(await embedded(None, "query port key"), query, atol=1e-5)
        assert not np.allclose(await embedded(None), query, atol=1e-3)
        tokens = await model.tokens("port", prompt_name="query", special_tokens=False)
        assert [(token.text, token.start, token.end) for token in tokens] == [("query", 0, 5), ("port", 6, 10)]


@pytest.mark.parametrize("name", ["mean", "cls", "plain"])
async def test_unit_length_comes_and_goes_with_normalize(folder: Path, name: str) -> None:
    async with opened(folder, name) as backend:
        model = await tei_model(backend)
        tokens = await model.embed_tokens(order("port key"), deadline=None)
        assert tokens.vectors.shape == (4, tiny_models.HIDDEN)
        pooled = tokens.vectors.mean(axis=0) if name != "cls" else tokens.vectors[0]
        plain = await model.embed(order("port key"), deadline=None)
        np.testing.assert_allclose(plain.vectors, pooled, atol=1e-5)
        assert plain.receipt.tokens == 4
        unit = await model.embed(order("port key", normalize=True), deadline=None)
        np.testing.assert_allclose(unit.vectors, pooled / np.linalg.norm(pooled), atol=1e-5)


async def test_texts_with_and_without_vectors_of_tokens_share_a_batch(folder: Path) -> None:
    async with opened(folder, "mean") as backend:
        model = await tei_model(backend)
        texts = ["port", "key cake", "lemon recipe dog fox"] * 4
        alone = [(await model.embed(order(text, normalize=True), deadline=None)).vectors for text in texts[:3]]
        together = await asyncio.gather(
            *(model.embed(order(text, normalize=True), deadline=None) for text in texts),
            *(model.embed_tokens(order(text), deadline=None) for text in texts),
        )
        for index, embedding in enumerate(together[: len(texts)]):
            np.testing.assert_allclose(embedding.vectors, alone[index % 3], atol=1e-5)
        for index, embedding in enumerate(together[len(texts) :]):
            pooled = pool(embedding.vectors, "mean")
            np.testing.assert_allclose(pooled / np.linalg.norm(pooled), alone[index % 3], atol=1e-5)


async def test_the_prompt_is_never_cut_off(folder: Path) -> None:
    async with opened(folder, "mean") as backend:
        model = await tei_model(backend)
        text = "cake " * 70
        cut = await model.embed(order(text, prompt_name="query", truncation=Truncation.START), deadline=None)
        assert (cut.receipt.tokens, cut.receipt.tokens_cut) == (64, 70 + 3 - 64)
        whole = await model.embed(order("query " + "cake " * 61), deadline=None)
        np.testing.assert_allclose(cut.vectors, whole.vectors, atol=1e-5)


async def test_texts_that_cannot_be_read(folder: Path) -> None:
    async with opened(folder, "mean") as backend:
        model = await tei_model(backend, text_characters=10)
        with pytest.raises(EmptyText):
            await model.embed(order(""), deadline=None)
        with pytest.raises(RequestTooLarge):
            await model.embed_tokens(order("x" * 11), deadline=None)
        with pytest.raises(RequestTooLarge):
            await model.tokens("x" * 11, prompt_name=None, special_tokens=False)
        with pytest.raises(RequestTooLarge):
            await model.text([5] * 11, skip_special_tokens=True)


@asynccontextmanager
async def serving(backend: EmbeddingBackend) -> AsyncIterator[tei_pb2_grpc.EmbedStub]:
    async def give(name: str) -> EmbeddingBackend:
        return backend

    settings = EmbedderSettings(port=0, metrics_port=0)
    application = EmbedderApplication(ModelRegistry(["fake"], give), settings)
    async with running(application, settings) as target, grpc.aio.insecure_channel(target) as channel:
        yield tei_pb2_grpc.EmbedStub(channel)


async def failure(call: object) -> tuple[grpc.StatusCode, KbmeshError]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), from_rpc_error(failed.value, dependency="embedder")


def _strange(model: str, words: tuple[str, ...]) -> np.ndarray:
    if words[0] == "poison":
        raise ValueError("the model chokes")
    if words[0] in {"nan", "zero"}:
        return np.full(384, np.nan if words[0] == "nan" else 0, dtype=np.float32)
    return embed_words(model, words)


async def test_a_model_that_fails_is_a_failed_precondition_as_in_that_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", _strange)
    async with serving(FakeBackend("fake", limits=LIMITS)) as stub:
        for word in ("poison", "nan", "zero"):
            code, error = await failure(stub.Embed(pb2.EmbedRequest(inputs=word, normalize=True)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert (error.reason, error.metadata) == (Reason.INFERENCE_FAILED, {"model": "fake"})
        stream = stub.EmbedStream(iter([pb2.EmbedRequest(inputs="fine"), pb2.EmbedRequest(inputs="poison")]))
        assert len((await stream.read()).embeddings) == 384
        code, error = await failure(stream.read())
        assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, Reason.INFERENCE_FAILED)


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


async def test_who_leaves_a_stream_leaves_nothing_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    may_run = threading.Event()

    def slow(model: str, words: tuple[str, ...]) -> np.ndarray:
        assert may_run.wait(30)
        return embed_words(model, words)

    monkeypatch.setattr("kbmesh_embedder.backends.fake.embed_words", slow)
    backend = FakeBackend("fake", limits=QueueLimits(batch_tokens=8))
    backend.warm_up = lambda: asyncio.sleep(0)
    async with serving(backend) as stub:
        try:
            stream = stub.EmbedStream(iter([pb2.EmbedRequest(inputs="a text of some words")] * 20))
            await _until(lambda: backend._batcher.queued_tokens > 0)
            stream.cancel()
            await _until(lambda: backend._batcher.queued_tokens == 0)
        finally:
            may_run.set()


async def test_a_model_without_tokens_to_show_gives_its_vectors_all_the_same() -> None:
    async with serving(FakeBackend("fake", limits=LIMITS)) as stub:
        response = await stub.Embed(pb2.EmbedRequest(inputs="a text", prompt_name="query"))
        np.testing.assert_allclose(response.embeddings, embed_words("fake", ["a", "text"]), atol=1e-6)
        code, error = await failure(stub.EmbedAll(pb2.EmbedAllRequest(inputs="a text")))
        assert (code, error.reason) == (grpc.StatusCode.UNIMPLEMENTED, Reason.FEATURE_UNSUPPORTED)
        code, error = await failure(stub.Embed(pb2.EmbedRequest(inputs=" ")))
        assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.EMPTY_TEXT)


async def test_a_model_that_is_still_loading_is_unavailable() -> None:
    async def never(name: str) -> EmbeddingBackend:
        await asyncio.Event().wait()
        raise AssertionError

    settings = EmbedderSettings(port=0, metrics_port=0)
    application = EmbedderApplication(ModelRegistry(["slow"], never), settings)
    application.warm_up = lambda: asyncio.sleep(0)
    async with running(application, settings) as target, grpc.aio.insecure_channel(target) as channel:
        for call in (
            tei_pb2_grpc.InfoStub(channel).Info(pb2.InfoRequest()),
            tei_pb2_grpc.EmbedStub(channel).Embed(pb2.EmbedRequest(inputs="text")),
            tei_pb2_grpc.TokenizeStub(channel).Tokenize(pb2.EncodeRequest(inputs="text")),
        ):
            code, error = await failure(call)
            assert (code, error.reason) == (grpc.StatusCode.UNAVAILABLE, Reason.MODEL_NOT_READY)


async def test_what_is_cut_is_counted(folder: Path) -> None:
    def cut() -> float:
        return REGISTRY.get_sample_value("kbmesh_embedder_truncated_tokens_total", {"model": "mean"}) or 0.0

    settings = EmbedderSettings(port=0, metrics_port=0, models=folder, model="mean", device="cpu")
    application = await make_application(settings)
    async with running(application, settings) as target, grpc.aio.insecure_channel(target) as channel:
        before = cut()
        await tei_pb2_grpc.EmbedStub(channel).Embed(pb2.EmbedRequest(inputs="cake " * 70, truncate=True))
    assert cut() - before == 70 + 2 - 64


async def test_numbers_that_are_not_finite_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(folder, "mean") as backend:
        model = await tei_model(backend)
        broken = np.full((4, tiny_models.HIDDEN), np.nan, dtype=np.float32)
        monkeypatch.setattr("kbmesh_embedder.tei.pool", lambda rows, pooling: broken[0])
        with pytest.raises(InferenceFailed):
            await model.embed(order("port key"), deadline=None)
