"""Two things have one name only where they are equal in every part."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.cache.digest import digest_of
from kbmesh_retriever.retrieve.stage import ScoreStage, Strategy

PLAIN = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.binary(max_size=3)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.frozensets(PLAIN, max_size=3)
    ),
    max_leaves=8,
)


def shape(value: object) -> object:
    """Python holds True and 1 for equal, in sets too; a cache must not."""
    if isinstance(value, tuple):
        return ("tuple", *map(shape, value))
    if isinstance(value, dict):
        return ("dict", frozenset((shape(key), shape(item)) for key, item in value.items()))
    if isinstance(value, frozenset):
        return ("set", frozenset(map(shape, value)))
    return (type(value), value)


@given(st.tuples(VALUES, VALUES))
@settings(max_examples=300, deadline=None)
def test_equal_digests_mean_equal_values(pair: tuple[object, object]) -> None:
    one, other = pair
    assert (digest_of(one) == digest_of(other)) == (shape(one) == shape(other))


def test_parts_do_not_run_into_each_other() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert digest_of(("a",), "b") != digest_of(("a", "b"))
    assert digest_of(frozenset({"a,b"})) != digest_of(frozenset({"a", "b"}))
    assert digest_of(1) != digest_of(1.0) != digest_of("1.0")
    assert digest_of(Strategy.HYBRID) != digest_of("hybrid")


def test_order_counts_where_it_means_something() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of(frozenset({"x", "y"})) == digest_of({"y", "x"})
    assert digest_of(("x", "y")) != digest_of(("y", "x"))


def test_every_field_of_a_dataclass_counts() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wanted:
        query: str = field(repr=False)
        stage: ScoreStage = ScoreStage.FINAL
        since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
        of: UUID

    one, two = UUID(int=1), UUID(int=2)
    base = digest_of(Wanted(query="a", of=one))
    others = [
        Wanted(query="b", of=one),
        Wanted(query="a", of=one, stage=ScoreStage.FUSED),
        Wanted(query="a", of=one, since=datetime(2026, 1, 2, tzinfo=UTC)),
        Wanted(query="a", of=two),
    ]
    assert len({base, *map(digest_of, others)}) == 5


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError):
        digest_of(object())
