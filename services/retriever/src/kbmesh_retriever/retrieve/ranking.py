"""From the lists of the knowledge bases to one order: fuse, deduplicate, rerank, with the thresholds on each."""

import math
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from kbmesh_rpc.errors import Reason

from kbmesh_retriever.mesh.port import RerankerPort
from kbmesh_retriever.retrieve.candidates import Standing, fuse
from kbmesh_retriever.retrieve.deduplicate import Deduplicated, deduplicate
from kbmesh_retriever.retrieve.estimates import Step
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.pace import FEWEST_TO_RERANK, Pace
from kbmesh_retriever.retrieve.request import Question
from kbmesh_retriever.retrieve.rerank import RerankOutcome, in_fused_order, rerank
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.retrieve.stage import Degradation, RerankMethod, ScoreStage, Stage
from kbmesh_retriever.retrieve.threshold import sift

_FEWEST_CANDIDATES = 50


class Ranker:
    """Ranks what was found. `reranker` is None where none is configured."""

    def __init__(self, *, reranker: RerankerPort | None, pace: Pace) -> None:
        self._reranker = reranker
        self._pace = pace

    def survivors(self, run: Run) -> tuple[Candidate, ...]:
        """In fused order, above the thresholds up to there, each saying something of its own. Raises DeadlineExceeded
        where the caller's own deadline has passed before it."""
        run.budget.check_caller(Stage.FUSE)
        estimates = self._pace.estimates
        started = estimates.clock()
        most = _most_candidates(run.question)
        with run.journal.timing(Stage.FUSE):
            order, note = fuse(run.found.lists, run.queries, run.question.fusion)
            run.journal.decide(Stage.FUSE, note)
            kept = _above_fused(run, order)
            run.passed.update(one.target for one in kept)
            candidates = [one.candidate() for one in kept[:most]]
        with run.journal.timing(Stage.DEDUPLICATE):
            distinct = deduplicate(candidates)
        estimates.observe(Step.RANK, estimates.clock() - started)
        if run.question.explain:
            _explain(run, order, kept, most, distinct)
        return distinct.survivors

    async def reranked(self, run: Run, survivors: Sequence[Candidate]) -> RerankOutcome:
        """In final order, above all thresholds; in fused order where nothing is or can be reranked."""
        question, journal = run.question, run.journal
        if not question.strategy.reranks:
            outcome = in_fused_order(survivors)
        else:
            with journal.timing(Stage.RERANK):
                outcome = await self._rerank(run, survivors)
        journal.degradations += outcome.degradations
        kept: Sequence[Candidate] = outcome.candidates
        stages = [ScoreStage.FINAL]
        if outcome.method is RerankMethod.CROSS_ENCODER:
            stages.insert(0, ScoreStage.RERANK_PROBABILITY)
        elif question.strategy.reranks and outcome.method is RerankMethod.NONE:
            # The final score is of another scale then: its threshold would drop everything.
            stages = []
        _note_unused_thresholds(run, stages)
        for stage in stages:
            kept = _sift(run, kept, stage)
        if question.strategy.reranks and question.explain:
            reasons = _reasons(kept, outcome.candidates, *stages)
            journal.note(Stage.RERANK, outcome.candidates, dropped=reasons, label=outcome.method.value)
        return RerankOutcome(candidates=tuple(kept), method=outcome.method, degradations=outcome.degradations)

    async def _rerank(self, run: Run, survivors: Sequence[Candidate]) -> RerankOutcome:
        """As many as the time left covers."""
        wanted = min(run.question.rerank_top_n, len(survivors))
        seconds = self._pace.rerank_seconds(run.budget)
        count = self._pace.affordable(wanted, seconds) if self._reranker is not None else wanted
        if wanted and not count:
            message = f"there was no time to rerank {wanted} fragments: the fused order is returned"
            return in_fused_order(survivors, _for_want_of_time(message))
        run.journal.decide(Stage.RERANK, f"{count} of {wanted} fragments in up to {seconds * 1000:.0f} ms")
        estimates = self._pace.estimates
        started = estimates.clock()
        outcome = await rerank(self._reranker, run.question.query, survivors, top_n=count, seconds=seconds)
        if count:
            each = (estimates.clock() - started) / count
            if outcome.method is not RerankMethod.NONE:
                estimates.observe(Step.RERANK_ONE, each)
            elif any(one.reason is Reason.DEADLINE_EXCEEDED for one in outcome.degradations):
                # It needs longer than it had: given the same time again, it would be given up again. But a reranker
                # that hung, and is there again, must still be asked for a few.
                estimates.observe_cut_off(Step.RERANK_ONE, min(2 * each, seconds / FEWEST_TO_RERANK))
        if count < wanted and outcome.method is not RerankMethod.NONE:
            message = f"there was time to rerank the best {count} of {wanted} fragments only"
            return replace(outcome, degradations=(*outcome.degradations, _for_want_of_time(message)))
        return outcome


def _for_want_of_time(message: str) -> Degradation:
    return Degradation(stage=Stage.RERANK, reason=Reason.DEADLINE_EXCEEDED, message=message)


def _note_unused_thresholds(run: Run, used: Sequence[ScoreStage]) -> None:
    late = {ScoreStage.RERANK_PROBABILITY, ScoreStage.FINAL}
    asked = {stage for target in run.plan.targets for stage in target.thresholds}
    for stage in sorted((asked & late) - set(used)):
        message = f"the threshold on {stage.value} was not applied: there is no such score in this answer"
        run.journal.degradations.append(
            Degradation(stage=Stage.RERANK, reason=Reason.FEATURE_UNSUPPORTED, message=message)
        )


def _sift(run: Run, candidates: Sequence[Candidate], stage: ScoreStage) -> tuple[Candidate, ...]:
    sifted = sift(candidates, run.targets, stage)
    for candidate in sifted.dropped:
        run.passed[candidate.target] -= 1
    return sifted.kept


def _above_fused(run: Run, order: Sequence[Standing]) -> Sequence[Standing]:
    """As `sift` does for candidates, which these are not yet."""
    least = {
        position: target.thresholds[ScoreStage.FUSED]
        for position, target in run.targets.items()
        if ScoreStage.FUSED in target.thresholds
    }
    return [one for one in order if one.fused >= least.get(one.target, -math.inf)] if least else order


def _explain(run: Run, order: Sequence[Standing], kept: Sequence[Standing], most: int, distinct: Deduplicated) -> None:
    fused, sifted = [one.candidate() for one in order], [one.candidate() for one in kept]
    run.journal.note(Stage.FUSE, fused, dropped=_reasons(sifted, fused, ScoreStage.FUSED))
    reasons = {one.chunk_id: f"beyond the best {most}" for one in sifted[most:]}
    reasons |= {dropped: f"says the same as {survivor}" for dropped, survivor in distinct.dropped.items()}
    run.journal.note(Stage.DEDUPLICATE, sifted, dropped=reasons)


def _most_candidates(question: Question) -> int:
    """How many are compared with each other: several times what can be reranked or returned, whatever the number of
    knowledge bases."""
    return max(_FEWEST_CANDIDATES, 4 * question.top_k, 2 * question.rerank_top_n)


def _reasons(kept: Sequence[Candidate], of: Sequence[Candidate], *stages: ScoreStage) -> dict[UUID, str]:
    passed = {candidate.chunk_id for candidate in kept}
    names = " or ".join(stage.value for stage in stages)
    return {one.chunk_id: f"below the {names} threshold" for one in of if one.chunk_id not in passed}
