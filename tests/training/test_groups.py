"""What is trained with: the answer to a question among what a mesh would find for it."""

import random
from pathlib import Path

from training.examples import Pool, Question
from training.group import Group, read_groups, write_groups
from training.groups import HARD, NEGATIVES, development_group, draw_group, groups_of

ANSWER = "the answer to the question stands in this passage and in no other passage of them all"
PASSAGES = (
    ANSWER,
    *(f"passage {number} is about something else, namely {number * 7} and {number}" for number in range(30)),
)
POOL = Pool(name="manuals", passages=PASSAGES, questions=(Question(text="where is the answer", place=0),))
ORDER = [(place, 1.0 - place / 40) for place in range(31)]


def test_a_group_has_the_answer_and_wrong_passages_near_the_top() -> None:
    group = draw_group(POOL, 0, ORDER, random.Random(1))

    assert group is not None
    assert group.labels == (1, 0, 0, 0)
    assert group.passages[0] == ANSWER
    near = [PASSAGES.index(passage) for passage in group.passages[1:]]
    assert sum(place <= HARD for place in near) == NEGATIVES - 1
    assert len(set(group.passages)) == NEGATIVES + 1


def test_fused_scores_are_by_the_best_of_the_order() -> None:
    group = draw_group(POOL, 0, [(place, score / 2) for place, score in ORDER], random.Random(1))

    assert group is not None
    assert group.fused[0] == 1.0
    assert all(0 <= score < 1 for score in group.fused[1:])


def test_an_answer_that_was_not_found_has_no_fused_score() -> None:
    group = draw_group(POOL, 0, ORDER[1:], random.Random(1))

    assert group is not None
    assert group.fused[0] == 0.0


def test_a_copy_of_the_answer_is_not_wrong() -> None:
    pool = Pool(name="manuals", passages=(*PASSAGES[:4], ANSWER + " indeed"), questions=POOL.questions)
    group = draw_group(pool, 0, [(place, 1.0) for place in range(5)], random.Random(1))

    assert group is not None
    assert not any("indeed" in passage for passage in group.passages)


def test_too_few_wrong_passages_make_no_group() -> None:
    assert draw_group(POOL, 0, ORDER[:NEGATIVES], random.Random(1)) is None


def test_what_is_chosen_by_is_the_order_as_it_is() -> None:
    group = development_group(POOL, 0, ORDER[5:] + ORDER[:5])

    assert group is None, "the answer is not among the first places"
    group = development_group(POOL, 0, ORDER)
    assert group is not None
    assert list(group.passages) == list(PASSAGES[: len(group.passages)])


def test_nothing_is_trained_with_what_is_chosen_by() -> None:
    questions = tuple(Question(text=f"question {place}", place=place) for place in range(31))
    pool = Pool(name="manuals", passages=PASSAGES, questions=questions)
    train, development = groups_of(pool, [ORDER] * 31, seed=1)

    assert development
    assert not {group.query for group in train} & {group.query for group in development}
    assert (train, development) == groups_of(pool, [ORDER] * 31, seed=1)


def test_groups_survive_a_file(tmp_path: Path) -> None:
    group = Group(pool="p", query="a\u2028b\x85c\r\n", passages=("x\x1cy",), fused=(0.5,), labels=(1,))
    write_groups(tmp_path / "groups.jsonl", [group, group])

    assert list(read_groups(tmp_path / "groups.jsonl")) == [group, group]
