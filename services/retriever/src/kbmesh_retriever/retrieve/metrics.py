"""What retrieval tells Prometheus. Labels are stages, reasons and statuses, all known at start."""

from kbmesh_rpc.errors import Reason
from prometheus_client import Counter, Histogram

from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.stage import Stage, Status

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

for _stage in Stage:
    STAGE_SECONDS.labels(_stage.value)
    for _reason in _USUAL_REASONS:
        DEGRADED.labels(_stage.value, _reason.name)
for _status in Status:
    STATUSES.labels(_status.value)


def count(answer: Answer) -> None:
    """Counts one final answer."""
    for stage in Stage:
        if (milliseconds := answer.timings.get(stage.value)) is not None:
            STAGE_SECONDS.labels(stage.value).observe(milliseconds / 1000)
    for stage, reason in {(one.stage, one.reason) for one in answer.degradations}:
        DEGRADED.labels(stage.value, reason.name).inc()
    for report in answer.reports:
        STATUSES.labels(report.status.value).inc()
