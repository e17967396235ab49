"""What the embedder tells Prometheus. Labels are models and lanes, which are few and known at start."""

from kbmesh_onnx.batcher import BatchReport, DropReason, Lane
from prometheus_client import Counter, Gauge, Histogram

from kbmesh_embedder.backends.port import Embeddings, TextReceipt

QUEUE_TOKENS = Gauge("kbmesh_embedder_queue_tokens", "Tokens that wait for the model.", ["model", "lane"])
RUNNING_TOKENS = Gauge("kbmesh_embedder_running_tokens", "Tokens that the model works on.", ["model"])
TOKENS = Counter("kbmesh_embedder_tokens_total", "Tokens that the model read.", ["model", "lane"])
PADDING_TOKENS = Counter(
    "kbmesh_embedder_padding_tokens_total",
    "Tokens of padding that the model computed beside them. Padding share = padding / (padding + tokens).",
    ["model", "lane"],
)
BATCH_TEXTS = Histogram(
    "kbmesh_embedder_batch_texts",
    "Texts of one run of the model.",
    ["model", "lane"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
BATCH_FILL = Histogram(
    "kbmesh_embedder_batch_fill_ratio",
    "Tokens of one run, padding included, over the tokens that a run may have.",
    ["model", "lane"],
    buckets=(0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
)
BATCH_SECONDS = Histogram(
    "kbmesh_embedder_batch_seconds",
    "Seconds of one run of the model.",
    ["model", "lane"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
DROPPED_TEXTS = Counter(
    "kbmesh_embedder_dropped_texts_total",
    "Texts that left the queue before the model took them, because the caller left or the deadline passed.",
    ["model", "lane", "reason"],
)
TRUNCATED_TEXTS = Counter("kbmesh_embedder_truncated_texts_total", "Texts of which tokens were cut off.", ["model"])
TRUNCATED_TOKENS = Counter("kbmesh_embedder_truncated_tokens_total", "Tokens that were cut off.", ["model"])
FAILED_TEXTS = Counter("kbmesh_embedder_failed_texts_total", "Texts that got an error instead of a vector.", ["model"])

DROP_REASONS: tuple[DropReason, ...] = ("cancelled", "expired", "closed")


class ModelMetrics:
    """The series of one model. Told by its batcher and by the servicer; all of them exist from the start, at zero."""

    def __init__(self, model: str, *, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._queue = {lane: QUEUE_TOKENS.labels(model, lane) for lane in Lane}
        self._running = RUNNING_TOKENS.labels(model)
        self._tokens = {lane: TOKENS.labels(model, lane) for lane in Lane}
        self._padding = {lane: PADDING_TOKENS.labels(model, lane) for lane in Lane}
        self._texts = {lane: BATCH_TEXTS.labels(model, lane) for lane in Lane}
        self._fill = {lane: BATCH_FILL.labels(model, lane) for lane in Lane}
        self._seconds = {lane: BATCH_SECONDS.labels(model, lane) for lane in Lane}
        self._dropped = {
            (lane, reason): DROPPED_TEXTS.labels(model, lane, reason) for lane in Lane for reason in DROP_REASONS
        }
        for series in (TRUNCATED_TEXTS, TRUNCATED_TOKENS, FAILED_TEXTS):
            series.labels(model)

    def queued(self, lane: Lane, tokens: int) -> None:
        self._queue[lane].set(tokens)

    def running(self, tokens: int) -> None:
        self._running.set(tokens)

    def ran(self, report: BatchReport) -> None:
        self._tokens[report.lane].inc(report.tokens)
        self._padding[report.lane].inc(report.padded_tokens - report.tokens)
        self._texts[report.lane].observe(report.items)
        self._fill[report.lane].observe(report.padded_tokens / self._batch_tokens)
        self._seconds[report.lane].observe(report.seconds)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self._dropped[lane, reason].inc(items)


def count_text(model: str, receipt: TextReceipt) -> None:
    """Counts what one text's receipt tells of a cut."""
    if receipt.tokens_cut:
        TRUNCATED_TEXTS.labels(model).inc()
        TRUNCATED_TOKENS.labels(model).inc(receipt.tokens_cut)


def count_receipts(model: str, embeddings: Embeddings) -> None:
    """Counts what a call's receipts tell of cuts and failures."""
    cut = [receipt.tokens_cut for receipt in embeddings.receipts if receipt.tokens_cut]
    if cut:
        TRUNCATED_TEXTS.labels(model).inc(len(cut))
        TRUNCATED_TOKENS.labels(model).inc(sum(cut))
    failed = sum(receipt.error is not None for receipt in embeddings.receipts)
    if failed:
        FAILED_TEXTS.labels(model).inc(failed)
