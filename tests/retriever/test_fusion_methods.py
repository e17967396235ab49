"""Lists become one order by their scores: nothing is lost, weights act as they say, and scales do not matter."""

import math
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.fusion import Channel, Entry, FusionMethod, FusionOptions, RankedList, fuse_lists
from kbmesh_retriever.retrieve.scaling import by_distribution, by_range
from kbmesh_retriever.retrieve.trust import AskedIdentifiers, relative_fall, trust_in_keywords, trust_in_vectors

A, B, C, D = (UUID(int=number) for number in range(1, 5))
METHODS = list(FusionMethod)

scored = st.lists(
    st.tuples(st.integers(0, 12), st.floats(0.001, 50, allow_nan=False)), max_size=8, unique_by=lambda pair: pair[0]
).map(lambda pairs: {UUID(int=number): score for number, score in pairs})
methods = st.sampled_from(METHODS)


def ranked(
    channel: Channel, scores: dict[UUID, float], *, query: int = 0, trust: float = 1.0, weight: float = 1.0
) -> RankedList[UUID]:
    entries = [Entry(key=key, score=score, weight=weight) for key, score in scores.items()]
    best_first = sorted(entries, key=lambda entry: (-entry.score, entry.key))
    return RankedList(query=query, channel=channel, entries=best_first, trust=trust)


def both(words: dict[UUID, float], vectors: dict[UUID, float], *, trust: float = 1.0) -> list[RankedList[UUID]]:
    return [ranked(Channel.KEYWORD, words, trust=trust), ranked(Channel.VECTOR, vectors)]


def keys(lists: list[RankedList[UUID]], **options: object) -> list[UUID]:
    return [one.key for one in fuse_lists(lists, FusionOptions(**options))]  # type: ignore[arg-type]  # any of them


def test_the_best_of_both_channels_has_one() -> None:
    for method in (FusionMethod.ADAPTIVE, FusionMethod.WEIGHTED):
        fused = fuse_lists(both({A: 9, B: 3}, {A: 0.8, C: 0.4}), FusionOptions(method=method))
        assert fused[0].key == A
        assert fused[0].score == pytest.approx(1)


def test_words_that_are_little_trusted_leave_the_question_to_the_vectors() -> None:
    words, vectors = {A: 9.0, B: 8.0}, {C: 0.7, D: 0.6, A: 0.2}
    assert keys(both(words, vectors, trust=1.0))[0] == A
    assert keys(both(words, vectors, trust=0.2))[0] == C


def test_an_identifier_that_one_passage_holds_comes_first() -> None:
    """Where its vector is one of many alike. RRF leaves it behind those that stand fair in both lists."""
    words = {A: 30.0} | {UUID(int=number): 6.0 - number / 100 for number in range(10, 20)}
    vectors = {UUID(int=number): 0.6 - number / 1000 for number in range(10, 22)}
    lists = [
        ranked(Channel.KEYWORD, words, trust=trust_in_keywords(list(words.values()))),
        ranked(Channel.VECTOR, vectors, trust=trust_in_vectors(list(vectors.values()))),
    ]
    assert keys(lists)[0] == A
    assert keys(lists, method=FusionMethod.RRF)[0] != A


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], 0.0),
        ([0.0], 0.0),
        ([-0.2, -0.3], 0.0),
        ([7.0], 1.0),
        ([7.0] * 9, 1.0),
        ([7.0] * 10, 0.0),
        ([8.0, *[2.0] * 20], 0.75),
        ([0.5, *[-0.5] * 12], 1.0),
    ],
)
def test_trust_is_how_far_the_first_stands_above_the_tenth(scores: list[float], expected: float) -> None:
    assert relative_fall(scores) == pytest.approx(expected)


def test_vectors_are_trusted_less_the_more_the_question_is_an_identifier() -> None:
    of_words = AskedIdentifiers("restart the payment pods").vectors_tell_apart("Restart every payment pod.")
    mixed = AskedIdentifiers("restart srv-037").vectors_tell_apart("To restart srv-037, call operations.")
    alone = AskedIdentifiers("srv-037").vectors_tell_apart("srv-037 is in rack 4")
    unknown = AskedIdentifiers("srv-037").vectors_tell_apart("Nothing is known of it.")
    nothing = AskedIdentifiers("!?").vectors_tell_apart("anything")
    assert of_words == unknown == nothing == 1
    assert 0 < mixed < 1
    assert alone == pytest.approx(0)


def test_without_trust_in_either_channel_both_count_as_asked() -> None:
    words, vectors = {A: 9.0, B: 9.0}, {B: 0.7, A: 0.7}
    lists = [ranked(Channel.KEYWORD, words, trust=0.0), ranked(Channel.VECTOR, vectors, trust=0.0)]
    assert [one.score for one in fuse_lists(lists, FusionOptions())] == [1.0, 1.0]


