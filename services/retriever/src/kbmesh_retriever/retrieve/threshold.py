"""Thresholds on the scores that come after fusion, and how many results a knowledge base may have."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def choose(candidates: Sequence[Candidate], targets: Mapping[int, Target], top_k: int) -> tuple[Candidate, ...]:
    """The first `top_k`, and of no knowledge base more than its `max_results`."""
    taken: Counter[int] = Counter()
    chosen: list[Candidate] = []
    for candidate in candidates:
        most = targets[candidate.target].max_results
        if len(chosen) < top_k and (most is None or taken[candidate.target] < most):
            taken[candidate.target] += 1
            chosen.append(candidate)
    return tuple(chosen)


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
