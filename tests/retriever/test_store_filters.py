"""Filters as they are built: whatever is asked, tenant and knowledge base stay on."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kbmesh_retriever.stores.conditions import metadata_numbers
from kbmesh_retriever.stores.filters import build_filter
from kbmesh_retriever.stores.port import Condition, PointFilter
from kbmesh_rpc.errors import InvalidField
from qdrant_client import models
from store_points import scope

MINE = scope("acme", "handbook")
FIXED = [
    models.FieldCondition(key="tenant", match=models.MatchValue(value="acme")),
    models.FieldCondition(key="knowledge_base_id", match=models.MatchValue(value=str(MINE.knowledge_base_id))),
]

CONDITION = st.builds(
    Condition,
    field=st.sampled_from(["source_type", "external_id", "metadata.team", "metadata.tenant"]),
    any_of=st.lists(st.text(), min_size=1, max_size=3).map(tuple),
)
FILTER = st.builds(
    PointFilter,
    all=st.lists(CONDITION, max_size=3).map(tuple),
    any=st.lists(CONDITION, max_size=3).map(tuple),
    none=st.lists(CONDITION, max_size=3).map(tuple),
)


@given(FILTER)
def test_no_filter_loosens_tenant_and_knowledge_base(wanted: PointFilter) -> None:
    built = build_filter(MINE, wanted)
    assert built.must[:2] == FIXED
    assert built.min_should is None
    conditions = [*built.must[2:], *(built.should or []), *(built.must_not or [])]
    assert not {condition.key for condition in conditions} & {"tenant", "knowledge_base_id"}


@pytest.mark.parametrize(
    "condition",
    [
        Condition(field="tenant", any_of=("globex",)),
        Condition(field="knowledge_base_id", any_of=("x",)),
        Condition(field="text", any_of=("x",)),
        Condition(field="metadata", any_of=("x",)),
        Condition(field="metadata.", any_of=("x",)),
        Condition(field='metadata.a"b', any_of=("x",)),
        Condition(field="metadata.a\\b", any_of=("x",)),
        Condition(field="", any_of=("x",)),
        Condition(field="source_type", gte=1),
        Condition(field="metadata.year"),
    ],
)
@pytest.mark.parametrize("part", ["all", "any", "none"])
def test_conditions_that_cannot_be_kept_are_refused(condition: Condition, part: str) -> None:
    with pytest.raises(InvalidField):
        build_filter(MINE, PointFilter(**{part: (condition,)}))


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.floats().map(str), st.integers().map(str))))
def test_numbers_are_taken_from_metadata_and_are_finite(metadata: dict[str, str]) -> None:
    numbers = metadata_numbers(metadata)
    assert all(math.isfinite(number) for number in numbers.values())
    assert all(float(metadata[name]) == number for name, number in numbers.items())


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "1_000", "0x10", "", " ", "2024-01-02", "1,5", "٣"])
def test_what_only_looks_like_a_number_is_none(text: str) -> None:
    assert metadata_numbers({"value": text}) == {}
