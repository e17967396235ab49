"""A person at a dashboard sees what happened, and no text of a request."""

import asyncio
import io
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc import metrics
from kbmesh_rpc.call import CallContext, with_call
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import EmptyText, QueueFull
from kbmesh_rpc.logs import configure_logging, get_logger, tenant_hash
from kbmesh_rpc.server import running
from kbmesh_rpc.telemetry import configure_tracing
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY
from rpc.chunker_application import CHUNKER, ChunkerApplication, Context, raising, settings, stub
from rpc.conftest import Start

REQUEST = chunker_pb2.ChunkRequest()
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = (("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01"),)
UNARY = {"grpc_type": "unary", "grpc_service": CHUNKER, "grpc_method": "Chunk"}


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


class Counting:
    """How much a sample grew since this was made."""

    def __init__(self, name: str, **labels: str) -> None:
        self._name, self._labels = name, labels
        self._before = sample(name, **labels) or 0.0

    @property
    def growth(self) -> float:
        return (sample(self._name, **self._labels) or 0.0) - self._before


async def failing(address: str, **metadata: str) -> grpc.aio.AioRpcError:
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST, metadata=tuple(metadata.items()))
        return caught.value


async def test_calls_are_counted_by_method_and_code() -> None:
    started = Counting("grpc_server_started_total", **UNARY)
    handled = Counting("grpc_server_handled_total", **UNARY, grpc_code="INVALID_ARGUMENT")
    observed = Counting("grpc_server_handling_seconds_count", **UNARY)
    async with running(ChunkerApplication(chunk=raising(EmptyText("document"))), settings()) as address:
        await failing(address)
    assert (started.growth, handled.growth, observed.growth) == (1, 1, 1)
    assert sample("kbmesh_server_in_flight_calls", **UNARY) == 0


async def test_refusals_for_want_of_room_are_timed_apart() -> None:
    refused = Counting("kbmesh_server_refusal_seconds_count", **UNARY)
    full = QueueFull(queued_tokens=9, limit=8, retry_after_seconds=1.0)
    async with running(ChunkerApplication(chunk=raising(full)), settings()) as address:
        await failing(address)
    async with running(ChunkerApplication(chunk=raising(EmptyText("document"))), settings()) as address:
        await failing(address)
    assert refused.growth == 1


async def test_a_method_that_was_never_called_counts_zero() -> None:
    async with running(ChunkerApplication(), settings()):
        pass
    labels = {"grpc_type": "bidi_stream", "grpc_service": CHUNKER, "grpc_method": "ChunkStream"}
    for code in grpc.StatusCode:
        assert sample("grpc_server_handled_total", **labels, grpc_code=code.name) is not None


async def test_invented_methods_make_no_series() -> None:
    other = Counting(
        "grpc_server_handled_total",
        grpc_type="unary",
        grpc_service="other",
        grpc_method="other",
        grpc_code="UNIMPLEMENTED",
    )
    async with running(ChunkerApplication(), settings()) as address, grpc.aio.insecure_channel(address) as channel:
        for path in ("/a.B/C", "/a.B/D", f"/{CHUNKER}/Invented"):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(path)(b"")
    assert other.growth == 3
    values = {value for metric in REGISTRY.collect() for each in metric.samples for value in each.labels.values()}
    assert values.isdisjoint({"a.B", "C", "D", "Invented"})


async def test_health_checks_are_no_calls() -> None:
    def counted() -> dict[str, float]:
        return {
            f"{each.name} {each.labels}": each.value
            for metric in REGISTRY.collect()
            for each in metric.samples
            if "grpc.health.v1.Health" in each.labels.values()
        }

    before = counted()  # what other tests of this process have made of it
    async with running(ChunkerApplication(), settings()) as address, grpc.aio.insecure_channel(address) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert counted() == before


