"""Traces: OpenTelemetry's API always, its SDK and exporter only where an endpoint is set.

Without the SDK no span is recorded, but a caller's `traceparent` still reaches the services that are called."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import grpc
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_CLIENT_FAULTS = {
    grpc.StatusCode.OK,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
}
"""Codes that are no error of the server's span (OpenTelemetry's semantic conventions for gRPC)."""


class TracingUnavailableError(Exception):
    """An endpoint is set and the packages that export to it are not installed."""


def configure_tracing(endpoint: str, service: str) -> Callable[[], None]:
    """Exports spans to `endpoint` (OTLP over gRPC); nothing where it is empty. Call it once a process.

    Returns a function that sends what is left, for the end of the process. Raises TracingUnavailableError."""
    if not endpoint:
        return _nothing
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailableError(
            "KBMESH_OTLP_ENDPOINT is set, but traces need the extra: pip install 'kbmesh-rpc[otlp]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"kbmesh-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    return provider.shutdown


@contextmanager
def server_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[trace.Span]:
    """The span of a call that is served, the child of its caller's. `method` is `/package.Service/Method`."""
    carrier = {key: value for key, value in metadata if isinstance(value, str)}
    with _tracer().start_as_current_span(
        method.removeprefix("/"),
        context=_PROPAGATOR.extract(carrier),
        kind=trace.SpanKind.SERVER,
        attributes=_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def client_span(method: str) -> tuple[trace.Span, dict[str, str]]:
    """The span of a call that is made, and the metadata that carries it. The caller ends the span."""
    span = _tracer().start_span(
        method.removeprefix("/"), kind=trace.SpanKind.CLIENT, attributes=_attributes(method), record_exception=False
    )
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return span, carrier


def set_code(span: trace.Span, code: grpc.StatusCode, *, server: bool) -> None:
    """Notes how a call ended."""
    span.set_attribute("rpc.grpc.status_code", code.value[0])
    if code is not grpc.StatusCode.OK and not (server and code in _CLIENT_FAULTS):
        span.set_status(trace.StatusCode.ERROR)


def _tracer() -> trace.Tracer:
    return trace.get_tracer("kbmesh_rpc")


def _attributes(method: str) -> dict[str, str]:
    service, _, name = method.removeprefix("/").partition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def _nothing() -> None:
    """There is nothing left to send."""
