"""The words in which a retrieval tells what it did: strategies, stages, statuses."""

from dataclasses import dataclass
from enum import StrEnum

from kbmesh_rpc.errors import (
    DeadlineExceeded,
    KbmeshError,
    KnowledgeBaseNotFound,
    ModelMismatch,
    ModelNotFound,
    PermissionDenied,
    Reason,
)


class Strategy(StrEnum):
    """The way candidates are found and ranked."""

    VECTOR_ONLY = "vector_only"
    HYBRID = "hybrid"
    HYBRID_RERANK = "hybrid_rerank"
    ADVANCED = "advanced"

    @property
    def uses_keywords(self) -> bool:
        return self is not Strategy.VECTOR_ONLY

    @property
    def reranks(self) -> bool:
        return self in {Strategy.HYBRID_RERANK, Strategy.ADVANCED}


class ScoreStage(StrEnum):
    """A stage whose score a threshold applies to."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    FUSED = "fused"
    RERANK_PROBABILITY = "rerank_probability"
    FINAL = "final"


class Stage(StrEnum):
    """A step of a retrieval."""

    RESOLVE = "resolve"
    REPHRASE = "rephrase"
    EMBED = "embed"
    SEARCH = "search"
    FUSE = "fuse"
    DEDUPLICATE = "deduplicate"
    RERANK = "rerank"
    ATTRIBUTE = "attribute"


class Status(StrEnum):
    """What a knowledge base gave to a query."""

    OK = "ok"
    EMPTY = "empty"
    BELOW_THRESHOLD = "below_threshold"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    MODEL_MISMATCH = "model_mismatch"


class RerankMethod(StrEnum):
    """How the reranker came to its order."""

    NONE = "none"
    CROSS_ENCODER = "cross_encoder"
    LATE_INTERACTION = "late_interaction"


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """A stage that was skipped or fell back, and why."""

    stage: Stage
    reason: Reason
    message: str
    """What was done instead, for a person."""


_STATUS_BY_ERROR: tuple[tuple[type[KbmeshError], Status], ...] = (
    (DeadlineExceeded, Status.TIMEOUT),
    (PermissionDenied, Status.DENIED),
    (KnowledgeBaseNotFound, Status.NOT_FOUND),
    (ModelMismatch, Status.MODEL_MISMATCH),
    (ModelNotFound, Status.MODEL_MISMATCH),
)


def status_of(error: KbmeshError) -> Status:
    """The status of a knowledge base that could not be searched because of `error`."""
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), Status.UNAVAILABLE)