def test_a_channel_of_weight_nothing_only_fills_up() -> None:
    words, vectors = {A: 9.0, B: 3.0}, {C: 0.8, B: 0.4}
    for method in METHODS:
        order = keys(both(words, vectors), method=method, keyword_weight=0.0)
        assert order[0] == C, method
        assert set(order) == {A, B, C}, method


def test_a_lone_channel_keeps_its_order_and_its_scale() -> None:
    for channel in Channel:
        for method in METHODS:
            alone = [ranked(channel, {A: 3.0, B: 2.0, C: 1.0}, trust=0.3)]
            assert keys(alone, method=method) == [A, B, C]
        assert fuse_lists(alone, FusionOptions())[0].score == pytest.approx(1)


def test_phrasings_are_fused_by_rank() -> None:
    lists = [
        ranked(Channel.VECTOR, {A: 0.9, B: 0.8}, query=0),
        ranked(Channel.VECTOR, {B: 0.5, C: 0.4}, query=1),
    ]
    fused = fuse_lists(lists, FusionOptions())
    assert [one.key for one in fused] == [B, A, C]
    assert fused[0].score == pytest.approx(1 / 62 + 1 / 61)


def test_a_smaller_k_of_rrf_favours_the_first_places() -> None:
    words, vectors = {A: 9, B: 8, C: 7}, {D: 0.9, C: 0.8, B: 0.7}
    assert keys(both(words, vectors), method=FusionMethod.RRF, rrf_k=1)[0] in {B, C}
    assert keys(both({A: 9}, {B: 0.9, C: 0.8, A: 0.1}), method=FusionMethod.RRF, rrf_k=1)[0] == A


def test_nothing_in_nothing_out() -> None:
    for method in METHODS:
        assert keys([], method=method) == []
        assert keys(both({}, {}), method=method) == []


@given(scored, scored, methods, st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_every_chunk_comes_once_in_order_of_finite_scores(
    words: dict[UUID, float], vectors: dict[UUID, float], method: FusionMethod, trust: float
) -> None:
    lists = both(words, vectors, trust=trust)
    fused = fuse_lists(lists, FusionOptions(method=method))
    assert sorted(one.key for one in fused) == sorted(words.keys() | vectors.keys())
    scores = [one.score for one in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(math.isfinite(score) and 0 <= score <= 1 + 1e-9 for score in scores)
    assert fused == fuse_lists(lists, FusionOptions(method=method))


@given(scored, scored, methods)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_lists_changes_no_score(
    words: dict[UUID, float], vectors: dict[UUID, float], method: FusionMethod
) -> None:
    lists, options = both(words, vectors), FusionOptions(method=method)
    one, other = fuse_lists(lists, options), fuse_lists(lists[::-1], options)
    assert {fused.key: fused.score for fused in one} == {fused.key: fused.score for fused in other}


@given(scored, scored, methods, st.floats(0.1, 50), st.floats(0.1, 50))
@settings(max_examples=60, deadline=None)
def test_more_weight_never_lowers_a_channels_best(
    words: dict[UUID, float], vectors: dict[UUID, float], method: FusionMethod, less: float, more: float
) -> None:
    if not words:
        return
    less, more = sorted((less, more))
    lists = both(words, vectors)
    best = lists[0].entries[0].key
    before, after = (keys(lists, method=method, keyword_weight=weight).index(best) for weight in (less, more))
    assert after <= before


@given(scored, scored, st.sampled_from([FusionMethod.ADAPTIVE, FusionMethod.WEIGHTED]), st.sampled_from([0.25, 8.0]))
@settings(max_examples=60, deadline=None)
def test_the_scale_of_a_channel_does_not_matter(
    words: dict[UUID, float], vectors: dict[UUID, float], method: FusionMethod, factor: float
) -> None:
    """Powers of two, so that rounding does not either."""
    scaled = both({key: score * factor for key, score in words.items()}, vectors)
    assert keys(scaled, method=method) == keys(both(words, vectors), method=method)


@given(st.lists(st.floats(-1e300, 1e300), max_size=6))
@settings(max_examples=80, deadline=None)
def test_scaled_scores_lie_between_nothing_and_one(scores: list[float]) -> None:
    for scale in (by_range, by_distribution):
        scaled = scale(scores)
        assert len(scaled) == len(scores)
        assert all(0 <= value <= 1 for value in scaled)


def test_two_hits_of_like_vectors_do_not_outweigh_words_that_differ() -> None:
    """RET-11: "jira 4815" in a knowledge base of two tickets, of which JIRA-4816's vector is a little nearer."""
    words, vectors = {A: 3.0, B: 1.0}, {B: 0.652, A: 0.588}
    fused = fuse_lists(both(words, vectors), FusionOptions())
    assert [one.key for one in fused] == [A, B]
    assert fused[0].score > fused[1].score + 0.2


def test_equal_scores_are_scaled_alike() -> None:
    assert by_range([2.0, 2.0]) == [1.0, 1.0]
    assert by_distribution([2.0, 2.0]) == [0.5, 0.5]
