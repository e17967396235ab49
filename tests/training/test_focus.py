"""A long passage is shortened to what bears on the question."""

from hypothesis import given, settings
from hypothesis import strategies as st

from training.focus import focus

TITLE = "Zinc and the common cold in adults."
FILLER = "The study was carried out in a town of the north over three winters by a team of eleven people."
FINDING = "Colds of those who took zinc were two days shorter."
PASSAGE = " ".join([TITLE, FILLER, FILLER, FINDING, FILLER])


def test_the_title_and_what_the_question_asks_for_stay() -> None:
    assert focus("Does zinc make colds shorter?", PASSAGE, most_words=20) == f"{TITLE}\n{FINDING}"


def test_a_short_passage_stays_whole() -> None:
    assert focus("zinc", PASSAGE, most_words=200) == PASSAGE


def test_lines_of_code_stay_in_their_order() -> None:
    code = "def f(rows):\n    a = 1\n    b = 2\n    return sorted(rows)"

    assert focus("sort rows", code, most_words=6).splitlines() == ["def f(rows):", "    return sorted(rows)"]


@settings(max_examples=50)
@given(st.lists(st.text("ab .\n", max_size=20), max_size=8), st.integers(1, 10))
def test_it_says_nothing_that_the_passage_does_not(parts: list[str], most_words: int) -> None:
    passage = ". ".join(parts)
    shortened = focus("a b", passage, most_words=most_words)

    assert len(shortened.split()) <= len(passage.split())
    assert set(shortened.split()) <= set(passage.split())
