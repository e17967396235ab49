"""Messages of Slack: who said what at last, in which thread, once."""

import json

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import USERS, reading, said, shown, texts
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.source import Grammar, SourceType
from kbmesh_rpc.errors import DocumentTooLarge


def as_json(messages: object) -> str:
    return json.dumps({"messages": messages})


async def test_slk_01_a_mention_of_nobody_stays_a_mention(chunk: Chunk) -> None:
    messages = [
        {"ts": "1741000000.000100", "user": "U01", "text": "<@U0ABSENT> please rotate the key"},
        {"ts": "1741000001.000100", "user": "U01", "text": "done"},
    ]
    for content in (as_json(messages), json.dumps(messages), "\n".join(map(json.dumps, messages))):
        chunked = await chunk(content)
        check_laws(chunked)
        assert texts(chunked) == [
            "U01, 2025-03-03 11:06: @U0ABSENT please rotate the key\n\nU01, 2025-03-03 11:06: done"
        ]


async def test_slk_02_what_was_escaped_is_written_as_it_was_typed(chunk: Chunk) -> None:
    text = "```if (a &lt; b &amp;&amp; c &gt; d) { run(); }``` and literally &amp;lt; and &#39;"
    (found,) = texts(await chunk(as_json([said("1741000000.000100", text)])))
    assert "```if (a < b && c > d) { run(); }``` and literally &lt; and &#39;" in found


async def test_slk_03_a_thread_is_one_piece_in_the_order_of_time(chunk: Chunk) -> None:
    messages = [
        {"ts": "10.1", "thread_ts": "10.1", "user": "U1", "text": "Deploy failed?"},
        {"ts": "12.1", "thread_ts": "10.1", "user": "U1", "text": "prod, error E-4412"},
        {"ts": "10.5", "user": "U3", "text": "Lunch?"},
        {"ts": "11.1", "thread_ts": "10.1", "user": "U2", "text": "Which env"},
    ]
    chunked = await chunk(as_json(messages))
    check_laws(chunked)
    thread, lunch = chunked.chunks
    assert (thread.piece.type, lunch.piece.type) == ("complete_thread", "slack_messages")
    assert [line.rpartition(": ")[2] for line in thread.text.split("\n\n")] == [
        "Deploy failed?",
        "Which env",
        "prod, error E-4412",
    ]
    assert thread.piece.metadata["thread_ts"] == "10.1"
    assert "Lunch?" in lunch.text
    assert "thread_ts" not in lunch.piece.metadata


def test_a_reply_follows_its_root_and_is_marked_in_whatever_order_the_file_is() -> None:
    messages = [said(f"{20 - place}.000001", f"reply {place}", thread_ts="5.000001") for place in range(3)]
    assert shown([*messages, said("5.000001", "root"), said("9.1", "other")]) == [
        "Ada, 1970-01-01 00:00: root",
        "↳ Ada, 1970-01-01 00:00: reply 2",
        "↳ Ada, 1970-01-01 00:00: reply 1",
        "↳ Ada, 1970-01-01 00:00: reply 0",
        "Ada, 1970-01-01 00:00: other",
    ]


def test_times_that_a_float_cannot_tell_apart_are_told_apart() -> None:
    messages = [said("1452763320.0000000002", "second"), said("1452763320.0000000001", "first")]
    assert [line[-6:].strip(": ") for line in shown(messages)] == ["first", "second"]


def test_replies_whose_root_is_elsewhere_are_a_thread_of_their_own() -> None:
    document = reading(json.dumps([said("30.1", "one", thread_ts="3.1"), said("31.1", "two", thread_ts="3.1")]))
    assert [message.thread for message in document.main.layout.messages] == ["3.1", "3.1"]  # type: ignore[union-attr] # it is Slack's


def test_replies_that_their_root_alone_knows_are_in_its_thread() -> None:
    root = said("1.1", "root", replies=[{"user": "U2", "ts": "4.1"}])
    assert [line[0] for line in shown([root, said("2.1", "aside"), said("4.1", "reply")])] == ["A", "↳", "A"]


def test_replies_within_their_root_come_after_it() -> None:
    root = said("1.1", "root", slackdump_thread_replies=[said("3.1", "reply", thread_ts="1.1")])
    assert [line.rpartition(" ")[2] for line in shown([root, said("2.1", "aside")])] == ["root", "reply", "aside"]


