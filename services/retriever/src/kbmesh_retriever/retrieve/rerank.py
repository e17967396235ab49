"""The best candidates read against the query, and the reranker's opinion blended with the fused order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import DependencyInvalidResponse, KbmeshError, Reason

from kbmesh_retriever.mesh.port import Relevance, Reranked, RerankerPort
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.fusion import RRF_K
from kbmesh_retriever.retrieve.stage import Degradation, RerankMethod, Stage
from kbmesh_retriever.retrieve.time_budget import within

PROBABILITY_WEIGHT = 0.7
"""Of a cross-encoder's probability; the rest is the normalised fused score's."""
LATE_INTERACTION_WEIGHT = 0.5
"""Of the rank by late interaction; the rest is the fused rank's. MaxSim compares only within one query, so that ranks
alone are blended. docs/decisions/0008-blend-late-interaction-by-rank.md has what was measured."""
DECISIVE_FALL = 0.4
"""Of a fused score to the one before it, which late interaction does not mend. docs/decisions/0016-adaptive-fusion.md
has how often such a first hit was right."""

_METHODS = {
    "cross_encoder": RerankMethod.CROSS_ENCODER,
    "late_interaction": RerankMethod.LATE_INTERACTION,
}


@dataclass(frozen=True, kw_only=True)
class RerankOutcome:
    """All candidates in their final order, with their final scores."""

    candidates: tuple[Candidate, ...]
    method: RerankMethod
    degradations: tuple[Degradation, ...] = ()


def in_fused_order(candidates: Sequence[Candidate], *degradations: Degradation) -> RerankOutcome:
    """Without a reranker: the fused score is the final one."""
    return RerankOutcome(
        candidates=tuple(candidate.with_scores(final=candidate.fused) for candidate in candidates),
        method=RerankMethod.NONE,
        degradations=degradations,
    )


async def rerank(
    reranker: RerankerPort | None,
    query: str,
    candidates: Sequence[Candidate],
    *,
    top_n: int,
    seconds: float,
) -> RerankOutcome:
    """Reranks the first `top_n` of the candidates, which stand in fused order, in one call of at most `seconds`.

    Never fails: where that cannot be done the fused order stays, and says why.
    """
    if not candidates:
        return in_fused_order(candidates)
    if reranker is None:
        return in_fused_order(
            candidates, _skipped(Reason.FEATURE_UNSUPPORTED, "no reranker is configured: the fused order is returned")
        )
    head = candidates[:top_n]
    try:
        reranked = await within(
            seconds, Stage.RERANK, reranker.rerank(query, [candidate.fragment.passage for candidate in head])
        )
        relevances = _by_index(reranked, len(head))
    except KbmeshError as error:
        return in_fused_order(candidates, _skipped(error.reason, f"{error.message}: the fused order is returned"))
    failed = [one.error for one in relevances.values() if one.error is not None]
    return RerankOutcome(
        candidates=blend(candidates, relevances, reranked),
        method=_METHODS[reranked.method],
        degradations=tuple(
            _skipped(error.reason, f"{len(failed)} of {len(head)} fragments could not be scored: {error.message}")
            for error in failed[:1]
        ),
    )


def blend(
    candidates: Sequence[Candidate], relevances: Mapping[int, Relevance], reranked: Reranked
) -> tuple[Candidate, ...]:
    """The candidates in their final order, whose scores reach 1 at most. By a cross-encoder: its probability and the
    fused score, normalised by the best one of these candidates after all filtering. By late interaction: both ranks,
    as in reciprocal rank fusion. Whoever was not scored has nothing from the reranker, and so stays behind those
    before it that were."""
    ranks = _ranks(reranked, relevances)
    cross_encoder = reranked.method == "cross_encoder"
    weight = PROBABILITY_WEIGHT if cross_encoder else LATE_INTERACTION_WEIGHT
    # All are 0 where one channel alone gave anything and its weight is 0.
    best_fused = max(candidate.fused for candidate in candidates) or 1.0
    blended: list[Candidate] = []
    for index, candidate in enumerate(candidates):
        fused = candidate.fused / best_fused if cross_encoder else _closeness(index + 1)
        relevance = relevances.get(index)
        opinion, of_reranker = 0.0, {}
        if index in ranks and relevance is not None:
            candidate = candidate.with_ranks(rerank=ranks[index])
            if cross_encoder:
                of_reranker = {"rerank_logit": relevance.logit, "rerank_probability": relevance.probability}
                opinion = relevance.probability or 0.0
            else:
                of_reranker = {"max_sim": relevance.max_sim}
                opinion = _closeness(ranks[index])
        blended.append(candidate.with_scores(**of_reranker, final=weight * opinion + (1 - weight) * fused))
    if cross_encoder:
        return tuple(sorted(blended, key=lambda one: -one.final))  # stable: ties stay in fused order
    return _within_falls(blended)


def _within_falls(blended: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """By final score, but nobody passes a fall of the fused scores: whoever is that far ahead, as the one passage with
    an exact identifier is, stays so. A score that stands behind a lower one is lowered to it."""
    falls = 0
    numbered: list[tuple[int, Candidate]] = []
    for place, candidate in enumerate(blended):
        falls += place > 0 and candidate.fused < DECISIVE_FALL * blended[place - 1].fused
        numbered.append((falls, candidate))
    numbered.sort(key=lambda one: (one[0], -one[1].final))
    least = math.inf
    ordered: list[Candidate] = []
    for _, candidate in numbered:
        least = min(least, candidate.final)
        ordered.append(candidate if candidate.final == least else candidate.with_scores(final=least))
    return tuple(ordered)


def _closeness(rank: int) -> float:
    """1 at the top, falling as in reciprocal rank fusion."""
    return (RRF_K + 1) / (RRF_K + rank)


def _ranks(reranked: Reranked, relevances: Mapping[int, Relevance]) -> dict[int, int]:
    """Place of each scored candidate by the reranker, from 1; equal scores in fused order."""
    cross_encoder = reranked.method == "cross_encoder"

    def score(index: int) -> float:
        relevance = relevances[index]
        return (relevance.logit if cross_encoder else relevance.max_sim) or 0.0

    scored = [index for index, relevance in sorted(relevances.items()) if relevance.error is None]
    return {index: rank for rank, index in enumerate(sorted(scored, key=lambda index: -score(index)), start=1)}


def _by_index(reranked: Reranked, count: int) -> dict[int, Relevance]:
    by_index = {relevance.index: relevance for relevance in reranked.results}
    if len(reranked.results) != count or by_index.keys() != set(range(count)):
        raise DependencyInvalidResponse(
            "reranker", f"the reranker scored other fragments than the {count} it was given"
        )
    for relevance in by_index.values():
        missing = (
            relevance.logit is None or relevance.probability is None
            if reranked.method == "cross_encoder"
            else relevance.max_sim is None
        )
        if missing and relevance.error is None:
            raise DependencyInvalidResponse("reranker", "the reranker left a score out")
    return by_index


def _skipped(reason: Reason, message: str) -> Degradation:
    return Degradation(stage=Stage.RERANK, reason=reason, message=message)
