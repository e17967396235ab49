"""The metrics of `kbmesh eval`, against values worked out by hand."""

import math

import pytest
from kbmesh_cli.relevance import first_of_each, ndcg_at, percentile, recall_at, reciprocal_rank

JUDGEMENTS = {"a": 2, "b": 1, "c": 0, "d": 1}


def test_ndcg_weighs_grades_by_the_logarithm_of_their_rank() -> None:
    # Found: b (1) at 1, x (0) at 2, a (2) at 3. Ideal: 2, 1, 1.
    gained = 1 / math.log2(2) + 0 + 2 / math.log2(4)  # 2.0
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)  # 3.13093
    assert ndcg_at(10, ["b", "x", "a"], JUDGEMENTS) == pytest.approx(gained / ideal)
    assert gained / ideal == pytest.approx(0.638788, abs=1e-6)


def test_ndcg_of_the_ideal_order_is_one() -> None:
    assert ndcg_at(10, ["a", "d", "b", "c"], JUDGEMENTS) == pytest.approx(1)


def test_ndcg_looks_no_further_than_the_cutoff_and_neither_does_its_ideal() -> None:
    assert ndcg_at(1, ["a"], JUDGEMENTS) == pytest.approx(1)
    assert ndcg_at(1, ["c", "a"], JUDGEMENTS) == 0
    # One relevant document at rank 10: 1 / log2(11).
    ranking = [f"x{number}" for number in range(9)] + ["only"]
    assert ndcg_at(10, ranking, {"only": 1}) == pytest.approx(0.289065, abs=1e-6)


def test_recall_is_the_share_of_the_relevant_documents() -> None:
    assert recall_at(20, ["a", "c", "x"], JUDGEMENTS) == pytest.approx(1 / 3)
    assert recall_at(1, ["x", "a", "b", "d"], JUDGEMENTS) == 0
    assert recall_at(20, ["d", "b", "a"], JUDGEMENTS) == 1


def test_the_reciprocal_rank_is_that_of_the_first_relevant_document() -> None:
    assert reciprocal_rank(["c", "x", "b", "a"], JUDGEMENTS) == pytest.approx(1 / 3)
    assert reciprocal_rank(["c", "x"], JUDGEMENTS) == 0


def test_a_query_without_relevant_documents_scores_zero() -> None:
    assert ndcg_at(10, ["c"], {"c": 0}) == recall_at(20, ["c"], {"c": 0}) == reciprocal_rank(["c"], {}) == 0


def test_a_document_ranks_where_its_best_chunk_does() -> None:
    assert first_of_each(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_percentiles_lie_between_values() -> None:
    assert percentile([40, 10, 20, 30], 0.5) == 25
    assert percentile([10, 20], 0.95) == pytest.approx(19.5)
    assert percentile([7], 0.95) == 7
    assert percentile([], 0.5) == 0
