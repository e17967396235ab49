"""A Slack export as a zip file: a text for each channel."""

import json
from typing import Any

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import CHANNELS, EXPORT, USERS, reading, real_export, said, zipped
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.source import SourceType
from kbmesh_rpc.errors import DocumentTooLarge, DocumentUnreadable, KbmeshError, Reason, UnsupportedMediaType

DAYS: dict[str, Any] = {
    "users.json": USERS,
    "channels.json": CHANNELS,
    "ops/2016-01-15.json": [
        said("1452849641.000013", "second day"),
        said("1452849642.1", "reply", thread_ts="1452763320.1"),
    ],
    "ops/2016-01-14.json": [said("1452763320.1", "first day", thread_ts="1452763320.1")],
    "random/2016-01-14.json": [said("1452763321.000002", "elsewhere, <#C1>", "U2")],
}


def titles(files: dict[str, Any]) -> list[str]:
    return [part.document.title for part in reading(zipped(files)).parts]


@pytest.mark.parametrize("strategy", [Strategy.AUTO, Strategy.SLACK, Strategy.FIXED, Strategy.SEMANTIC])
@pytest.mark.parametrize("size", [60, 400, 1500])
async def test_a_real_export_by_every_strategy(chunk: Chunk, strategy: Strategy, size: int) -> None:
    chunked = await chunk(real_export(), filename="export.zip", strategy=strategy, size=size)
    check_laws(chunked)
    assert chunked.document.source_type is SourceType.SLACK
    assert [part.part.document.title for part in chunked.parts] == ["#enrique", "#traveling-sailor"]
    for piece in (chunk.piece for chunk in chunked.chunks):
        assert piece.metadata["channel"] in {"enrique", "traveling-sailor"}
        assert piece.context.startswith("#" + piece.metadata["channel"][:3])


async def test_every_message_of_a_real_export_is_in_a_chunk(chunk: Chunk) -> None:
    chunked = await chunk(real_export())
    found = "\n".join(chunk.text for chunk in chunked.chunks)
    said_words = [
        word
        for path in EXPORT.rglob("2016-*.json")
        for message in json.loads(path.read_bytes())
        if message.get("subtype") not in {"channel_join", "bot_add"}
        for word in message["text"].split()
        if word.isalpha()
    ]
    assert len(said_words) > 100
    assert all(word in found for word in said_words)
    assert "has joined the channel" not in found


@pytest.mark.parametrize("folder", ["", "Acme export 2016/", "a/b/"])
def test_days_make_one_text_in_the_order_of_time(folder: str) -> None:
    document = reading(zipped({folder + name: content for name, content in DAYS.items()}))
    ops, random = (part.document for part in document.parts)
    assert ops.text == (
        "Ada, 2016-01-14 09:22: first day\n\n↳ Ada, 2016-01-15 09:20: reply\n\nAda, 2016-01-15 09:20: second day"
    )
    assert random.text == "Bob Byte, 2016-01-14 09:22: elsewhere, #ops"
    assert (ops.title, ops.context) == ("#ops", ("#ops — Who is on call — Running things",))
    assert document.warnings == ()


def test_private_groups_and_direct_messages_are_named_by_who_is_in_them() -> None:
    files = {
        "users.json": USERS,
        "groups.json": [{"id": "G1", "name": "secret"}],
        "dms.json": [{"id": "D1", "members": ["U1", "U2"]}],
        "mpims.json": [{"id": "G2", "name": "mpdm-ada--bob--eve-1", "members": ["U1", "U2", "U3"]}],
        "secret/2016-01-14.json": [said("1.1", "a")],
        "D1/2016-01-14.json": [said("1.1", "b")],
        "mpdm-ada--bob--eve-1/2016-01-14.json": [said("1.1", "c")],
    }
    assert titles(files) == ["#secret", "Direct messages: Ada, Bob Byte", "Direct messages: Ada, Bob Byte, eve"]


