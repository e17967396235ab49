"""What says the same is shown once, with every place that says it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.deduplicate import JACCARD_THRESHOLD, deduplicate, word_set
from retrieval_candidates import candidate

POLICY = "Holiday policy: 25 days"


def test_ret_22_equal_text_in_two_knowledge_bases_is_one_hit_with_two_places() -> None:
    """RET-22."""
    here, there = candidate(POLICY, target=0, document="1"), candidate(POLICY, target=1, document="9")
    result = deduplicate([here, there])
    (survivor,) = result.survivors
    assert survivor.chunk_id == here.chunk_id
    assert [duplicate.chunk_id for duplicate in survivor.duplicates] == [there.chunk_id]
    assert result.dropped == {there.chunk_id: here.chunk_id}


def test_ret_27_one_place_is_cited_once() -> None:
    """RET-27."""
    twice = [candidate(POLICY, document="d", key=key) for key in ("one", "two")]
    (survivor,) = deduplicate(twice).survivors
    assert survivor.duplicates == ()


def test_another_place_of_the_same_document_is_a_further_citation() -> None:
    (survivor,) = deduplicate([candidate(POLICY, document="d"), candidate(POLICY, document="d", start=90)]).survivors
    assert [duplicate.fragment.span.start for duplicate in survivor.duplicates] == [90]


def test_case_punctuation_and_width_make_no_difference() -> None:
    texts = ["The server is DOWN!", "the server is down", "ｔｈｅ server — is down."]
    assert len(deduplicate([candidate(text) for text in texts]).survivors) == 1


def test_a_word_less_of_ten_is_the_same_and_two_are_not() -> None:
    ten = "one two three four five six seven eight nine ten"
    assert len(deduplicate([candidate(ten), candidate(ten.removesuffix(" ten"))]).survivors) == 1
    assert len(deduplicate([candidate(ten), candidate(ten.removesuffix(" nine ten"))]).survivors) == 2


def test_short_texts_that_differ_in_a_number_stay_apart() -> None:
    assert len(deduplicate([candidate("Server 1 is down"), candidate("Server 2 is down")]).survivors) == 2


def test_texts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    same = [candidate("国際標準化に関する動向を調査した"), candidate("国際標準化に関する動向を調査した。")]
    assert len(deduplicate(same).survivors) == 1
    assert len(deduplicate([*same[:1], candidate("今日の昼食はうどん")]).survivors) == 2


def test_texts_without_words_are_the_same_only_when_equal() -> None:
    assert len(deduplicate([candidate("---"), candidate("***"), candidate("--- ")]).survivors) == 2


words = st.lists(st.sampled_from([f"w{number}" for number in range(14)]), min_size=1, max_size=14)


@given(st.lists(words, max_size=10))
@settings(max_examples=200, deadline=None)
def test_the_prefix_filter_misses_no_pair(all_words: list[list[str]]) -> None:
    candidates = [candidate(" ".join(one), document=str(number)) for number, one in enumerate(all_words)]
    expected = []
    for one in candidates:
        own = word_set(one.fragment.text)
        others = (word_set(kept.fragment.text) for kept in expected)
        if not any(len(own & other) / len(own | other) >= JACCARD_THRESHOLD for other in others):
            expected.append(one)
    result = deduplicate(candidates)
    assert [one.chunk_id for one in result.survivors] == [one.chunk_id for one in expected]
    assert len(result.survivors) + len(result.dropped) == len(candidates)
