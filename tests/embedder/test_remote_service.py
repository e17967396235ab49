"""An embedder that serves a model of its own beside one at a vendor's, as its callers and operators see it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import structlog
from embedder.calls import Embedder, matrix, reason
from embedder.remote import KEY_ENV, PROVIDERS, SDKS, embed, needs_sdk, remote_backend, remote_settings
from embedder.test_loading import status, until_status, until_told
from grpc_health.v1 import health_pb2
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import EmbedderApplication, make_application
from kbmesh_embedder.backends.remote_opening import fingerprint, open_remote
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_rpc.errors import FeatureUnsupported, KbmeshError, Reason
from kbmesh_rpc.logs import configure_logging
from kbmesh_rpc.provider.api_key import ApiKeyError
from kbmesh_rpc.server import RunningServer, running
from kbmesh_rpc.settings import to_yaml
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY, generate_latest
from provider_server import KEY, POISON, Fault, ProviderServer, provider_server, vector_of
from pydantic import ValidationError

SECRET_TEXT = "zebrafish rhapsody"


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    monkeypatch.setattr("kbmesh_onnx.model_roster.WATCH_SECONDS", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with provider_server() as started:
        yield started


def both(server: ProviderServer, provider: str = "openai", **changes: object) -> EmbedderSettings:
    return EmbedderSettings(
        port=0,
        metrics_port=0,
        backend="fake",
        model="here,there",
        load_retry_seconds=0.01,
        remote_models={"there": remote_settings(provider, server, **changes)},
    )


@asynccontextmanager
async def serving(
    settings: EmbedderSettings,
) -> AsyncIterator[tuple[RunningServer, EmbedderApplication, grpc.aio.Channel, Embedder]]:
    application = await make_application(settings)
    server = await RunningServer.start(application, settings)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, application, channel, Embedder(channel)
    finally:
        await server.drain()


async def test_models_here_and_there_are_served_side_by_side(server: ProviderServer) -> None:
    async with serving(both(server)) as (running_server, application, channel, embedder):
        await application.warm_up()
        await running_server.ready()
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING
        models = {model.name: model for model in (await embedder.stub.ListModels(pb2.ListModelsRequest())).models}
        there = models["there"]
        assert (there.backend, there.device, there.dimension, there.ready) == ("openai", "remote", 8, True)
        assert models["here"].backend == "fake"
        assert models["here"].is_default
        assert (await embedder.vectors(["text"])).shape == (1, 384)
        response = await embedder.embed(["one two", "three"], model="there", expected_fingerprint=there.fingerprint)
        np.testing.assert_allclose(matrix(response)[0], vector_of("one two"), atol=1e-6)
        assert all(receipt.tokens_estimated for receipt in response.receipts)
        shorter = await embedder.vectors(["one two"], model="there", dimensions=4)
        first = vector_of("one two")[:4]
        np.testing.assert_allclose(shorter[0], first / np.linalg.norm(first), atol=1e-6)
        counts = await embedder.stub.CountTokens(pb2.CountTokensRequest(model="there", texts=["one"]))
        assert counts.counts[0].estimated
        assert not (await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=["one"]))).counts[0].estimated


async def test_what_concerns_one_text_is_in_its_receipt_and_what_concerns_all_ends_the_call(
    server: ProviderServer,
) -> None:
    async with serving(both(server, attempts=1)) as (_, application, _, embedder):
        await application.warm_up()
        response = await embedder.embed(["fine", POISON], model="there")
        assert not response.receipts[0].HasField("error")
        assert reason(response.receipts[1].error) is Reason.INFERENCE_FAILED
        server.faults.append(Fault(status=429, headers={"retry-after": "30"}))
        error = await embedder.refusal(["fine"], model="there")
        assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
        assert error.metadata == {"dependency": "openai", "cause": "rate_limit"}
        assert error.retry_after_seconds == 30


async def test_a_vendor_that_is_down_at_the_start_does_not_keep_the_server_from_serving(
    server: ProviderServer,
) -> None:
    server.faults.append(Fault(status=503, times=-1))
    async with serving(both(server, attempts=1)) as (running_server, application, channel, embedder):
        await application.warm_up()
        await running_server.ready()
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING
        assert (await embedder.refusal(["one"], model="there")).reason is Reason.DEPENDENCY_UNAVAILABLE
        server.faults.clear()
        assert (await embedder.vectors(["one"], model="there")).any()


async def test_a_key_that_is_taken_away_takes_health_down_and_the_process_stays_alive(
    server: ProviderServer,
) -> None:
    async with serving(both(server)) as (running_server, application, channel, embedder):
        await application.warm_up()
        await running_server.ready()
        server.key = "another"
        error = await embedder.refusal(["one"], model="there")
        assert error.metadata["cause"] == "credentials"
        await until_status(channel, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await status(channel, "liveness") == health_pb2.HealthCheckResponse.SERVING
        models = await until_told(embedder, "there")
        assert "does not take the key" in models["there"].not_ready_reason
        assert (await embedder.refusal(["one"], model="there")).reason is Reason.MODEL_NOT_READY
        assert (await embedder.vectors(["one"], model="here")).any()
        server.key = KEY
        await until_status(channel, health_pb2.HealthCheckResponse.SERVING)
        assert (await embedder.vectors(["one"], model="there")).any()


async def test_one_refusal_that_the_next_try_does_not_meet_changes_nothing(server: ProviderServer) -> None:
    async with serving(both(server)) as (running_server, application, channel, embedder):
        await application.warm_up()
        await running_server.ready()
        server.faults.append(Fault(status=403))
        assert (await embedder.refusal(["one"], model="there")).metadata["cause"] == "credentials"
        await asyncio.sleep(0.1)
        assert await status(channel) == health_pb2.HealthCheckResponse.SERVING
        assert (await embedder.vectors(["one"], model="there")).any()


async def test_a_caller_who_cancels_his_call_ends_the_one_to_the_vendor(server: ProviderServer) -> None:
    async with serving(both(server)) as (_, application, _, embedder):
        await application.warm_up()
        await server.arrived.acquire()
        server.hold = asyncio.Event()
        request = pb2.EmbedRequest(model="there", texts=["one"], input_type=pb2.INPUT_TYPE_QUERY)
        call = embedder.stub.Embed(request)
        await server.arrived.acquire()
        call.cancel()
        await server.left.acquire()


async def test_without_its_sdk_the_server_says_which_extra_is_missing(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = both(server)

    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("kbmesh_embedder.backends.openai.import_module", absent)
    application = await make_application(settings)
    with pytest.raises(FeatureUnsupported) as failure:
        await application.warm_up()
    assert "kbmesh-embedder[openai]" in failure.value.message
    await application.close()


async def test_without_a_key_the_model_waits_for_one_and_names_the_place(
    server: ProviderServer, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    async with serving(both(server, api_key_file=file)) as (_, application, _, embedder):
        warming = asyncio.create_task(application.warm_up())
        models = await until_told(embedder, "there")
        assert str(file) in models["there"].not_ready_reason
        file.write_text(KEY)
        await warming
        assert (await embedder.vectors(["one"], model="there")).any()


class Records(logging.Handler):
    """Everything that is logged, whoever logs it, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def everything_logged() -> Iterator[list[str]]:
    """At debug, where SDKs are most talkative, in the form in which the server writes it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging(EmbedderSettings(port=0, metrics_port=0, log_level="debug"), service="embedder")
    formatter = root.handlers[0].formatter
    records = Records()
    records.setFormatter(formatter)
    root.handlers[:] = [records]
    yield records.lines
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name, *_, **__: provider.get_tracer(name))
    return exporter


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_key_and_no_text_is_in_any_log_error_metric_or_trace(
    provider: str, server: ProviderServer, everything_logged: list[str], spans: InMemorySpanExporter
) -> None:
    settings = both(server, provider, attempts=2)
    told: list[str] = [to_yaml(settings), repr(settings), str(settings.remote_models)]
    echo = json.dumps({"error": {"message": f"{KEY} {SECRET_TEXT}"}, "message": f"{KEY} {SECRET_TEXT}"}).encode()
    faults = [Fault(status=code, body=echo, times=2) for code in (400, 401, 403, 404, 413, 422, 429, 500)]
    faults += [
        Fault(status=200, body=f"<html>{KEY} {SECRET_TEXT}</html>".encode()),
        Fault(status=200, body=echo),
        Fault(half=True, times=2),
        Fault(delay_seconds=5, times=2),
    ]
    async with serving(settings) as (_, application, _, embedder):
        await application.warm_up()
        await embedder.embed([SECRET_TEXT], model="there")
        for fault in faults:
            server.faults[:] = [fault]
            request = pb2.EmbedRequest(model="there", texts=[SECRET_TEXT], input_type=pb2.INPUT_TYPE_QUERY)
            try:
                told.append(str((await embedder.stub.Embed(request, timeout=0.3)).receipts))
            except grpc.aio.AioRpcError as error:
                told += [str(error), error.details() or "", str(error.trailing_metadata())]
            server.faults.clear()
            # A refusal has the model tried, which must not be in the way of the next.
            await asyncio.sleep(0.02)
        told.append(str((await embedder.stub.ListModels(pb2.ListModelsRequest())).models))
    told.append(generate_latest(REGISTRY).decode())
    told += [span.to_json() for span in spans.get_finished_spans()]
    assert any("provider_failed" in line for line in everything_logged)
    for line in (*told, *everything_logged):
        for word in (KEY, KEY[:12], *SECRET_TEXT.split()):
            assert word not in line


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_sdk_has_no_logs_and_no_retries_of_its_own(
    provider: str, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults.append(Fault(status=500, times=-1))
    async with remote_backend(provider, server, attempts=1) as backend:
        for name in (SDKS[provider], f"{SDKS[provider]}.anything", "httpx", "httpx2", "httpcore", "httpcore2"):
            assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL), name
        with pytest.raises(KbmeshError):
            await embed(backend, ["one"])
    assert len(server.requests) == 1


async def test_metrics_of_a_model_are_there_at_zero_and_count(server: ProviderServer) -> None:
    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"kbmesh_embedder_provider_{name}", {"model": "counted", **labels})

    settings = EmbedderSettings(
        port=0, metrics_port=0, model="counted", remote_models={"counted": remote_settings("openai", server)}
    )
    async with (
        running(await make_application(settings), settings) as target,
        grpc.aio.insecure_channel(target) as channel,
    ):
        assert (value("calls_total", http_status="2xx"), value("calls_total", http_status="5xx")) == (1, 0)
        assert value("failures_total", cause="quota") == 0
        assert value("retries_total") == 0
        server.faults.append(Fault(status=500, headers={"retry-after": "0"}))
        await Embedder(channel).embed(["one"])
        assert (value("calls_total", http_status="2xx"), value("calls_total", http_status="5xx")) == (2, 1)
        assert (value("failures_total", cause="overloaded"), value("retries_total")) == (1, 1)
        assert value("call_seconds_count") == 3


def test_settings_are_read_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"there": {"provider": "openai", "dimension": 1536, "max_tokens": 8191, "api_key_file": "/run/key"}}
    monkeypatch.setenv("KBMESH_REMOTE_MODELS", json.dumps(told))
    monkeypatch.setenv("KBMESH_MODEL", "here,there")
    settings = EmbedderSettings()
    assert settings.remote_models["there"].dimension == 1536
    assert settings.remote_models["there"].concurrency == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"provider": "nobody"},
        {"base_url": "http://api.example/v1"},
        {"base_url": "https://user:sesame@api.example"},
        {"dimension": 0},
        {"matryoshka_dimensions": (1536,)},
        {"provider": "huggingface"},
        {"provider": "litellm"},
        {"provider": "cohere", "overlong": "cut"},
        {"provider": "huggingface", "base_url": "https://e.example", "dimensions": "ask"},
        {"api_key": "sk-inline"},
        {"concurrency": 0},
    ],
)
def test_settings_that_cannot_be_are_refused_and_quote_no_secret(changes: dict[str, object]) -> None:
    told = {"provider": "openai", "dimension": 1536, "max_tokens": 8191} | changes
    with pytest.raises(ValidationError) as refusal:
        RemoteEmbeddingModel.model_validate(told)
    for problem in refusal.value.errors(include_input=False, include_url=False):
        assert "sesame" not in problem["msg"]
        assert "sk-inline" not in problem["msg"]


def test_a_model_that_is_not_served_is_refused() -> None:
    told = {"there": {"provider": "openai", "dimension": 8, "max_tokens": 16}}
    with pytest.raises(ValidationError):
        EmbedderSettings.model_validate({"remote_models": told})


def test_a_fingerprint_names_all_that_a_vector_depends_on_and_nothing_else() -> None:
    def of(**changes: object) -> str:
        told = {"provider": "openai", "model": "m", "dimension": 8, "max_tokens": 16} | changes
        return fingerprint("name", RemoteEmbeddingModel.model_validate(told))

    assert of() == of(concurrency=2, api_key_env="OTHER", batch_items=3, matryoshka_dimensions=(4,), encoding="float")
    others = [
        {"model": "other"},
        {"dimension": 4},
        {"dimensions": "ask"},
        {"normalize": False},
        {"base_url": "https://other.example/v1"},
        {"base_url": "https://other.example:8443/v1"},
        {"query_prefix": "query: "},
        {"document_prefix": "query: "},
        {"query_input_type": "query"},
        {"revision": "2"},
        {"provider": "litellm", "base_url": "https://api.openai.com"},
        {"provider": "cohere"},
    ]
    assert len({of(), *(of(**changes) for changes in others)}) == len(others) + 1
    moved = of(base_url="https://new.example/v1", identity="api.openai.com")
    assert moved == of()


async def test_a_key_is_needed_where_none_is_said_to_be_needed_not(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_sdk("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ApiKeyError, match="OPENAI_API_KEY"):
        open_remote("m", remote_settings("openai", server, api_key_env=None), limits=QueueLimits())
    server.key = "none"
    backend = open_remote("m", remote_settings("openai", server, api_key_env=""), limits=QueueLimits())
    await backend.warm_up()
    await backend.close()