def test_metrics_are_served_over_http() -> None:
    server = metrics.start_metrics_server(0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as response:
            assert b"grpc_server_handled_total" in response.read()
    finally:
        server.close()


async def test_reflection_tells_the_services() -> None:
    async with running(ChunkerApplication(), settings()) as address, grpc.aio.insecure_channel(address) as channel:
        requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        calls = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests)
        [response] = [each async for each in calls]
    names = {service.name for service in response.list_services_response.service}
    assert {CHUNKER, "grpc.health.v1.Health"} <= names


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Configures logging as a server does, and gives what would be on stderr."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    configure_logging(settings(log_level="debug"), service="chunker")
    yield stderr
    logging.captureWarnings(False)
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("kbmesh", "kbmesh_rpc", "kbmesh_onnx", "kbmesh_edge", "kbmesh_chunker"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(log: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def test_an_unknown_exception_is_logged_in_full_and_leaves_without_detail(log: io.StringIO) -> None:
    application = ChunkerApplication(chunk=raising(RuntimeError("password of the database")))
    async with running(application, settings()) as address:
        error = await failing(address, **{"kbmesh-request-id": "r-1", "kbmesh-tenant": "acme", **dict(TRACEPARENT)})
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "password" not in repr(error) + repr(error.trailing_metadata())
    [logged] = [line for line in lines(log) if "exception" in line]
    assert "RuntimeError: password of the database" in logged["exception"]
    assert logged["request_id"] == "r-1"
    assert logged["trace_id"] == TRACE_ID
    assert logged["tenant_hash"] == tenant_hash("acme")
    assert logged["service"] == "chunker"
    assert "acme" not in log.getvalue()


async def test_a_call_is_a_line_without_its_text(log: io.StringIO) -> None:
    request = chunker_pb2.ChunkRequest()
    request.document.text = "the merger is off"
    async with running(ChunkerApplication(), settings()) as address, grpc.aio.insecure_channel(address) as channel:
        await stub(channel).Chunk(request, metadata=(("kbmesh-request-id", "r-2"),))
    [logged] = [line for line in lines(log) if line["event"] == "call"]
    assert (logged["method"], logged["code"], logged["request_id"]) == (f"/{CHUNKER}/Chunk", "OK", "r-2")
    assert "merger" not in log.getvalue()


def test_the_standard_librarys_logs_have_the_same_form(log: io.StringIO) -> None:
    with with_call(CallContext(request_id="r-3", tenant="acme", principals=(), deadline=None)):
        logging.getLogger("sqlalchemy").warning("pool of %d is full", 5)
        get_logger("kbmesh").warning("pool is full", size=5)
    foreign, own = lines(log)
    assert foreign["event"] == "pool of 5 is full"
    assert foreign["request_id"] == own["request_id"] == "r-3"
    assert foreign.keys() | {"size"} == own.keys()


def test_logs_for_people_show_no_values_of_locals() -> None:
    script = """
from kbmesh_rpc.logs import configure_logging, get_logger
from kbmesh_rpc.settings import ServerSettings
configure_logging(ServerSettings(port=0, log_format="console"), service="x")
def work(text): raise ValueError("bad")
try: work("the merger" + " is off")
except ValueError: get_logger("x").exception("failed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "ValueError: bad" in done.stderr
    assert "merger is off" not in done.stderr


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


async def forwarded(address: str) -> None:
    """A call to a service that calls the one at `address` twice, by a unary call and a stream."""
    async with open_channel(address) as inner:

        async def forward(request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
            async for _ in stub(inner).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()])):
                pass
            return await stub(inner).Chunk(request)

        async with (
            running(ChunkerApplication(chunk=forward), settings()) as outer_address,
            grpc.aio.insecure_channel(outer_address) as outer,
        ):
            await stub(outer).Chunk(REQUEST, metadata=TRACEPARENT)


async def test_a_query_is_one_trace_across_services(spans: InMemorySpanExporter) -> None:
    async with running(ChunkerApplication(), settings()) as address:
        await forwarded(address)
    finished = spans.get_finished_spans()
    assert len(finished) == 5
    assert {trace.format_trace_id(span.context.trace_id) for span in finished} == {TRACE_ID}
    by_id = {span.context.span_id: span for span in finished}

    def parents(span: ReadableSpan) -> list[trace.SpanKind]:
        parent = by_id.get(span.parent.span_id) if span.parent else None
        return [span.kind, *(parents(parent) if parent else [])]

    server, client = trace.SpanKind.SERVER, trace.SpanKind.CLIENT
    chains = sorted((parents(span) for span in finished), key=len)
    assert chains == [[server], [client, server], [client, server], [server, client, server], [server, client, server]]
    assert all(span.attributes and span.attributes["rpc.grpc.status_code"] == 0 for span in finished)


async def test_a_failed_call_is_an_error_of_the_client_and_not_of_the_server(spans: InMemorySpanExporter) -> None:
    application = ChunkerApplication(chunk=raising(EmptyText("document")))
    async with running(application, settings()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub(channel).Chunk(REQUEST)
    status = {span.kind: span.status.status_code for span in spans.get_finished_spans()}
    assert status == {trace.SpanKind.SERVER: trace.StatusCode.UNSET, trace.SpanKind.CLIENT: trace.StatusCode.ERROR}


def test_without_an_endpoint_the_sdk_is_not_loaded() -> None:
    assert configure_tracing("", "chunker")() is None
    script = (
        "import sys, kbmesh_rpc.server, kbmesh_rpc.channel\n"
        "print([name for name in sys.modules if re.match('opentelemetry.(sdk|exporter)', name)])"
    ).replace("import sys", "import re, sys")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """The part of an OpenTelemetry collector that receives spans."""

    def __init__(self) -> None:
        self.spans: dict[str, list[str]] = {}

    async def Export(  # noqa: N802 - the contract's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: Context
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for group in request.resource_spans:
            service = next(each.value.string_value for each in group.resource.attributes if each.key == "service.name")
            names = [span.name for scope in group.scope_spans for span in scope.spans]
            self.spans.setdefault(service, []).extend(names)
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_a_process_serves_metrics_and_sends_its_spans(start: Start) -> None:
    collector = Collector()
    receiver = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, receiver)
    receiver_port = receiver.add_insecure_port("127.0.0.1:0")
    await receiver.start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics_port = free.getsockname()[1]
    try:
        server = await start(otlp_endpoint=f"http://127.0.0.1:{receiver_port}", metrics_port=metrics_port)
        server.allow("warm")
        server.allow("answer")
        async with grpc.aio.insecure_channel(await server.address()) as channel:
            await server.logged("serving")
            await stub(channel).Chunk(REQUEST, metadata=TRACEPARENT)
        begun = await server.logged("begun")
        assert begun["loop"].startswith("uvloop")
        assert begun["trace_id"] == TRACE_ID
        page = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics").read()
        )
        assert b'grpc_server_handled_total{grpc_code="OK",grpc_method="Chunk"' in page
        server.signal(signal.SIGTERM)
        assert await server.exit_code() == 0
    finally:
        await receiver.stop(None)
    assert collector.spans == {"kbmesh-slow": [f"{CHUNKER}/Chunk"]}


def test_an_endpoint_without_the_extra_is_a_clear_error() -> None:
    script = """
import sys
sys.modules["opentelemetry.sdk.trace"] = None
from kbmesh_rpc.server import run
from kbmesh_rpc.settings import ServerSettings
run(None, ServerSettings(port=0, otlp_endpoint="http://127.0.0.1:4317"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(r"kbmesh-rpc\[otlp\]", done.stderr)
