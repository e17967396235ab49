"""Messages that lack what Slack writes and other tools leave out: an author, a type, zeros, a text that is a string."""

import json

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import reading, said, texts, zipped
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.source import ExtractedDocument, Grammar, SlackLayout
from kbmesh_rpc.errors import Reason

BARE = [{"ts": "10.1", "text": "root"}, {"ts": "12.1", "text": "next"}]
LINES = ["1970-01-01 00:00: root", "1970-01-01 00:00: next"]


def layout(document: ExtractedDocument) -> SlackLayout:
    found = document.main.layout
    assert isinstance(found, SlackLayout)
    return found


@pytest.mark.parametrize("author", [{}, {"user": None}, {"user": 7}, {"user": {"id": "U1"}}])
def test_a_message_needs_no_author_where_messages_are_expected(author: dict[str, object]) -> None:
    messages = [{**message, **author} for message in BARE]
    for document in (
        reading(zipped({"ops/2016-01-14.json": messages})),
        reading(json.dumps({"messages": messages})),
        reading(json.dumps(messages), filename="export/ops/2016-01-14.json"),
        reading(json.dumps(messages), grammar=Grammar.SLACK),
        reading(json.dumps(messages), grammar=Grammar.SLACK, filename="x.json"),
        reading("\n".join(map(json.dumps, messages)), grammar=Grammar.SLACK),
    ):
        assert document.text.split("\n\n") == LINES
        assert [message.author for message in layout(document).messages] == ["", ""]


def test_a_list_whose_messages_name_a_thread_needs_nothing_more() -> None:
    messages = [{"thread_ts": "10.1", **message} for message in BARE]
    document = reading(json.dumps(messages))
    assert [message.thread for message in layout(document).messages] == ["10.1", "10.1"]


@pytest.mark.parametrize("odd", [{"ts": "11.1", "text": "whose?"}, {"note": "no message"}, 7, {"ts": "11.1"}])
def test_odd_entries_do_not_lose_the_day(odd: object) -> None:
    day = [odd, said("10.1", "kept"), odd]
    for document in (
        reading(zipped({"ops/2016-01-14.json": day})),
        reading(json.dumps({"messages": day})),
        reading(json.dumps(day), filename="ops/2016-01-14.json"),
        reading(json.dumps(day), grammar=Grammar.SLACK),
    ):
        assert "kept" in document.text
        assert ("whose?" in document.text) == (odd == {"ts": "11.1", "text": "whose?"})
        lost = odd in ({"note": "no message"}, 7)
        assert [warning.reason for warning in document.warnings] == [Reason.DOCUMENT_UNREADABLE] * lost


@pytest.mark.parametrize(
    "value",
    [
        said("10.1", "alone"),
        {"ts": "10.1", "text": "alone"},
        {"event": {"ts": "10.1", "text": "alone"}},
        {"type": "event_callback", "team_id": "T1", "event": said("10.1", "alone", channel="C1")},
        [{"event": said("10.1", "alone")}],
    ],
)
async def test_one_message_is_slack_where_the_caller_says_so(chunk: Chunk, value: object) -> None:
    for content in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value) + "\n"):
        chunked = await chunk(content, filename="event.json", strategy=Strategy.SLACK)
        check_laws(chunked)
        assert chunked.config.strategy is Strategy.SLACK
        assert [text.rpartition(": ")[2] for text in texts(chunked)] == ["alone"]


@pytest.mark.parametrize("value", [{"ts": "soon", "text": "x"}, {"text": "x"}, {"event": {"name": "x"}}, [1, "x"], {}])
def test_other_json_is_not_slack_even_so(value: object) -> None:
    assert reading(json.dumps(value), grammar=Grammar.SLACK).main.grammar is Grammar.PLAIN


async def test_times_that_were_written_as_numbers_are_the_same_times(chunk: Chunk) -> None:
    root, late = "1741000003.000100", 1741000003.0001
    messages = [
        said(root, "root", thread_ts=root),
        said("1741000004.000200", "unrelated"),
        said("1741000005.000300", "reply", thread_ts=late),
        said("1741000006.000400", "reply to none", thread_ts=1741000001.5),
        said("1741000007.000400", "another", thread_ts="1741000001.500000"),
    ]
    chunked = await chunk(json.dumps({"messages": messages}))
    threads = [message.thread for message in layout(chunked.document).messages]
    assert threads == ["1741000001.5", "1741000001.5", root, root, "1741000004.000200"]
    assert any("root" in text and "reply" in text for text in texts(chunked))


def test_edits_and_deletions_by_number() -> None:
    edited = {"ts": 20.5, "subtype": "message_changed", "message": said(10.0001, "new", edited={"ts": 20.5})}
    deleted = {"ts": 30.5, "subtype": "message_deleted", "deleted_ts": 11.0002}
    messages = [said("10.000100", "old"), said("11.000200", "gone"), said(10.0001, "old"), edited, deleted]
    assert reading(json.dumps({"messages": messages})).text == "U1, 1970-01-01 00:00: new"


@pytest.mark.parametrize(
    ("text", "shown"),
    [(42, "42"), (1.5, '"1.5"'), (True, "true"), (["a", {"b": "c"}], '["a", {"b": "c"}]'), ({"a": 1}, '{"a": 1}')],
)
def test_a_text_that_is_no_string_is_kept(text: object, shown: str) -> None:
    document = reading(json.dumps([said("10.1", text)]))
    assert document.text.removeprefix("U1, 1970-01-01 00:00: ") == shown.strip('"')


def test_numbers_in_attachments_are_kept() -> None:
    attachment = {"title": "Load", "text": 97, "fields": [{"title": "CPU", "value": 98}]}
    document = reading(json.dumps([said("10.1", "alarm", attachments=[attachment])]))
    assert "97" in document.text
    assert "CPU: 98" in document.text
