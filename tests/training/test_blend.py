"""The orders that are measured are those that are served."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.mesh.port import Relevance, Reranked
from kbmesh_retriever.retrieve import rerank as served
from retrieval_candidates import candidate

from training.blend import PROBABILITY_WEIGHT, blended, by_range, by_ranks, mixed, order_of, within_falls

CASES = st.lists(st.tuples(st.integers(1, 100), st.integers(-50, 50)), min_size=1, max_size=20)


def served_order(method: str, fused: Sequence[float], scores: Sequence[float]) -> list[int]:
    """By the retriever."""
    cross_encoder = method == "cross_encoder"
    candidates = [candidate(str(place), fused=score) for place, score in enumerate(fused)]
    relevances = {
        place: Relevance(
            index=place,
            logit=score if cross_encoder else None,
            probability=1 / (1 + math.exp(-score)) if cross_encoder else None,
            max_sim=None if cross_encoder else score,
            error=None,
        )
        for place, score in enumerate(scores)
    }
    reranked = Reranked(
        method="cross_encoder" if cross_encoder else "late_interaction", model="m", results=tuple(relevances.values())
    )
    return [int(one.fragment.text) for one in served.blend(candidates, relevances, reranked)]


def test_the_weight_is_the_retriever_s() -> None:
    assert PROBABILITY_WEIGHT == served.PROBABILITY_WEIGHT


@settings(max_examples=60)
@given(CASES)
def test_a_cross_encoder_is_blended_as_it_is_served(cases: list[tuple[int, int]]) -> None:
    fused = sorted((score / 100 for score, _ in cases), reverse=True)
    logits = [logit / 10 for _, logit in cases]

    assert order_of(blended(logits, fused)) == served_order("cross_encoder", fused, logits)


@settings(max_examples=60)
@given(CASES)
def test_late_interaction_is_blended_as_it_is_served(cases: list[tuple[int, int]]) -> None:
    fused = sorted((score / 100 for score, _ in cases), reverse=True)
    similar = [score / 50 for _, score in cases]

    assert order_of(within_falls(by_ranks(similar), fused)) == served_order("late_interaction", fused, similar)


def test_a_cross_encoder_without_an_opinion_leaves_the_order() -> None:
    assert order_of(blended([0.0, 0.0, 0.0], [0.9, 0.5, 0.1])) == [0, 1, 2]


def test_the_mixture_takes_each_by_its_range() -> None:
    assert mixed([0.2, 0.4, 0.6], [0.9, 0.8, 0.7], [0.0, 8.0, 4.0]).tolist() == pytest.approx([1.0, 1.5, 1.25])


def test_scores_that_are_all_the_same_say_nothing() -> None:
    assert by_range([3.0, 3.0]).tolist() == [0.0, 0.0]
    assert by_range([]).tolist() == []
