"""Filters over what callers say of their documents: author, tags, time, kind of source, metadata. And nothing else."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.caller import Caller, documents_of, text

QUERY = "turbines"
HOSTILE = (
    'ops" OR "1"="1',
    "ops'; DROP TABLE documents; --",
    'x"}]},"must_not":[],"should":[{"key":"tenant',
    "[0]",
    "tags[]",
    "$in",
    "a.b.c",
    "tenant",
    "\u202eops",
    "оps",  # a Cyrillic letter
    "ops\n",
    "\\",
    "*",
    "😀" * 32,
)


@pytest.fixture
async def caller(retriever_address: str) -> AsyncIterator[Caller]:
    async with open_channel(retriever_address) as channel:
        yield Caller(channel)


def one_of(field: str, *values: str) -> pb.Condition:
    return pb.Condition(field=field, any_of=pb.StringList(values=values))


def between(field: str, gte: float | None = None, lte: float | None = None) -> pb.Condition:
    return pb.Condition(field=field, range=pb.Range(gte=gte, lte=lte))


def seconds(*day: int) -> float:
    return datetime(*day, tzinfo=UTC).timestamp()


async def send(caller: Caller, name: str, written: float | None = None, **said: Any) -> None:
    message = text(name, f"All about {QUERY}, {name}", **said)
    if written is not None:
        message.created_at.FromDatetime(datetime.fromtimestamp(written, UTC))
    await caller.send("notes", message)


async def refusal(caller: Caller, wanted: pb.Filter) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.retrieve(QUERY, "notes", filter=wanted)
    return from_rpc_error(caught.value, dependency="retriever")


@pytest.fixture
async def notes(caller: Caller) -> Caller:
    await caller.create("notes")
    await send(caller, "old", seconds(2025, 6, 1), author="Ada", tags=["ops", "db"], metadata={"year": "2019"})
    await send(caller, "new", seconds(2026, 1, 1), author="bob", tags=["ops"], metadata={"year": "2020"})
    await send(caller, "half", seconds(2026, 1, 1) + 0.5, tags=["dev"], metadata={"year": "twenty"})
    await send(caller, "bare")
    return caller


async def test_filters_keep_what_passes(notes: Caller) -> None:
    for wanted, seen in (
        (pb.Filter(all=[one_of("tags", "db", "dev")]), {"old", "half"}),
        (pb.Filter(all=[one_of("tags", "ops"), one_of("tags", "db")]), {"old"}),
        (pb.Filter(none=[one_of("tags", "ops")]), {"half", "bare"}),
        (pb.Filter(all=[one_of("author", "Ada")]), {"old"}),
        (pb.Filter(none=[one_of("author", "bob")]), {"old", "half", "bare"}),
        (pb.Filter(all=[between("time", gte=seconds(2026, 1, 1))]), {"new", "half"}),
        (pb.Filter(all=[between("time", lte=seconds(2026, 1, 1))]), {"old", "new"}),
        (pb.Filter(all=[between("time", seconds(2026, 1, 1), seconds(2026, 1, 1))]), {"new"}),
        (pb.Filter(none=[between("time", gte=seconds(2026, 1, 1))]), {"old", "bare"}),
        (pb.Filter(all=[between("metadata.year", gte=2020)]), {"new"}),
        (pb.Filter(any=[one_of("tags", "db"), between("metadata.year", gte=2020)]), {"old", "new"}),
        (pb.Filter(all=[one_of("source_type", "SOURCE_TYPE_FILE")]), {"old", "new", "half", "bare"}),
        (pb.Filter(all=[one_of("source_type", "slack")]), set()),
        (pb.Filter(all=[one_of("author", "ada")]), set()),
    ):
        assert await notes.sees(QUERY, "notes", filter=wanted) == seen, wanted


async def test_filters_follow_what_is_said_later(notes: Caller) -> None:
    await send(notes, "old", seconds(2026, 2, 1), tags=["dev"], metadata={"year": "2019"})
    assert await notes.sees(QUERY, "notes", filter=pb.Filter(all=[one_of("tags", "ops", "db")])) == {"new"}
    assert await notes.sees(QUERY, "notes", filter=pb.Filter(all=[one_of("author", "Ada")])) == set()
    recent = pb.Filter(all=[between("time", gte=seconds(2026, 1, 15))])
    assert await notes.sees(QUERY, "notes", filter=recent) == {"old"}


async def test_kinds_of_sources_are_told_apart(notes: Caller) -> None:
    mail = text("mail", f"All about {QUERY}")
    mail.document.source_type = chunker_pb2.SOURCE_TYPE_EMAIL
    await notes.send("notes", mail)
    assert await notes.sees(QUERY, "notes", filter=pb.Filter(all=[one_of("source_type", "EMAIL")])) == {"mail"}
    assert "mail" not in await notes.sees(QUERY, "notes", filter=pb.Filter(none=[one_of("source_type", "email")]))


async def test_names_of_kinds_are_read_in_any_spelling_and_unknown_ones_refused(notes: Caller) -> None:
    everything = await notes.sees(QUERY, "notes")
    for field, name in (("source_type", "file"), ("strategy", "document"), ("strategy", "semantic")):
        seen = await notes.sees(QUERY, "notes", filter=pb.Filter(all=[one_of(field, name)]))
        for spelling in (name.upper(), f"{field}_{name}".upper()):
            assert await notes.sees(QUERY, "notes", filter=pb.Filter(all=[one_of(field, spelling)])) == seen
            rest = await notes.sees(QUERY, "notes", filter=pb.Filter(none=[one_of(field, spelling)]))
            assert rest == everything - seen
        for unknown in ("", "unspecified", "files", f"{name} "):
            refused = await refusal(notes, pb.Filter(none=[one_of("author", "x"), one_of(field, name, unknown)]))
            assert refused.reason is Reason.INVALID_FIELD
            assert [wrong.field for wrong in refused.field_violations] == ["filter.none[1].any_of"]


async def test_a_value_is_a_value_whatever_it_holds(notes: Caller) -> None:
    """Quotes, brackets, operators, other scripts: it finds the document that says exactly this, and no other."""
    for number, value in enumerate(HOSTILE):
        named = value if not set('"\\').intersection(value) else "plain"
        await send(notes, f"h{number}", author=value, tags=[value], metadata={named: value})
    for number, value in enumerate(HOSTILE):
        for field in ("author", "tags"):
            keeps = pb.Filter(all=[one_of(field, value)])
            assert await notes.sees(QUERY, "notes", filter=keeps, top_k=50) == {f"h{number}"}
        if not set('"\\').intersection(value):
            by_name = pb.Filter(all=[one_of(f"metadata.{value}", value)])
            assert await notes.sees(QUERY, "notes", filter=by_name, top_k=50) == {f"h{number}"}


async def test_a_principal_is_a_name_whatever_it_holds(notes: Caller) -> None:
    for number, value in enumerate(HOSTILE):
        await send(notes, f"h{number}", principals=[value])
    everybody = await notes.sees(QUERY, "notes", top_k=50)
    assert everybody == {"old", "new", "half", "bare"}
    sent = {value for value in HOSTILE if value.isascii() and value.isprintable() and not set(", ").intersection(value)}
    for number, value in enumerate(HOSTILE):
        if value in sent:
            assert await notes.known_as(value).sees(QUERY, "notes", top_k=50) == {*everybody, f"h{number}"}


NO_FIELDS = (
    *("tenant", "knowledge_base_id", "principals", "generation", "text", "open", "metadata_numbers.year"),
    *("", "metadata", "metadata.", 'metadata."a"', 'metadata.a"', "metadata.a\\", "Tags", "tags[]", "document_id.x"),
)


async def test_what_is_no_field_is_refused(notes: Caller) -> None:
    """Above all what keeps tenants and readers apart."""
    for field in NO_FIELDS:
        for wanted in (
            pb.Filter(all=[one_of(field, "default")]),
            pb.Filter(any=[one_of("tags", "ops"), one_of(field, "rival")]),
            pb.Filter(none=[one_of(field, "default")]),
            pb.Filter(all=[between(field, gte=0)]),
        ):
            refused = await refusal(notes, wanted)
            assert refused.reason is Reason.INVALID_FIELD
            assert all(violation.field.startswith("filter.") for violation in refused.field_violations)


async def test_a_test_that_cannot_be_made_is_refused(notes: Caller) -> None:
    for condition in (
        between("tags", gte=1),
        between("author", lte=1),
        one_of("time", "2026-01-01"),
        between("time", gte=float("nan")),
        between("time", gte=float("inf")),
        between("time", gte=2, lte=1),
        pb.Condition(field="tags"),
        one_of("tags"),
        pb.Condition(field="time", range=pb.Range()),
        one_of("tags", *map(str, range(101))),
    ):
        assert (await refusal(notes, pb.Filter(all=[condition]))).reason is Reason.INVALID_FIELD, condition


async def test_a_filter_opens_nothing(notes: Caller) -> None:
    """Alternatives and exceptions stand beside who asks, not instead."""
    await send(notes, "secret", principals=["ann"], tags=["ops"])
    rival = Caller(notes.channel, "rival")
    await rival.create("notes")
    await rival.send("notes", text("theirs", QUERY, tags=["ops"]))
    for wanted in (
        pb.Filter(any=[one_of("tags", "ops"), one_of("external_id", "secret", "theirs")]),
        pb.Filter(all=[one_of("tags", "ops")]),
        pb.Filter(none=[one_of("tags", "dev")]),
    ):
        answer = await notes.retrieve(QUERY, "notes", filter=wanted)
        assert not {"secret", "theirs"} & documents_of(answer)
        assert "secret" in await notes.known_as("ann").sees(QUERY, "notes", filter=wanted)
