"""The reranker's opinion and the fused order become one, and its failure costs nobody the answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.rerank import RerankOutcome, rerank
from kbmesh_retriever.retrieve.stage import RerankMethod
from kbmesh_rpc.errors import DependencyUnavailable, InferenceFailed, Reason
from retrieval_candidates import candidate
from retrieval_world import ScriptedReranker

FUSED = [candidate("alpha", fused=0.04), candidate("beta", fused=0.03), candidate("gamma", fused=0.01)]


async def ask(
    reranker: ScriptedReranker | None,
    candidates: list[Candidate] | None = None,
    *,
    top_n: int = 20,
    seconds: float = 30,
) -> RerankOutcome:
    return await rerank(reranker, "query", FUSED if candidates is None else candidates, top_n=top_n, seconds=seconds)


def texts(outcome: RerankOutcome) -> list[str]:
    return [one.fragment.text for one in outcome.candidates]


async def test_a_cross_encoder_is_blended_by_probability() -> None:
    outcome = await ask(ScriptedReranker(scores={"alpha": 0.1, "beta": 0.2, "gamma": 0.9}))
    assert outcome.method is RerankMethod.CROSS_ENCODER
    assert texts(outcome) == ["gamma", "alpha", "beta"]
    gamma = outcome.candidates[0]
    assert gamma.final == pytest.approx(0.7 * 0.9 + 0.3 * 0.25)
    assert gamma.scores.rerank_probability == 0.9
    assert gamma.scores.rerank_logit == pytest.approx(4.0)
    assert gamma.scores.max_sim is None
    assert gamma.ranks.rerank == 1


async def test_late_interaction_is_blended_by_rank_and_invents_no_probability() -> None:
    fused = [candidate("alpha", fused=0.04), candidate("beta", fused=0.03), candidate("gamma", fused=0.02)]
    reranker = ScriptedReranker(method="late_interaction", scores={"alpha": 0.1, "beta": 0.2, "gamma": 0.9})
    outcome = await ask(reranker, fused)
    assert outcome.method is RerankMethod.LATE_INTERACTION
    by_text = {one.fragment.text: one for one in outcome.candidates}
    assert by_text["alpha"].final == pytest.approx(0.5 * 61 / 61 + 0.5 * 61 / 63)
    assert by_text["beta"].final == pytest.approx(61 / 62)
    assert by_text["gamma"].final == pytest.approx(0.5 * 61 / 63 + 0.5 * 61 / 61)
    assert by_text["gamma"].scores.max_sim == 0.9
    assert by_text["gamma"].scores.rerank_logit is None
    assert by_text["gamma"].scores.rerank_probability is None
    assert texts(outcome)[0] == "alpha"


async def test_late_interaction_passes_nobody_who_is_far_ahead() -> None:
    """The passages with an exact identifier stay before those without, and are ordered among themselves."""
    fused = [candidate("srv-037 a", fused=1.0), candidate("srv-037 b", fused=0.9), candidate("srv-036", fused=0.2)]
    scores = {"srv-037 a": 0.1, "srv-037 b": 0.5, "srv-036": 0.9}
    outcome = await ask(ScriptedReranker(method="late_interaction", scores=scores), fused)
    assert texts(outcome)[2] == "srv-036"
    finals = [one.final for one in outcome.candidates]
    assert finals == sorted(finals, reverse=True)


async def test_a_single_candidate_keeps_its_probability() -> None:
    """Scores are not scaled by their own least and greatest, which would make it 0."""
    outcome = await ask(ScriptedReranker(scores={"alpha": 0.6}), FUSED[:1])
    assert outcome.candidates[0].final == pytest.approx(0.7 * 0.6 + 0.3)


async def test_where_nothing_was_fused_the_cross_encoder_alone_decides() -> None:
    """As where the only channel that found anything has a weight of 0."""
    unweighted = [candidate("alpha", fused=0.0), candidate("beta", fused=0.0)]
    outcome = await ask(ScriptedReranker(scores={"alpha": 0.2, "beta": 0.6}), unweighted)
    assert texts(outcome) == ["beta", "alpha"]
    assert [one.final for one in outcome.candidates] == pytest.approx([0.7 * 0.6, 0.7 * 0.2])


async def test_only_the_best_are_read_and_the_rest_stays_behind_them() -> None:
    reranker = ScriptedReranker(scores={"beta": 0.9})
    outcome = await ask(reranker, top_n=2)
    assert reranker.seen == [["alpha", "beta"]]
    assert texts(outcome) == ["beta", "alpha", "gamma"]
    assert outcome.candidates[2].scores.rerank_probability is None


@pytest.mark.parametrize(
    ("reranker", "seconds", "reason"),
    [
        (None, 30, Reason.FEATURE_UNSUPPORTED),
        (ScriptedReranker(error=DependencyUnavailable("reranker", "down")), 30, Reason.DEPENDENCY_UNAVAILABLE),
        (ScriptedReranker(delay=30), 0.15, Reason.DEADLINE_EXCEEDED),
    ],
)
async def test_without_a_reranker_the_fused_order_stays_and_says_why(
    reranker: ScriptedReranker | None, seconds: float, reason: Reason
) -> None:
    outcome = await ask(reranker, seconds=seconds)
    assert texts(outcome) == ["alpha", "beta", "gamma"]
    assert [one.final for one in outcome.candidates] == [0.04, 0.03, 0.01]
    assert outcome.method is RerankMethod.NONE
    assert [one.reason for one in outcome.degradations] == [reason]


async def test_an_answer_about_other_fragments_is_not_believed() -> None:
    class Forgetful(ScriptedReranker):
        async def rerank(self, query: str, documents):  # type: ignore[no-untyped-def]  # as the parent's
            whole = await super().rerank(query, documents)
            return type(whole)(method=whole.method, model=whole.model, results=whole.results[1:])

    outcome = await ask(Forgetful())
    assert outcome.degradations[0].reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert texts(outcome) == ["alpha", "beta", "gamma"]


async def test_one_fragment_that_cannot_be_scored_does_not_cost_the_others_theirs() -> None:
    reranker = ScriptedReranker(scores={"gamma": 0.9}, failing={"alpha": InferenceFailed("m", "NaN")})
    outcome = await ask(reranker)
    assert texts(outcome)[0] == "gamma"
    assert {one.fragment.text for one in outcome.candidates} == {"alpha", "beta", "gamma"}
    assert outcome.degradations[0].reason is Reason.INFERENCE_FAILED


async def test_nothing_to_rerank_is_no_failure() -> None:
    outcome = await ask(None, [])
    assert outcome.candidates == ()
    assert outcome.degradations == ()


async def test_ret_07_the_best_that_is_left_is_normalised_to_one() -> None:
    """RET-07: a hit that was filtered out no longer scales the others."""
    hidden, first, second = candidate("hidden", fused=0.033), candidate("d1", fused=0.016), candidate("d2", fused=0.015)
    survivors = [one for one in (hidden, first, second) if one is not hidden]
    outcome = await ask(ScriptedReranker(), survivors)
    assert outcome.candidates[0].final == pytest.approx(0.3), "probability 0 and a normalised fused score of 1"


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(1, 12), st.booleans())
@settings(max_examples=60, deadline=None)
async def test_reranking_is_a_permutation(scores: list[float], top_n: int, crosses: bool) -> None:
    candidates = [candidate(f"<{n}>", fused=1 / (61 + n)) for n in range(len(scores))]
    reranker = ScriptedReranker(
        method="cross_encoder" if crosses else "late_interaction",
        scores={f"<{number}>": score for number, score in enumerate(scores)},
    )
    outcome = await ask(reranker, candidates, top_n=top_n)
    assert sorted(one.chunk_id for one in outcome.candidates) == sorted(one.chunk_id for one in candidates)
    finals = [one.final for one in outcome.candidates]
    assert finals == sorted(finals, reverse=True)
    unread = {one.chunk_id for one in candidates[top_n:]}
    tail = [one.chunk_id in unread for one in outcome.candidates]
    assert tail == sorted(tail), "whoever was not read stays behind those that were"