def test_a_reply_that_was_sent_to_the_channel_too_is_there_once() -> None:
    root = said("1.1", "root", thread_ts="1.1")
    reply = said("3.1", "for all", thread_ts="1.1", subtype="thread_broadcast", root=root)
    assert [line.partition(": ")[2] for line in shown([reply, root, reply])] == ["root", "for all"]
    assert [line.partition(": ")[2] for line in shown([reply])] == ["root", "for all"]


async def test_slk_05_of_an_edited_message_the_new_text_stands(chunk: Chunk) -> None:
    first = {"ts": "10.1", "user": "U1", "text": "Password hint is blue"}
    edit = {
        "subtype": "message_changed",
        "ts": "20.1",
        "message": {"ts": "10.1", "user": "U1", "text": "Hint removed", "edited": {"ts": "20.1"}},
        "previous_message": {"ts": "10.1", "text": "Password hint is blue"},
    }
    for messages in ([first, edit], [edit, first], [edit]):
        chunked = await chunk(as_json(messages))
        assert texts(chunked) == ["U1, 1970-01-01 00:00: Hint removed"]
        assert "blue" not in chunked.document.text


def test_of_two_edits_the_later_one_stands() -> None:
    def edit(ts: str, text: str) -> dict[str, object]:
        return {"type": "message", "subtype": "message_changed", "ts": ts, "hidden": True, "message": said("1.1", text)}

    assert shown([edit("9.9", "third"), said("1.1", "first"), edit("5.5", "second")])[0].endswith(": third")
    change = {"type": "message", "subtype": "message_changed", "ts": 9, "message": {"ts": 5, "text": "new"}}
    for messages in ([said(5, "old"), change], [change, said(5, "old")]):
        assert shown(messages) == ["Ada, 1970-01-01 00:00: new"]
    plain = said("1.1", "edited in the export", edited={"user": "U1", "ts": "7.7"})
    assert shown([plain, said("1.1", "old")]) == ["Ada, 1970-01-01 00:00: edited in the export"]


def test_what_was_deleted_is_gone_and_counted() -> None:
    deleted = {"type": "message", "subtype": "message_deleted", "ts": "9.1", "deleted_ts": "1.1", "hidden": True}
    tombstone = said("2.1", "This message was deleted.", subtype="tombstone", thread_ts="2.1")
    changed = {
        "type": "message",
        "subtype": "message_changed",
        "ts": "8.1",
        "message": said("4.1", "This message was deleted.", subtype="tombstone"),
    }
    messages = [
        said("1.1", "a secret"),
        deleted,
        tombstone,
        said("3.1", "a reply", thread_ts="2.1"),
        said("4.1", "another secret"),
        changed,
    ]
    document = reading(json.dumps(messages))
    assert document.text == "↳ U1, 1970-01-01 00:00: a reply"
    assert document.metadata["deleted_messages"] == "3"


async def test_slk_08_the_preview_of_a_link_makes_no_second_message(chunk: Chunk) -> None:
    messages = [
        {"ts": "10.1", "user": "U1", "text": "<https://example.com/doc|doc>"},
        {
            "subtype": "message_changed",
            "ts": "10.2",
            "message": {
                "ts": "10.1",
                "user": "U1",
                "text": "<https://example.com/doc|doc>",
                "attachments": [{"title": "Doc", "text": "Preview"}],
            },
            "previous_message": {"ts": "10.1", "text": "<https://example.com/doc|doc>"},
        },
    ]
    assert texts(await chunk(as_json(messages))) == ["U1, 1970-01-01 00:00: doc (https://example.com/doc)\nPreview"]


def test_the_same_message_in_two_files_is_there_once_and_others_of_its_second_stay() -> None:
    assert len(shown([said("1.000001", "x"), said("1.000001", "x"), said("1.000002", "x")])) == 2
    assert len(shown([said(1741000000, "one"), said(1741000000, "two"), said(1741000000, "one")])) == 2
    assert len(shown([said("1.1", "one"), said("1.1", "two", "U2")])) == 2


SLK_09 = {
    "ts": "10.1",
    "subtype": "bot_message",
    "bot_id": "B9",
    "username": "Alert Flow ",
    "text": "",
    "attachments": [{"fallback": "CPU 97% on node-3"}],
    "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "CPU 97% on node-3"}}],
}


