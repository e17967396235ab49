"""A question is refused with the field that is wrong, before anything is searched."""

import math

import pytest
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector, check
from kbmesh_retriever.retrieve.stage import ScoreStage
from kbmesh_retriever.stores.port import Condition, PointFilter
from kbmesh_rpc.errors import EmptyText, InvalidField, RequestTooLarge
from retrieval_world import ask

LIMITS = RetrievalLimits()


def wrong_fields(request: RetrievalRequest) -> list[str]:
    with pytest.raises(InvalidField) as caught:
        check(request, LIMITS)
    return [violation.field for violation in caught.value.field_violations]


def test_defaults_are_filled_in() -> None:
    question = check(ask("why?", "notes"), LIMITS)
    assert (question.top_k, question.rerank_top_n, question.context_budget_tokens) == (5, 20, 2000)


@pytest.mark.parametrize("query", ["", "  \n"])
def test_a_blank_query_is_refused(query: str) -> None:
    with pytest.raises(EmptyText):
        check(ask(query, "notes"), LIMITS)


def test_ret_17_a_query_of_ten_thousand_characters_passes_and_one_more_does_not() -> None:
    """RET-17."""
    check(ask("a" * 10_000, "notes"), LIMITS)
    with pytest.raises(InvalidField) as caught:
        check(ask("a" * 10_001, "notes"), LIMITS)
    assert "10000" in caught.value.message


def test_one_threshold_for_each_stage() -> None:
    given = ((ScoreStage.VECTOR, 0.1), (ScoreStage.FINAL, 0.2))
    assert check(ask("why?", "notes", thresholds=given), LIMITS).thresholds == dict(given)
    wrong = ((ScoreStage.VECTOR, 0.1), (ScoreStage.VECTOR, math.nan))
    assert wrong_fields(ask("why?", "notes", thresholds=wrong)) == ["thresholds[1].stage", "thresholds[1].min_score"]


def test_ret_19_an_empty_name_is_refused() -> None:
    """RET-19."""
    assert wrong_fields(ask("why?", "notes", "")) == ["knowledge_bases[1].knowledge_base"]


def test_a_name_that_no_knowledge_base_can_have_is_not_repeated() -> None:
    check(ask("why?", "k" * 63), LIMITS)
    with pytest.raises(InvalidField) as caught:
        check(ask("why?", "notes", "k" * 1_000_000), LIMITS)
    assert [one.field for one in caught.value.field_violations] == ["knowledge_bases[1].knowledge_base"]
    assert "kkk" not in caught.value.message


def test_every_wrong_field_is_named_at_once() -> None:
    selectors = (
        Selector(knowledge_base="a", weight=0),
        Selector(knowledge_base="a", max_results=0),
        Selector(knowledge_base="b", min_score=float("nan"), weight=101),
    )
    assert wrong_fields(ask("why?", *selectors, top_k=0, rerank_top_n=201, context_budget_tokens=100_001)) == [
        "top_k",
        "rerank_top_n",
        "context_budget_tokens",
        "knowledge_bases[0].weight",
        "knowledge_bases[1].knowledge_base",
        "knowledge_bases[1].max_results",
        "knowledge_bases[2].min_score",
        "knowledge_bases[2].weight",
    ]


def test_no_knowledge_base_and_too_many() -> None:
    assert wrong_fields(ask("why?")) == ["knowledge_bases"]
    with pytest.raises(RequestTooLarge):
        check(ask("why?", *(f"kb-{number}" for number in range(65))), LIMITS)


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        (Condition(field="tenant", any_of=("other",)), "filter.all[0].field"),
        (Condition(field="metadata.", any_of=("x",)), "filter.all[0].field"),
        (Condition(field='metadata.a"b', any_of=("x",)), "filter.all[0].field"),
        (Condition(field="principals", any_of=("user:ann",)), "filter.all[0].field"),
        (Condition(field="time", any_of=("2024",)), "filter.all[0].any_of"),
        (Condition(field="author", gte=1), "filter.all[0].range"),
        (Condition(field="source_type"), "filter.all[0]"),
        (Condition(field="source_type", gte=1), "filter.all[0].range"),
        (Condition(field="metadata.year", gte=2, lte=1), "filter.all[0].range"),
        (Condition(field="metadata.year", gte=float("inf")), "filter.all[0].range"),
        (Condition(field="metadata.year", any_of=("x",) * 101), "filter.all[0].any_of"),
    ],
)
def test_a_filter_is_checked(condition: Condition, field: str) -> None:
    assert wrong_fields(ask("why?", "notes", filter=PointFilter(all=(condition,)))) == [field]


def test_author_tags_and_time_can_be_filtered() -> None:
    wanted = PointFilter(
        all=(Condition(field="author", any_of=("ann",)), Condition(field="time", gte=1_700_000_000)),
        none=(Condition(field="tags", any_of=("old",)),),
    )
    assert check(ask("why?", "notes", filter=wanted), LIMITS).selectors[0].filter == wanted


def test_filters_of_request_and_knowledge_base_both_hold() -> None:
    slack = Condition(field="source_type", any_of=("slack",))
    team = Condition(field="metadata.team", any_of=("ops",))
    year = Condition(field="metadata.year", gte=2020)
    selector = Selector(knowledge_base="notes", filter=PointFilter(all=(team,), none=(year,)))
    question = check(ask("why?", selector, filter=PointFilter(all=(slack,))), LIMITS)
    assert question.selectors[0].filter == PointFilter(all=(slack, team), none=(year,))


def test_two_alternatives_cannot_be_combined_and_say_so() -> None:
    either = PointFilter(any=(Condition(field="metadata.team", any_of=("ops",)),))
    selector = Selector(knowledge_base="notes", filter=either)
    assert wrong_fields(ask("why?", selector, filter=either)) == ["knowledge_bases[0].filter.any"]
