"""What the embedder tells Prometheus. Labels are models and lanes, which are few and known at start."""

from kbmesh_onnx.batch_metrics import BatchMetrics, BatchSeries
from kbmesh_onnx.model_metrics import ModelSeries
from kbmesh_rpc.provider.call_metrics import CallMetrics, CallSeries
from prometheus_client import Counter

from kbmesh_embedder.backends.port import Embeddings, TextReceipt

SERIES = BatchSeries("embedder", items="texts")
CALLS = CallSeries("embedder")
MODELS = ModelSeries("embedder")
TRUNCATED_TEXTS = Counter("kbmesh_embedder_truncated_texts_total", "Texts of which tokens were cut off.", ["model"])
TRUNCATED_TOKENS = Counter("kbmesh_embedder_truncated_tokens_total", "Tokens that were cut off.", ["model"])
FAILED_TEXTS = Counter("kbmesh_embedder_failed_texts_total", "Texts that got an error instead of a vector.", ["model"])


def model_metrics(model: str, *, batch_tokens: int) -> BatchMetrics:
    """The series of one model, to be told by its batcher. All of them exist from here on, at zero."""
    for series in (TRUNCATED_TEXTS, TRUNCATED_TOKENS, FAILED_TEXTS):
        series.labels(model)
    return BatchMetrics(SERIES, model, batch_tokens=batch_tokens)


def call_metrics(model: str) -> CallMetrics:
    """The series of a model that runs at a vendor's, at zero."""
    return CallMetrics(CALLS, model)


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
