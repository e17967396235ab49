"""Fusion keeps everything, repeats itself exactly, and ranks from 1."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.fusion import Entry, merge_by_score, reciprocal_rank_fusion

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)

lists_of_keys = st.lists(
    st.lists(st.integers(min_value=0, max_value=12).map(lambda number: UUID(int=number)), max_size=8, unique=True),
    max_size=5,
)


def entries(*keys: UUID, weight: float = 1.0) -> list[Entry[UUID]]:
    return [Entry(key=key, score=-float(place), weight=weight) for place, key in enumerate(keys)]


def test_first_in_both_lists_has_two_sixty_firsts() -> None:
    fused = reciprocal_rank_fusion([entries(A, B), entries(A, C)])
    assert fused[0].key == A
    assert fused[0].score == pytest.approx(2 / 61)
    assert [one.key for one in fused] == [A, B, C], "a tie goes to the list that stands first"
    assert fused[1].score == fused[2].score == pytest.approx(1 / 62)


def test_a_weight_multiplies_and_never_divides_the_rank() -> None:
    fused = reciprocal_rank_fusion([entries(A, B, weight=3.0), entries(C, B)])
    assert fused[0].key == B
    assert fused[0].score == pytest.approx(3 / 62 + 1 / 62)
    assert fused[1].key == A, "the favoured list's best hit comes before the other list's"
    assert fused[1].score == pytest.approx(3 / 61)


def test_nothing_in_nothing_out() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


def test_ret_27_a_key_twice_in_a_list_counts_once() -> None:
    """RET-27: and takes no rank from those after it."""
    fused = {one.key: one.score for one in reciprocal_rank_fusion([entries(A, A, B)])}
    assert fused == {A: pytest.approx(1 / 61), B: pytest.approx(1 / 62)}


@given(lists_of_keys)
@settings(max_examples=150, deadline=None)
def test_fusion_keeps_every_key_once_in_order_of_score(keys: list[list[UUID]]) -> None:
    lists = [entries(*one) for one in keys]
    fused = reciprocal_rank_fusion(lists)
    assert sorted(one.key for one in fused) == sorted({key for one in keys for key in one})
    scores = [one.score for one in fused]
    assert scores == sorted(scores, reverse=True)
    assert fused == reciprocal_rank_fusion(lists)


@given(lists_of_keys)
@settings(max_examples=100, deadline=None)
def test_a_score_does_not_depend_on_the_order_of_the_lists(keys: list[list[UUID]]) -> None:
    lists = [entries(*one) for one in keys]
    one = {fused.key: fused.score for fused in reciprocal_rank_fusion(lists)}
    other = {fused.key: fused.score for fused in reciprocal_rank_fusion(lists[::-1])}
    assert one == other


@given(lists_of_keys)
@settings(max_examples=100, deadline=None)
def test_a_better_rank_never_lowers_a_score(keys: list[list[UUID]]) -> None:
    for number, one in enumerate(keys):
        for place in range(1, len(one)):
            risen = [*one[: place - 1], one[place], one[place - 1], *one[place + 1 :]]
            before = {f.key: f.score for f in reciprocal_rank_fusion([entries(*other) for other in keys])}
            swapped = [*keys[:number], risen, *keys[number + 1 :]]
            after = {f.key: f.score for f in reciprocal_rank_fusion([entries(*other) for other in swapped])}
            assert after[one[place]] > before[one[place]]


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=6), max_size=4))
@settings(max_examples=100, deadline=None)
def test_merging_orders_by_score_and_keeps_each_key_at_its_best(pairs: list[list[tuple[int, float]]]) -> None:
    lists = [[Entry(key=UUID(int=number), score=score) for number, score in one] for one in pairs]
    merged = merge_by_score(lists)
    assert [entry.score for entry in merged] == sorted((entry.score for entry in merged), reverse=True)
    best = {
        entry.key: max(other.score for one in lists for other in one if other.key == entry.key)
        for one in lists
        for entry in one
    }
    assert {entry.key: entry.score for entry in merged} == best