async def test_slk_09_bots_are_heard_once_by_their_name_or_not_at_all(chunk: Chunk) -> None:
    heard = await chunk(as_json([SLK_09]))
    assert texts(heard) == ["Alert Flow, 1970-01-01 00:00: CPU 97% on node-3"]
    options = {"strategy": Strategy.SLACK, "options_of": Strategy.SLACK, "options": {"exclude_bots": True}}
    assert texts(await chunk(as_json([SLK_09]), **options)) == []
    between = [said("9.1", "before"), SLK_09, said("11.1", "after")]
    chunked = await chunk(as_json(between), **options)
    assert [text.rpartition(": ")[2] for text in texts(chunked)] == ["before", "after"]


@pytest.mark.parametrize(
    ("message", "author"),
    [
        ({"bot_id": "B1", "bot_profile": {"name": "Deployer"}}, "Deployer"),
        ({"bot_id": "B1", "subtype": "bot_message"}, "B1"),
        ({"user": "U9", "bot_id": "B1"}, "Robot"),
        ({"user": "U9"}, "Robot"),
        ({"user": "USLACKBOT"}, "USLACKBOT"),
    ],
)
def test_bots_are_known_by_many_signs(message: dict[str, object], author: str) -> None:
    users = [{"id": "U9", "is_bot": True, "profile": {"real_name": "Robot"}}]
    document = reading(json.dumps({"users": users, "messages": [{"ts": "1.1", "text": "hello", **message}]}))
    (found,) = document.main.layout.messages  # type: ignore[union-attr] # it is Slack's
    assert (found.author, found.bot) == (author, True)


async def test_slk_11_code_is_unescaped_once(chunk: Chunk) -> None:
    (found,) = texts(await chunk(as_json([said("10.1", "```&lt;div&gt;Hi&lt;/div&gt;```")])))
    assert "```<div>Hi</div>```" in found
    assert "amp;" not in found


def test_people_are_called_as_they_call_themselves() -> None:
    messages = [said("1.1", "a", "U1"), said("2.1", "b", "U2"), said("3.1", "c", "U3"), said("4.1", "d", "U4")]
    assert [line.partition(",")[0] for line in shown(messages)] == ["Ada", "Bob Byte", "eve", "U4"]
    profile = {"real_name": "Dan Deka", "display_name": "dan"}
    assert shown([said("4.1", "<@U4>", "U4", user_profile=profile)])[0].startswith("dan, 1970-01-01 00:00: @dan")


def test_who_came_and_went_is_counted_and_what_a_channel_is_for_is_told() -> None:
    messages = [
        said("1.1", "<@U1> has joined the channel", subtype="channel_join"),
        said("2.1", "set the channel topic: freeze until Monday", subtype="channel_topic"),
        said("3.1", "waves", subtype="me_message"),
    ]
    document = reading(json.dumps({"users": USERS, "messages": messages}))
    assert "joined" not in document.text
    assert "freeze until Monday" in document.text
    assert document.metadata["events_left_out"] == "1"


def test_the_channel_is_named_where_the_file_names_it() -> None:
    combined = {
        "channel": {"id": "C1", "name": "ops", "topic": {"value": "On call"}, "purpose": {"value": "Run"}},
        "users": {"U1": {"name": "ada"}},
        "messages": [said("1452763320.000002", "hello <#C1>")],
    }
    document = reading(json.dumps(combined), filename="ops.json")
    assert (document.title, document.source_type, document.main.grammar) == ("#ops", SourceType.SLACK, Grammar.SLACK)
    assert document.main.context == ("#ops — On call — Run",)
    assert document.text == "ada, 2016-01-14 09:22: hello #C1"
    assert document.metadata == {
        "channel": "ops",
        "channel_id": "C1",
        "messages": "1",
        "participants": "ada",
        "first_date": "2016-01-14",
        "last_date": "2016-01-14",
    }
    day = reading(json.dumps([said("1.1", "hello")]), filename="export/general/2016-01-14.json")
    assert day.title == "#general"


def test_messages_of_several_channels_are_several_texts() -> None:
    lines = [said("1.1", "a", channel="C1"), said("2.1", "b", channel={"id": "C2", "name": "random"})]
    document = reading("\n".join(map(json.dumps, lines)), filename="messages.jsonl")
    assert [part.document.title for part in document.parts] == ["#C1", "#random"]
    held = {"channels": [{"name": "x", "messages": [said("1.1", "a")]}, {"name": "y", "messages": [said("1.1", "b")]}]}
    assert [part.document.title for part in reading(json.dumps(held)).parts] == ["#x", "#y"]


