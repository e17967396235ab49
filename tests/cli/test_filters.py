"""Filters as somebody types them: what the mesh is asked, and what is said where they cannot be meant."""

import contextlib
from datetime import UTC, datetime

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from hypothesis import given
from hypothesis import strategies as st
from kbmesh_cli.errors import CliError
from kbmesh_cli.filters import parse_filter
from kbmesh_client import Condition, Filter


def at(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()


def one_of(field: str, *values: str) -> Condition:
    return Condition(field=field, any_of=values)


@pytest.mark.parametrize(
    ("typed", "kept", "left_out"),
    [
        (["tags=ops,db"], [one_of("tags", "ops", "db")], []),
        (["tags=ops", "tags=db"], [one_of("tags", "ops", "db")], []),
        (["tags=ops", "author=Ada"], [one_of("tags", "ops"), one_of("author", "Ada")], []),
        (["author!=bob"], [], [one_of("author", "bob")]),
        (["author!=bob,eve", "author!=ann"], [], [one_of("author", "bob", "eve", "ann")]),
        (["source_type=Web-Page"], [one_of("source_type", "web_page")], []),
        (["external_id=a\\,b.md,c.md"], [one_of("external_id", "a,b.md", "c.md")], []),
        (["metadata.team=a=b"], [one_of("metadata.team", "a=b")], []),
        (["metadata.op=>=5"], [one_of("metadata.op", ">=5")], []),
        (["metadata.a b=c"], [one_of("metadata.a b", "c")], []),
        (["metadata.year>=2020"], [Condition(field="metadata.year", gte=2020)], []),
        ([" metadata.year <= -1.5e3 "], [Condition(field="metadata.year", lte=-1500)], []),
        (["time>=2026-01-01"], [Condition(field="time", gte=at(2026, 1, 1))], []),
        (["time<=2026-01-31"], [Condition(field="time", lte=at(2026, 1, 31, 23, 59, 59, 999_999))], []),
        (["time<=2026-01-31T18:00"], [Condition(field="time", lte=at(2026, 1, 31, 18))], []),
        (["time>=2026-01-31T18:00:00+02:00"], [Condition(field="time", gte=at(2026, 1, 31, 16))], []),
        (
            ["time>=2026-01-01", "time<=2026-01-02T00:00:00Z"],
            [Condition(field="time", gte=at(2026, 1, 1)), Condition(field="time", lte=at(2026, 1, 2))],
            [],
        ),
    ],
)
def test_a_condition_means_this(typed: list[str], kept: list[Condition], left_out: list[Condition]) -> None:
    assert parse_filter(typed) == Filter(all=tuple(kept), none=tuple(left_out))


def test_nothing_typed_is_no_filter() -> None:
    assert parse_filter([]) is None


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("tags", "FIELD=VALUE"),
        ("=ops", "FIELD=VALUE"),
        ("tags=", "FIELD=VALUE"),
        ("tags=ops,,db", "empty value"),
        ("tenant=rival", "no field 'tenant'"),
        ("principals=ann", "no field 'principals'"),
        ("metadata.=x", "no field 'metadata.'"),
        ("Tags=ops", "no field 'Tags'"),
        ("source_type=papyrus", "no source type 'papyrus'"),
        ("author>=bob", "a text"),
        ("time=2026-01-01", "range only"),
        ("time!=2026-01-01", "range only"),
        ("time>=yesterday", "ISO 8601"),
        ("time>=2026-13-01", "ISO 8601"),
        ("metadata.year>=twenty", "needs a number"),
        ("metadata.year>=nan", "needs a number"),
        ("metadata.year<=inf", "needs a number"),
        ("metadata.year>2020", "a bound is included"),
        ("metadata.year<2020", "a bound is included"),
    ],
)
async def test_what_cannot_be_meant_is_told_with_a_hint(
    script: Script, endpoint: str, kbmesh: Kbmesh, typed: str, told: str
) -> None:
    done = await kbmesh("search", "x", "--kb", "handbook", "--filter", typed, "--json", "--endpoint", endpoint)
    error = done.json()["error"]
    assert (done.code, error["reason"]) == (2, "USAGE")
    assert told in error["message"]
    assert error["hint"]
    assert script.requests == []


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() != "" and not text.endswith("\\")), min_size=1))
def test_a_value_is_what_was_typed(values: list[str]) -> None:
    """Whatever it holds: only the comma means something, and a backslash takes that away."""
    values = [value.replace("\\,", "") or "x" for value in values]
    values = [value if value.strip() and not value.endswith("\\") else "x" for value in values]
    typed = ",".join(value.replace(",", "\\,") for value in values)
    meant = parse_filter([f"metadata.name={typed}"])
    assert meant == Filter(all=(one_of("metadata.name", *values),))


@given(st.text())
def test_nothing_else_comes_of_what_is_typed(typed: str) -> None:
    """One condition, or an error of the command."""
    with contextlib.suppress(CliError):
        meant = parse_filter([typed])
        assert meant is not None
        assert len([*meant.all, *meant.none]) == 1
