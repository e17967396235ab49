"""What ingestion tells Prometheus. Labels are outcomes, reasons and kinds, all known at start."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from kbmesh_rpc.errors import Reason
from prometheus_client import Counter, Gauge, Histogram

from kbmesh_retriever.ingest.document import IngestResult, Outcome

DOCUMENTS = Counter(
    "kbmesh_retriever_ingested_documents_total",
    "Documents that were taken in, by what became of them. A failed one is as it was before.",
    ["outcome"],
)
FAILURES = Counter(
    "kbmesh_retriever_ingest_failures_total", "Documents that failed, by the reason of their error.", ["reason"]
)
WARNINGS = Counter(
    "kbmesh_retriever_ingest_warnings_total",
    "Warnings about documents that were taken in: what was left out of them, cut off or could not be counted.",
    ["reason"],
)
EMBEDDED_CHUNKS = Counter("kbmesh_retriever_ingest_embedded_chunks_total", "Chunks for which vectors were made.")
TOKENS = Counter("kbmesh_retriever_ingest_tokens_total", "Tokens of the chunks for which vectors were made.")
TRUNCATED_CHUNKS = Counter(
    "kbmesh_retriever_ingest_truncated_chunks_total", "Chunks whose end the model could not read."
)
SECONDS = Histogram(
    "kbmesh_retriever_ingest_document_seconds",
    "Seconds from the moment a document was read from its stream to its result.",
    ["outcome"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
IN_WORK = Gauge("kbmesh_retriever_ingest_documents_in_work", "Documents that are being taken in.")
BYTES_IN_WORK = Gauge("kbmesh_retriever_ingest_bytes_in_work", "Bytes of the documents that are being taken in.")

SweepKind = Literal["generation", "knowledge_base"]
SWEEPS = Counter(
    "kbmesh_retriever_sweeps_total",
    "Rounds of the sweeper, which deletes from the vector store what no reader can need: ok where all that was due is "
    "gone, failed where some of it is left for the next one.",
    ["outcome"],
)
SWEPT = Counter("kbmesh_retriever_swept_total", "What the sweeper deleted.", ["kind"])
SWEEP_LEFT = Gauge(
    "kbmesh_retriever_sweep_left", "What the last round found due and could not delete: orphans in the vector store."
)
LAST_SWEEP = Gauge(
    "kbmesh_retriever_last_sweep_timestamp_seconds", "Unix time of the last round that was ok; 0 before the first."
)
RebuildEvent = Literal["started", "finished", "cancelled"]
REBUILDS = Counter("kbmesh_retriever_rebuilds_total", "Rebuilds of knowledge bases, by what happened.", ["event"])

for _outcome in get_args(Outcome):
    DOCUMENTS.labels(_outcome)
    SECONDS.labels(_outcome)
for _reason in Reason:
    FAILURES.labels(_reason.name)
    WARNINGS.labels(_reason.name)
for _ok in ("ok", "failed"):
    SWEEPS.labels(_ok)
for _kind in get_args(SweepKind):
    SWEPT.labels(_kind)
for _event in get_args(RebuildEvent):
    REBUILDS.labels(_event)


@contextmanager
def working(
    size_bytes: int, *, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Callable[[IngestResult], None]]:
    """Around one document. Gives what counts its result."""
    started = clock()
    IN_WORK.inc()
    BYTES_IN_WORK.inc(size_bytes)
    try:
        yield lambda result: _count(result, clock() - started)
    finally:
        IN_WORK.dec()
        BYTES_IN_WORK.dec(size_bytes)


def _count(result: IngestResult, seconds: float) -> None:
    DOCUMENTS.labels(result.outcome).inc()
    SECONDS.labels(result.outcome).observe(seconds)
    if result.error is not None:
        FAILURES.labels(result.error.reason.name).inc()
    for warning in result.warnings:
        WARNINGS.labels(Reason(warning.reason).name).inc()
    EMBEDDED_CHUNKS.inc(result.embedded)
    TOKENS.inc(result.tokens)
    TRUNCATED_CHUNKS.inc(result.truncated)


def swept(kind: SweepKind, count: int) -> None:
    """Counts what was deleted."""
    SWEPT.labels(kind).inc(count)


def sweep_ended(*, left: int, now: float) -> None:
    """Counts a round. `left` is what could not be deleted; `now` is Unix time."""
    SWEEPS.labels("failed" if left else "ok").inc()
    SWEEP_LEFT.set(left)
    if not left:
        LAST_SWEEP.set(now)


def sweep_failed() -> None:
    """Counts a round that could not even learn what is due."""
    SWEEPS.labels("failed").inc()


def rebuild(event: RebuildEvent) -> None:
    """Counts what happened to a rebuild."""
    REBUILDS.labels(event).inc()
