"""What the reranker tells Prometheus. Labels are models and lanes, which are few and known at start."""

from collections.abc import Sequence

from kbmesh_onnx.batcher import BatchReport, DropReason, Lane
from prometheus_client import Counter, Gauge, Histogram

from kbmesh_reranker.backends.port import DocumentScore
from kbmesh_reranker.relevance import Reranked

QUEUE_TOKENS = Gauge("kbmesh_reranker_queue_tokens", "Tokens that wait for the model.", ["model", "lane"])
RUNNING_TOKENS = Gauge("kbmesh_reranker_running_tokens", "Tokens that the model works on.", ["model"])
TOKENS = Counter("kbmesh_reranker_tokens_total", "Tokens that the model read.", ["model", "lane"])
PADDING_TOKENS = Counter(
    "kbmesh_reranker_padding_tokens_total",
    "Tokens of padding that the model computed beside them. Padding share = padding / (padding + tokens).",
    ["model", "lane"],
)
BATCH_WINDOWS = Histogram(
    "kbmesh_reranker_batch_windows",
    "Windows of documents in one run of the model.",
    ["model", "lane"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
BATCH_FILL = Histogram(
    "kbmesh_reranker_batch_fill_ratio",
    "Tokens of one run, padding included, over the tokens that a run may have.",
    ["model", "lane"],
    buckets=(0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
)
BATCH_SECONDS = Histogram(
    "kbmesh_reranker_batch_seconds",
    "Seconds of one run of the model.",
    ["model", "lane"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
DROPPED_WINDOWS = Counter(
    "kbmesh_reranker_dropped_windows_total",
    "Windows that left the queue before the model took them, because the caller left or the deadline passed.",
    ["model", "lane", "reason"],
)
TRUNCATED_DOCUMENTS = Counter(
    "kbmesh_reranker_truncated_documents_total", "Documents that were longer than all their windows.", ["model"]
)
TRUNCATED_QUERIES = Counter(
    "kbmesh_reranker_truncated_queries_total", "Queries that were longer than the model leaves room for.", ["model"]
)
FAILED_DOCUMENTS = Counter(
    "kbmesh_reranker_failed_documents_total", "Documents that got an error instead of a score.", ["model"]
)

DROP_REASONS: tuple[DropReason, ...] = ("cancelled", "expired", "closed")


class ModelMetrics:
    """The series of one model. Told by its batcher and by the servicer; all of them exist from the start, at zero."""

    def __init__(self, model: str, *, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._queue = {lane: QUEUE_TOKENS.labels(model, lane) for lane in Lane}
        self._running = RUNNING_TOKENS.labels(model)
        self._tokens = {lane: TOKENS.labels(model, lane) for lane in Lane}
        self._padding = {lane: PADDING_TOKENS.labels(model, lane) for lane in Lane}
        self._windows = {lane: BATCH_WINDOWS.labels(model, lane) for lane in Lane}
        self._fill = {lane: BATCH_FILL.labels(model, lane) for lane in Lane}
        self._seconds = {lane: BATCH_SECONDS.labels(model, lane) for lane in Lane}
        self._dropped = {
            (lane, reason): DROPPED_WINDOWS.labels(model, lane, reason) for lane in Lane for reason in DROP_REASONS
        }
        for series in (TRUNCATED_DOCUMENTS, TRUNCATED_QUERIES, FAILED_DOCUMENTS):
            series.labels(model)

    def queued(self, lane: Lane, tokens: int) -> None:
        self._queue[lane].set(tokens)

    def running(self, tokens: int) -> None:
        self._running.set(tokens)

    def ran(self, report: BatchReport) -> None:
        self._tokens[report.lane].inc(report.tokens)
        self._padding[report.lane].inc(report.padded_tokens - report.tokens)
        self._windows[report.lane].observe(report.items)
        self._fill[report.lane].observe(report.padded_tokens / self._batch_tokens)
        self._seconds[report.lane].observe(report.seconds)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self._dropped[lane, reason].inc(items)


def count_results(model: str, reranked: Reranked) -> None:
    """Counts what a call's results tell of cuts and failures."""
    scores = [result.score for result in reranked.results]
    count_texts(model, scores, query_tokens_cut=reranked.query_tokens_cut)


def count_texts(model: str, scores: Sequence[DocumentScore], *, query_tokens_cut: int) -> None:
    """Counts what scores tell of cuts and failures."""
    cut = sum(score.tokens_cut > 0 for score in scores)
    failed = sum(score.error is not None for score in scores)
    if cut:
        TRUNCATED_DOCUMENTS.labels(model).inc(cut)
    if failed:
        FAILED_DOCUMENTS.labels(model).inc(failed)
    if query_tokens_cut:
        TRUNCATED_QUERIES.labels(model).inc()
