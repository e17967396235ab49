"""Nothing that is tested may be trained with."""

from hypothesis import given, settings
from hypothesis import strategies as st

from training.leaks import SeenTexts, without_leaks

TESTED = "Aspirin inhibits the production of PGE2 and lowers the risk of cancer in a mouse model of the disease"


def test_the_same_text_in_other_case_and_marks_is_near() -> None:
    assert SeenTexts(["other", TESTED]).near(TESTED.upper().replace(" ", "  ") + "!") == 1


def test_a_part_of_a_tested_text_is_near_and_so_is_a_text_around_it() -> None:
    seen = SeenTexts([TESTED])

    assert seen.near(" ".join(TESTED.split()[:9])) == 0
    assert (
        seen.near(f"Background. In this study we show what was long believed. {TESTED}. We also looked at rats.") == 0
    )


def test_a_text_on_the_same_subject_is_not_near() -> None:
    assert SeenTexts([TESTED]).near("Aspirin lowers the risk of stroke, and the risk of bleeding rises with it") is None


def test_a_short_question_is_near_only_to_the_same_words() -> None:
    seen = SeenTexts(["sort a list", "python sort"])

    assert seen.near("Sort a list?") == 0
    assert seen.near("sort a dict") is None


def test_what_is_left_has_no_leak() -> None:
    texts = [TESTED, "something else that nobody tests with any set at all", TESTED + " again"]

    assert without_leaks(texts, SeenTexts([TESTED])) == [1]


@settings(max_examples=50)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=30))
def test_every_text_is_near_to_itself(words: list[str]) -> None:
    assert SeenTexts([" ".join(words)]).near(" ".join(words)) == 0


def test_a_text_without_words_is_near_to_nothing() -> None:
    assert SeenTexts(["", "..."]).near("") is None
    assert SeenTexts(["", "..."]).near("words are here now then") is None
