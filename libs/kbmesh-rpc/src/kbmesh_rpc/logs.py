"""Logs: one JSON object a line on stderr, with the ids of the request and the trace, and no text of a request."""

import hashlib
import logging
import sys

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from kbmesh_rpc.call import optional_call
from kbmesh_rpc.settings import ServerSettings

_OWN = ("kbmesh", "kbmesh_rpc", "kbmesh_onnx", "kbmesh_edge")
"""Packages whose debug lines hold no text of a request; the service's own is another."""


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A structlog logger. `name` is the module's."""
    return structlog.stdlib.get_logger(name)


def configure_logging(settings: ServerSettings, *, service: str) -> None:
    """Sends structlog's and the standard library's logs to stderr in `settings.log_format`. Call it once a process."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _ServiceName(service),
        add_call,
        add_trace,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(settings.log_format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    # At debug, libraries log what they send: statements with their parameters, bodies of requests. And their lines,
    # several for each call, are about themselves.
    root.setLevel(max(logging.INFO, level))
    for own in (*_OWN, f"kbmesh_{service}"):
        logging.getLogger(own).setLevel(level)
    logging.captureWarnings(True)


def add_call(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the id of the current call and a hash of its tenant. A tenant's name may be a customer's."""
    call = optional_call()
    if call is not None:
        event.setdefault("request_id", call.request_id)
        event.setdefault("tenant_hash", tenant_hash(call.tenant))
    return event


def add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the ids of the current span."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def tenant_hash(tenant: str) -> str:
    """Twelve hexadecimal digits that stand for a tenant in logs."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:12]


class _ServiceName:
    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = self._service
        return event


def _renderers(log_format: str) -> list[Processor]:
    if log_format == "console":
        # A traceback with the values of locals, which is the renderer's default, would show text of requests.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