def test_an_export_of_which_only_some_files_are_there() -> None:
    days = {name: content for name, content in DAYS.items() if "/" in name}
    assert titles(days) == ["#ops", "#random"]
    assert reading(zipped(days)).parts[0].document.text.startswith("U1, 2016-01-14 09:22: first day")
    assert titles({"channels.json": CHANNELS, **days}) == ["#ops", "#random"]
    assert titles({"ops/all.json": {"ok": True, "messages": [said("1.1", "x")]}, "users.json": USERS}) == ["#ops"]
    assert titles({"old-name/2016-01-14.json": [said("1.1", "x")], "channels.json": CHANNELS}) == ["#old-name"]


def test_a_broken_day_fails_alone() -> None:
    broken: dict[str, Any] = {
        **DAYS,
        "ops/2016-01-16.json": b'[{"type": "message", "ts"',
        "ops/2016-01-17.json": {"no": "messages"},
        "ops/2016-01-18.json": b"\x00\xff\xfe\x00",
        "ops/2016-01-19.json": [],
        "ops/2016-01-20.json": b"[" * 100_000,
        "random/2016-01-15.json": b"",
    }
    document = reading(zipped(broken))
    assert [part.document.title for part in document.parts] == ["#ops", "#random"]
    named = {warning.metadata.get("part") for warning in document.warnings}
    assert named == {f"ops/2016-01-{day}.json" for day in (16, 17, 18, 20)} | {"random/2016-01-15.json"}


def test_broken_lists_leave_the_messages() -> None:
    for content in (b"{", b"[[[", b'"x"', b"[null, 3, {}]", b"{}"):
        document = reading(zipped({**DAYS, "users.json": content, "channels.json": content}))
        assert "U1, 2016-01-14 09:22: first day" in document.text


def test_what_holds_no_messages_is_named() -> None:
    files = {**DAYS, "integration_logs.json": [], "__MACOSX/ops/._x.json": b"", ".DS_Store": b""}
    assert reading(zipped(files)).warnings == ()
    (warning,) = reading(
        zipped({**files, "ops/attachments/plan.pdf": b"%PDF-", "ops/canvas.json": [{"a": 1}]})
    ).warnings
    assert "plan.pdf" in warning.message
    assert "canvas.json" in warning.message


def test_an_empty_channel_is_no_text_and_an_empty_export_is_an_empty_text() -> None:
    joined = said("1.1", "<@U1> has joined the channel", subtype="channel_join")
    assert titles({**DAYS, "channels.json": [*CHANNELS, {"id": "C3", "name": "void"}]}) == ["#ops", "#random"]
    for days in ({}, {"ops/2016-01-14.json": []}, {"ops/2016-01-14.json": [joined]}):
        document = reading(zipped({"users.json": USERS, "channels.json": CHANNELS, **days}))
        assert document.text == ""
        assert [warning.reason for warning in document.warnings] == [Reason.CONTENT_LEFT_OUT]


def test_an_export_that_could_not_be_read_is_not_an_empty_one() -> None:
    """What was said before stays: nobody can tell that it was taken back."""
    with pytest.raises(DocumentUnreadable):
        reading(zipped({"users.json": USERS, "channels.json": CHANNELS, "ops/2016-01-14.json": b"{"}))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (zipped({"a.txt": b"hello"}), UnsupportedMediaType),
        (zipped({"a/b.json": {"a": 1}}), UnsupportedMediaType),
        (zipped({"logs/2016-01-14.json": [{"level": "info"}]}), UnsupportedMediaType),
        (zipped({}), UnsupportedMediaType),
        (zipped(DAYS)[:200], DocumentUnreadable),
        (zipped({**DAYS, "ops/2016-01-16.json": b"[" + b" " * 3_000_000 + b"]"}), DocumentTooLarge),
    ],
)
def test_other_archives_are_refused_for_their_reason(content: bytes, error: type[KbmeshError]) -> None:
    with pytest.raises(error):
        reading(content, filename="export.zip")
