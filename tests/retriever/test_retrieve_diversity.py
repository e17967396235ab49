"""Results that say something else each, and no more of one document or knowledge base than was asked for."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.diversity import diversify
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.threshold import Allowance
from retrieval_candidates import candidate

RESTART = "restart the checkout pods every six hours"
AGAIN = "restart the checkout pods every six hours again"
POOL = "raise the connection pool of checkout to fifty"
LUNCH = "noodles on thursdays"


def scored(**finals: float) -> list[Candidate]:
    texts = {"restart": RESTART, "again": AGAIN, "pool": POOL, "lunch": LUNCH}
    return [candidate(texts[name]).with_scores(final=final) for name, final in finals.items()]


def order(candidates: list[Candidate], diversity: float, most: int = 3) -> list[str]:
    taken = diversify(candidates, diversity=diversity, most=most, admits=lambda _: True)
    return [one.fragment.text for one in taken]


def test_what_says_nearly_the_same_gives_way() -> None:
    candidates = scored(restart=0.9, again=0.88, pool=0.6, lunch=0.05)
    assert order(candidates, 0.0) == [RESTART, AGAIN, POOL]
    assert order(candidates, 0.5) == [RESTART, POOL, AGAIN] or order(candidates, 0.5) == [RESTART, POOL, LUNCH]
    assert order(candidates, 0.1) == [RESTART, AGAIN, POOL]
    # By difference alone: the best one, then what shares no word with it.
    assert order(candidates, 1.0) == [RESTART, LUNCH, POOL]


def test_scores_that_are_zero_or_missing_are_no_trouble() -> None:
    assert order([candidate(RESTART), candidate(LUNCH)], 0.5) == [RESTART, LUNCH]
    assert order(scored(restart=0.0, again=-0.5, lunch=-1.0), 0.5) == [RESTART, LUNCH, AGAIN]
    assert order([candidate("!!!"), candidate("???")], 0.5) == ["!!!", "???"]
    assert order([], 0.5) == []


texts = st.lists(st.sampled_from([RESTART, AGAIN, POOL, LUNCH, "系统发生了故障", "系统恢复了"]), max_size=8)


@given(texts, st.floats(0, 1), st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_it_is_a_choice_among_them_led_by_the_best(said: list[str], diversity: float, most: int) -> None:
    candidates = [candidate(text, start=place).with_scores(final=1 / (1 + place)) for place, text in enumerate(said)]
    taken = diversify(candidates, diversity=diversity, most=most, admits=lambda _: True)
    assert len(taken) == min(most, len(candidates))
    assert len({one.chunk_id for one in taken}) == len(taken)
    assert taken[:1] == tuple(candidates[:1])
    assert taken == diversify(candidates, diversity=diversity, most=most, admits=lambda _: True)
    if diversity == 0:
        assert list(taken) == candidates[:most]


def targets(**most: int | None) -> Mapping[int, Any]:
    return {place: SimpleNamespace(max_results=one) for place, one in enumerate(most.values())}


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_a_document_and_a_knowledge_base_have_no_more_than_their_share(diversity: float) -> None:
    candidates = [
        candidate(f"text number {place}", target=place % 2, document=f"doc {place % 3}", start=place).with_scores(
            final=1 - place / 100
        )
        for place in range(30)
    ]
    allowance = Allowance(targets(first=2, second=None), per_document=3)
    taken = diversify(candidates, diversity=diversity, most=30, admits=allowance.admits)
    assert sum(one.target == 0 for one in taken) == 2
    documents = [one.fragment.document_id for one in taken]
    assert max(documents.count(one) for one in documents) == 3
    assert len(taken) == 2 + 9, "the second knowledge base gives three of each of its documents"
    without = Allowance(targets(first=None, second=None), per_document=None)
    assert len(diversify(candidates, diversity=diversity, most=7, admits=without.admits)) == 7
