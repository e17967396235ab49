"""Thresholds on the scores that come after fusion, and how many results a knowledge base or a document may have."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.plan import Target
from kbmesh_retriever.retrieve.stage import ScoreStage


@dataclass(frozen=True, kw_only=True)
class Sifted:
    """Who passed, in order, and who did not."""

    kept: tuple[Candidate, ...]
    dropped: tuple[Candidate, ...]


def sift(candidates: Sequence[Candidate], targets: Mapping[int, Target], stage: ScoreStage) -> Sifted:
    """Drops those whose score at the stage is below their knowledge base's threshold, or that the stage left unscored
    although the threshold asks for a score. `targets` by place in the request."""
    kept: list[Candidate] = []
    dropped: list[Candidate] = []
    for candidate in candidates:
        least = targets[candidate.target].thresholds.get(stage)
        score = _score(candidate, stage)
        passes = least is None or (score is not None and score >= least)
        (kept if passes else dropped).append(candidate)
    return Sifted(kept=tuple(kept), dropped=tuple(dropped))


class Allowance:
    """How many results each knowledge base and each document may still have."""

    def __init__(self, targets: Mapping[int, Target], *, per_document: int | None) -> None:
        """`targets` by place in the request, whose `max_results` hold."""
        self._targets = targets
        self._per_document = math.inf if per_document is None else per_document
        self._of_target: Counter[int] = Counter()
        self._of_document: Counter[UUID] = Counter()

    def admits(self, candidate: Candidate) -> bool:
        """Whether it may be a result; counts it if so."""
        target, document = candidate.target, candidate.fragment.document_id
        most = self._targets[target].max_results
        if most is not None and self._of_target[target] >= most:
            return False
        if self._of_document[document] >= self._per_document:
            return False
        self._of_target[target] += 1
        self._of_document[document] += 1
        return True


def _score(candidate: Candidate, stage: ScoreStage) -> float | None:
    match stage:
        case ScoreStage.VECTOR:
            return candidate.scores.vector
        case ScoreStage.KEYWORD:
            return candidate.scores.keyword
        case ScoreStage.FUSED:
            return candidate.scores.fused
        case ScoreStage.RERANK_PROBABILITY:
            return candidate.scores.rerank_probability
        case ScoreStage.FINAL:
            return candidate.scores.final
