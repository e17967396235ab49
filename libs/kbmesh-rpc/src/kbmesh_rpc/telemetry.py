"""Traces: OpenTelemetry's API always, its SDK and exporter only where an endpoint is set.

Without the SDK no span is recorded, but a caller's `traceparent` still reaches the services that are called. Sampling,
batches, limits and the exporter's details are set by OpenTelemetry's own environment variables, such as
OTEL_TRACES_SAMPLER, which its SDK reads."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import grpc
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kbmesh_rpc import metrics
from kbmesh_rpc.logs import tenant_hash

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
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
    """Exports spans to `endpoint` (OTLP over gRPC), or to where OTEL_EXPORTER_OTLP_ENDPOINT says. Nothing is done where
    neither is set, and where OTEL_SDK_DISABLED is true or OTEL_TRACES_EXPORTER is none. Call it once a process.
    Also tells the metrics which service this process is.

    Returns a function that sends what is left, for the end of the process. Raises TracingUnavailableError."""
    metrics.tell_build(service)
    named = next((name for name in _ENDPOINTS if os.environ.get(name)), "")
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    if off or not (endpoint or named):
        return _nothing
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailableError(
            f"{'KBMESH_OTLP_ENDPOINT' if endpoint else named} is set, but traces need the extra: "
            "pip install 'kbmesh-rpc[otlp]'"
        ) from error
    # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say is over what is said here.
    own = Resource({"service.version": version("kbmesh-rpc"), "service.namespace": "kbmesh"})
    resource = own.merge(Resource.create())
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        resource = resource.merge(Resource({"service.name": f"kbmesh-{service}"}))
    provider = TracerProvider(resource=resource)
    # None: the exporter reads the environment itself.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None)))
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


def set_caller(span: trace.Span, *, request_id: str, tenant: str) -> None:
    """Notes what finds the call's lines in the logs. A tenant's name may be a customer's: its hash stands for it."""
    if span.is_recording():
        span.set_attribute("kbmesh.request_id", request_id)
        span.set_attribute("kbmesh.tenant_hash", tenant_hash(tenant))


def set_reason(span: trace.Span, reason: str) -> None:
    """Notes the reason of an error, without its words."""
    span.set_attribute("error.type", reason)


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
