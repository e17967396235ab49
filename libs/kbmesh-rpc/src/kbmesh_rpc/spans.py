"""Spans inside a service: the stages of its work, and what it asks of stores.

They cost next to nothing where nobody records: no span is made without an exporter, nor in a trace that is not
sampled. This module knows nothing of gRPC, so that domain modules may use it. Attributes are counts and names from
closed sets, never text of a request.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from opentelemetry import trace

Attribute = str | bool | int | float

_KINDS = {"internal": trace.SpanKind.INTERNAL, "client": trace.SpanKind.CLIENT}


class _Nothing:
    """In place of a span that nobody records."""

    def __enter__(self) -> trace.Span:
        return trace.INVALID_SPAN

    def __exit__(self, *_: object) -> None:
        return


_NOTHING = _Nothing()


def span(
    name: str, *, kind: Literal["internal", "client"] = "internal", **attributes: Attribute
) -> AbstractContextManager[trace.Span]:
    """A child of the current span, current itself inside. An error that leaves it is its status, by its class alone: a
    message might quote a request. `client` is for what is asked of another process."""
    return _recorded(name, kind, attributes) if trace.get_current_span().is_recording() else _NOTHING


@contextmanager
def _recorded(
    name: str, kind: Literal["internal", "client"], attributes: Mapping[str, Attribute]
) -> Iterator[trace.Span]:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    with trace.get_tracer("kbmesh").start_as_current_span(
        name, kind=_KINDS[kind], attributes=named, record_exception=False, set_status_on_exception=False
    ) as made:
        try:
            yield made
        except BaseException as error:
            made.set_attribute("error.type", type(error).__name__)
            if isinstance(error, Exception):
                made.set_status(trace.StatusCode.ERROR)
            raise


def link_to(other: trace.SpanContext) -> None:
    """Notes on the current span that another one, perhaps of another trace, did its work."""
    current = trace.get_current_span()
    if current.is_recording() and other.is_valid:
        current.add_link(other)


def current_context() -> trace.SpanContext:
    """The current span, for `link_to`. Not valid where there is none."""
    return trace.get_current_span().get_span_context()
