"""Prometheus metrics of gRPC servers and of the calls they make, under the names that gRPC dashboards know.

They are in prometheus_client's default registry, made once for the process and shared by its servers. Label values come
from registered methods only: a caller cannot make series by inventing methods.
"""

import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from wsgiref.simple_server import WSGIServer

import grpc
from google.protobuf import descriptor_pool
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from kbmesh_rpc.errors import Reason

# When each series was made is nobody's question, and would be a series more for each of them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has not annotated it

_LABELS = ("grpc_type", "grpc_service", "grpc_method")
_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

STARTED = Counter("grpc_server_started_total", "Calls that began on the server.", _LABELS)
HANDLED = Counter(
    "grpc_server_handled_total", "Calls that ended on the server, however they did.", (*_LABELS, "grpc_code")
)
HANDLING_SECONDS = Histogram(
    "grpc_server_handling_seconds",
    "Seconds from the start of a call to its end.",
    _LABELS,
    buckets=_SECONDS_BUCKETS,
)
REFUSAL_SECONDS = Histogram(
    "kbmesh_server_refusal_seconds",
    "Seconds from the start of a call to its refusal for want of room (RESOURCE_EXHAUSTED).",
    _LABELS,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
)
IN_FLIGHT = Gauge("kbmesh_server_in_flight_calls", "Calls that have begun and not ended.", _LABELS)
ERRORS = Counter(
    "kbmesh_server_errors_total", "Calls that ended with an error of kbmesh's own, by its reason.", ["reason"]
)
CLIENT_STARTED = Counter("grpc_client_started_total", "Calls that this process began to make.", _LABELS)
CLIENT_HANDLED = Counter(
    "grpc_client_handled_total",
    "Calls that this process made and that ended, however they did.",
    (*_LABELS, "grpc_code"),
)
CLIENT_HANDLING_SECONDS = Histogram(
    "grpc_client_handling_seconds",
    "Seconds from the start of a call that this process made to its end, retries and waiting for a connection too.",
    _LABELS,
    buckets=_SECONDS_BUCKETS,
)
BUILD_INFO = Gauge("kbmesh_build_info", "1, for the versions in its labels.", ["service", "version", "python"])

for _reason in Reason:
    ERRORS.labels(_reason.name)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method, as metrics name it."""

    type: str
    """unary, client_stream, server_stream or bidi_stream."""
    service: str
    name: str

    @property
    def labels(self) -> tuple[str, str, str]:
        """Values for grpc_type, grpc_service and grpc_method."""
        return self.type, self.service, self.name


OTHER = Method(type="unary", service="other", name="other")
"""Every method that is not registered."""


def call_type(*, request_streaming: bool, response_streaming: bool) -> str:
    """The value of grpc_type."""
    if request_streaming:
        return "bidi_stream" if response_streaming else "client_stream"
    return "server_stream" if response_streaming else "unary"


def zero(service: str) -> None:
    """Makes the series of a service's methods, at zero, so that a rate is known from the first call on.

    A service without a descriptor (handlers made by hand) gets its series with its first call."""
    try:
        descriptor = descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return
    for each in descriptor.methods:
        kind = call_type(request_streaming=each.client_streaming, response_streaming=each.server_streaming)
        method = Method(type=kind, service=service, name=each.name)
        STARTED.labels(*method.labels)
        HANDLING_SECONDS.labels(*method.labels)
        REFUSAL_SECONDS.labels(*method.labels)
        IN_FLIGHT.labels(*method.labels)
        for code in grpc.StatusCode:
            HANDLED.labels(*method.labels, code.name)


def zero_client(service: str, methods: Sequence[str]) -> None:
    """Makes the series of calls that this process is going to make, at zero."""
    descriptor = descriptor_pool.Default().FindServiceByName(service)
    for name in methods:
        each = descriptor.methods_by_name[name]
        kind = call_type(request_streaming=each.client_streaming, response_streaming=each.server_streaming)
        labels = Method(type=kind, service=service, name=name).labels
        CLIENT_STARTED.labels(*labels)
        CLIENT_HANDLING_SECONDS.labels(*labels)
        for code in grpc.StatusCode:
            CLIENT_HANDLED.labels(*labels, code.name)


def tell_build(service: str) -> None:
    """Says what runs in this process. `service` is its short name."""
    BUILD_INFO.labels(service, version("kbmesh-rpc"), platform.python_version()).set(1)


def failed(reason: Reason) -> None:
    """Counts an error that a call ended with."""
    ERRORS.labels(reason.name).inc()


def client_began(method: Method) -> None:
    """Counts the start of a call to another service."""
    CLIENT_STARTED.labels(*method.labels).inc()


def client_ended(method: Method, code: grpc.StatusCode, seconds: float) -> None:
    """Counts the end of a call to another service."""
    CLIENT_HANDLED.labels(*method.labels, code.name).inc()
    CLIENT_HANDLING_SECONDS.labels(*method.labels).observe(seconds)


def began(method: Method) -> None:
    """Counts the start of a call."""
    STARTED.labels(*method.labels).inc()
    IN_FLIGHT.labels(*method.labels).inc()


def ended(method: Method, code: grpc.StatusCode, seconds: float) -> None:
    """Counts the end of a call."""
    IN_FLIGHT.labels(*method.labels).dec()
    HANDLED.labels(*method.labels, code.name).inc()
    HANDLING_SECONDS.labels(*method.labels).observe(seconds)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        REFUSAL_SECONDS.labels(*method.labels).observe(seconds)


@dataclass(frozen=True, kw_only=True)
class MetricsServer:
    """A running HTTP server of `/metrics`."""

    server: WSGIServer
    thread: threading.Thread

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.server_port

    def close(self) -> None:
        """Ends it. Blocks for up to half a second."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def start_metrics_server(port: int, *, host: str = "127.0.0.1") -> MetricsServer:
    """Serves the process's metrics over HTTP. Port 0 takes a free one. Raises OSError where the port is taken."""
    server, thread = start_http_server(port, addr=host)
    return MetricsServer(server=server, thread=thread)