@pytest.mark.parametrize(
    "content",
    [
        '{"messages": [{"role": "user", "content": "hi"}]}',
        '[{"ts": 1.5, "value": 3, "user": "x"}]',
        '[{"text": "a", "user": "b"}]',
        '{"ts": "1.1", "user": "a", "text": "one object"}',
        '[{"ts": "1.1", "user": "a", "text": "cut off"}, {"ts"',
        '[{"type": "log", "ts": "soon", "text": "x", "user": "y"}]',
    ],
)
def test_other_json_stays_what_it_is(content: str) -> None:
    document = reading(content, media_type="application/json", filename="data.json")
    assert (document.text, document.source_type, document.main.grammar) == (content, SourceType.FILE, Grammar.PLAIN)


async def test_the_callers_wish_for_slack_does_not_make_other_text_slack(chunk: Chunk) -> None:
    chunked = await chunk("# Title\n\nWords and more words.\n", filename="a.md", strategy=Strategy.SLACK)
    assert chunked.config.strategy is Strategy.DOCUMENT
    assert chunked.strategy_reason


def test_odd_messages_harm_nobody() -> None:
    messages = [
        said(None, "no time"),
        None,
        [],
        "x",
        said(1452763320.000002, "a number"),
        said("1.1", None),
        said("2.1", {"a": 1}),
        said("3.1", "broken \ud83c half"),
        said("4.1", "nul \x00 inside"),
        {"ts": "5.1", "user": {"id": "U1"}, "text": "a user that is none", "thread_ts": []},
        said("6.1", "deep", blocks={"type": "rich_text"}, attachments="x", files=[1, None]),
        said("99999999999.1", "in the far future"),
        said("-1.1", "no time either", bot_profile=[], edited="x", replies={}),
        said("7.1", "last", user_profile={"display_name": 7}),
    ]
    document = reading(json.dumps(messages))
    for words in ("no time", "a number", "broken \ufffd half", "nul \ufffd inside", "a user that is none", "deep"):
        assert words in document.text
    assert "U1, 2016-01-14 09:22: a number" in document.text
    assert any("3 entries" in warning.message for warning in document.warnings)


def test_users_that_are_none_leave_the_ids() -> None:
    for users in ([None, {"id": 4}, {"id": "U1", "profile": []}], {"U1": None}, "x", 3, {"members": [{"id": "U1"}]}):
        assert shown([said("1.1", "hello")], users) == ["U1, 1970-01-01 00:00: hello"]


def test_bounds_hold() -> None:
    nested = json.dumps([said("1.1", "x")])[:-1] + ', {"ts": "2.1", "user": "U", "text": "t", "a": ' + "[" * 100_000
    assert reading(nested, media_type="application/json").main.grammar is Grammar.PLAIN
    deep: object = {"type": "text", "text": "bottom"}
    for _ in range(200):
        deep = {"type": "rich_text_section", "elements": [deep]}
    assert shown([said("1.1", "top", blocks=[{"type": "rich_text", "elements": [deep]}])]) == [
        "Ada, 1970-01-01 00:00: top"
    ]
    with pytest.raises(DocumentTooLarge):
        reading(json.dumps([said("1.1", "x" * 1_000_000)]))
    assert reading(json.dumps([said("1.1", "")])).text == ""


def test_several_answers_of_the_api_are_one_channel() -> None:
    pages = [{"ok": True, "messages": [said("2.1", "b")]}, {"ok": True, "messages": [said("1.1", "a")]}]
    for content in (json.dumps(pages), "\n".join(map(json.dumps, pages))):
        document = reading(content, media_type="application/x-ndjson")
        assert document.text == "U1, 1970-01-01 00:00: a\n\nU1, 1970-01-01 00:00: b"


def test_what_a_channel_is_for_is_no_markup() -> None:
    channel = {"id": "C1", "name": "r-d", "topic": {"value": "R&amp;D: <https://a.example|plan> by <@U1>"}}
    document = reading(json.dumps({"channel": channel, "users": USERS, "messages": [said("1.1", "x")]}))
    assert document.main.context == ("#r-d — R&D: plan (https://a.example) by @Ada",)
