"""The part of an OpenTelemetry collector that receives spans, over OTLP, in this process."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """A span, and the service that sent it."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    """1 internal, 2 server, 3 client."""
    links: tuple[tuple[str, str], ...]
    """Trace and span of each."""
    attributes: dict[str, object]
    failed: bool


@dataclass(kw_only=True)
class SpanReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what comes in."""

    resources: list[dict[str, object]] = field(default_factory=list)
    port: int = 0
    _spans: list[ReceivedSpan] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def Export(  # noqa: N802 - the contract's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        with self._lock:
            for group in request.resource_spans:
                resource = _values(group.resource.attributes)
                self.resources.append(resource)
                for scope in group.scope_spans:
                    self._spans += [
                        ReceivedSpan(
                            service=str(resource["service.name"]),
                            name=span.name,
                            trace_id=span.trace_id.hex(),
                            span_id=span.span_id.hex(),
                            parent_id=span.parent_span_id.hex(),
                            kind=span.kind,
                            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                            attributes=_values(span.attributes),
                            failed=span.status.code == 2,
                        )
                        for span in scope.spans
                    ]
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def spans(self) -> list[ReceivedSpan]:
        with self._lock:
            return list(self._spans)

    def trace(self, trace_id: str, *, until: Sequence[str] = (), seconds: float = 20.0) -> list[ReceivedSpan]:
        """The spans of a trace, once spans of all these names are among them."""
        end = time.monotonic() + seconds
        while True:
            found = [span for span in self.spans if span.trace_id == trace_id]
            if set(until) <= {span.name for span in found}:
                return found
            missing = set(until) - {span.name for span in found}
            assert time.monotonic() < end, f"no span {missing} among {sorted({span.name for span in found})}"
            time.sleep(0.1)


def _values(attributes: Sequence[KeyValue]) -> dict[str, object]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)


@contextmanager
def receiving() -> Iterator[SpanReceiver]:
    """A receiver on a free port of the loopback."""
    receiver = SpanReceiver()
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    receiver.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
