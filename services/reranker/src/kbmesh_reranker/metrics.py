"""What the reranker tells Prometheus. Labels are models and lanes, which are few and known at start."""

from collections.abc import Sequence

from kbmesh_onnx.batch_metrics import BatchMetrics, BatchSeries
from kbmesh_onnx.model_metrics import ModelSeries
from kbmesh_rpc.provider.call_metrics import CallMetrics, CallSeries
from prometheus_client import Counter

from kbmesh_reranker.backends.port import DocumentScore
from kbmesh_reranker.relevance import Reranked

SERIES = BatchSeries("reranker", items="windows")
CALLS = CallSeries("reranker")
MODELS = ModelSeries("reranker")
TRUNCATED_DOCUMENTS = Counter(
    "kbmesh_reranker_truncated_documents_total", "Documents that were longer than all their windows.", ["model"]
)
TRUNCATED_QUERIES = Counter(
    "kbmesh_reranker_truncated_queries_total", "Queries that were longer than the model leaves room for.", ["model"]
)
FAILED_DOCUMENTS = Counter(
    "kbmesh_reranker_failed_documents_total", "Documents that got an error instead of a score.", ["model"]
)


def model_metrics(model: str, *, batch_tokens: int) -> BatchMetrics:
    """The series of one model, to be told by its batcher. All of them exist from here on, at zero."""
    for series in (TRUNCATED_DOCUMENTS, TRUNCATED_QUERIES, FAILED_DOCUMENTS):
        series.labels(model)
    return BatchMetrics(SERIES, model, batch_tokens=batch_tokens)


def call_metrics(model: str) -> CallMetrics:
    """The series of a model that runs at a vendor's, at zero."""
    return CallMetrics(CALLS, model)


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
