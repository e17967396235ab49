"""What retrieval tells Prometheus. Labels are stages, reasons and statuses, all known at start."""

from kbmesh_rpc.errors import Reason
from prometheus_client import Counter, Histogram

from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.stage import Stage, Status, Strategy

STAGE_SECONDS = Histogram(
    "kbmesh_retriever_stage_seconds",
    "Time that answers spent in a stage.",
    ["stage"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
DEGRADED = Counter(
    "kbmesh_retriever_degraded_answers_total",
    "Answers in which a stage was skipped or fell back, once for each stage and reason.",
    ["stage", "reason"],
)
ANSWERS = Counter(
    "kbmesh_retriever_answers_total",
    "Answers that callers were given, kept and shared ones too: full; limited by settings or by the question itself; "
    "degraded, as a stage fell back by a fault or for want of time; partial, as a knowledge base was not searched.",
    ["strategy", "outcome"],
)
RESULTS = Histogram(
    "kbmesh_retriever_answer_results", "Results of an answer.", buckets=(0, 1, 2, 3, 5, 10, 20, 50, 100)
)
TOP_RERANK_PROBABILITY = Histogram(
    "kbmesh_retriever_top_rerank_probability",
    "The highest rerank probability among an answer's results, where a cross-encoder read them.",
    buckets=(0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
)
TOP_VECTOR_SCORE = Histogram(
    "kbmesh_retriever_top_vector_score",
    "The highest cosine between the query and an answer's results, where vectors are compared by it.",
    buckets=(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
)
CONTEXT_TOKENS = Histogram(
    "kbmesh_retriever_context_tokens",
    "Tokens of an answer's context block, where one was asked for.",
    buckets=(0, 100, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 100_000),
)
DUPLICATES = Counter(
    "kbmesh_retriever_duplicates_merged_total", "Results that said the same as another one and became its citations."
)
STATUSES = Counter(
    "kbmesh_retriever_knowledge_base_answers_total", "What knowledge bases gave to questions.", ["status"]
)
_USUAL_REASONS = (
    Reason.DEADLINE_EXCEEDED,
    Reason.DEPENDENCY_UNAVAILABLE,
    Reason.DEPENDENCY_INVALID_RESPONSE,
    Reason.FEATURE_UNSUPPORTED,
    Reason.QUEUE_FULL,
)

_FAULTS = {
    Reason.CANCELLED,
    Reason.DEADLINE_EXCEEDED,
    Reason.DEPENDENCY_INVALID_RESPONSE,
    Reason.DEPENDENCY_UNAVAILABLE,
    Reason.INFERENCE_FAILED,
    Reason.INTERNAL,
    Reason.MODEL_NOT_READY,
    Reason.QUEUE_FULL,
    Reason.SHUTTING_DOWN,
}
"""What makes an answer less than it could be and is neither the question's nor the settings' doing."""
_MISSING = {Status.TIMEOUT, Status.UNAVAILABLE}
_OUTCOMES = ("full", "limited", "degraded", "partial")

for _strategy in Strategy:
    for _outcome in _OUTCOMES:
        ANSWERS.labels(_strategy.value, _outcome)
for _stage in Stage:
    STAGE_SECONDS.labels(_stage.value)
    for _reason in _USUAL_REASONS:
        DEGRADED.labels(_stage.value, _reason.name)
for _status in Status:
    STATUSES.labels(_status.value)


def count(answer: Answer) -> None:
    """Counts one final answer that was computed."""
    RESULTS.observe(len(answer.results))
    scores = [result.place.candidate.scores for result in answer.results]
    if probabilities := [one.rerank_probability for one in scores if one.rerank_probability is not None]:
        TOP_RERANK_PROBABILITY.observe(max(probabilities))
    cosines = [
        one.vector
        for one, result in zip(scores, answer.results, strict=True)
        if one.vector is not None and result.place.knowledge_base.distance == "cosine"
    ]
    if cosines:
        TOP_VECTOR_SCORE.observe(max(cosines))
    if answer.context is not None:
        CONTEXT_TOKENS.observe(answer.context.tokens)
    DUPLICATES.inc(sum(len(result.duplicates) for result in answer.results))
    for stage in Stage:
        if (milliseconds := answer.timings.get(stage.value)) is not None:
            STAGE_SECONDS.labels(stage.value).observe(milliseconds / 1000)
    for stage, reason in {(one.stage, one.reason) for one in answer.degradations}:
        DEGRADED.labels(stage.value, reason.name).inc()
    for report in answer.reports:
        STATUSES.labels(report.status.value).inc()


def count_served(answer: Answer | None, strategy: Strategy) -> None:
    """Counts one answer that a caller was given. None: it was kept, and so a full one."""
    ANSWERS.labels(strategy.value, "full" if answer is None else _outcome_of(answer)).inc()


def _outcome_of(answer: Answer) -> str:
    if any(report.status in _MISSING for report in answer.reports):
        return "partial"
    if any(one.reason in _FAULTS for one in answer.degradations):
        return "degraded"
    return "limited" if answer.degradations else "full"
