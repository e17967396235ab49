"""Batches in traces: one span for each run of the model, linked to every request that has a part in it.

The span stands in the trace of the first request that is recorded, so that it is kept whenever one of its requests is;
the requests' own spans have a link to it. Where none is recorded nothing is made.
"""

from collections.abc import Sequence

from opentelemetry import trace

from kbmesh_onnx.batch_observer import BatchReport

SPAN = "model run"


def begin(requests: Sequence[trace.Span]) -> trace.Span | None:
    """The span of a batch that begins now, with parts of these requests."""
    recorded = {span.get_span_context().span_id: span for span in requests if span.is_recording()}
    if not recorded:
        return None
    spans: Sequence[trace.Span] = list(recorded.values())
    batch = trace.get_tracer("kbmesh_onnx").start_span(
        SPAN,
        context=trace.set_span_in_context(spans[0]),
        links=[trace.Link(span.get_span_context()) for span in spans],
        attributes={"kbmesh.batch.requests": len(spans)},
        record_exception=False,
    )
    for span in spans:
        span.add_link(batch.get_span_context())
    return batch


def end(batch: trace.Span | None, report: BatchReport) -> None:
    """Says what the batch was, and ends its span."""
    if batch is None:
        return
    batch.set_attribute("kbmesh.batch.lane", report.lane.value)
    batch.set_attribute("kbmesh.batch.items", report.items)
    batch.set_attribute("kbmesh.batch.tokens", report.tokens)
    batch.set_attribute("kbmesh.batch.padded_tokens", report.padded_tokens)
    if report.failed:
        batch.set_attribute("kbmesh.batch.failed", report.failed)
        batch.set_status(trace.StatusCode.ERROR)
    batch.end()
