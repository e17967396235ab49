"""Whatever Slack's JSON holds: nothing that was said is lost, and the laws of chunks hold."""

import json
from itertools import pairwise
from typing import Any

from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import reading, zipped
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.slack_transcript import find_messages
from kbmesh_rpc.errors import KbmeshError

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<>&|\x00"), max_size=60)
USERS = st.sampled_from(["U1", "U2", "U3"])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages of one channel in any order, each of which says its own number."""
    messages = []
    for number in range(draw(st.integers(1, 12))):
        ts = f"{draw(st.integers(1, 40)) * 700}.{number:06}"
        message: dict[str, Any] = {"type": "message", "ts": ts, "user": draw(USERS)}
        text = f"said{number}x {draw(WORDS)}" + " and on" * draw(st.sampled_from([0, 0, 0, 90]))
        place = draw(st.sampled_from(["text", "text", "blocks", "attachments"]))
        if place == "text":
            message["text"] = text
        elif place == "blocks":
            element = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
            message.update(text="", blocks=[{"type": "rich_text", "elements": [element]}])
        else:
            message.update(text="", attachments=[{"text": text}])
        if messages and draw(st.booleans()):
            message["thread_ts"] = draw(st.sampled_from(messages))["ts"]
        if draw(st.integers(0, 4)) == 0:
            message["bot_id"] = "B1"
        messages.append(message)
    return draw(st.permutations(messages))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversations(), st.sampled_from([1, 40, 200, 1500]), st.integers(0, 200), st.booleans())
async def test_all_that_was_said_is_in_a_chunk(
    chunk: Chunk, messages: list[dict[str, Any]], size: int, overlap: int, exclude: bool
) -> None:
    wish = {"strategy": Strategy.SLACK, "size": size, "overlap": min(overlap, size - 1)}
    content = json.dumps({"messages": messages})
    chunked = await chunk(content, **wish)
    check_laws(chunked)
    joined = chunked.document.text
    for number in range(len(messages)):
        assert joined.count(f"said{number}x") == 1
    again = await chunk(json.dumps({"messages": list(reversed(messages))}), **wish)
    assert again.document.text == joined
    if exclude:
        options = {"options_of": Strategy.SLACK, "options": {"exclude_bots": True}}
        people = "\n".join(found.text for found in (await chunk(content, **wish, **options)).chunks)
        if size >= 40 and not overlap:
            for message in messages:
                text = json.dumps(message)
                number = text[text.index("said") + 4 :].partition("x")[0]
                assert (f"said{number}x" in people) == ("bot_id" not in message)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.sampled_from(["1.1", "2.2", "U1", "\ud83c"])
)
INNER_NAMES = """
type text elements user_id url name value title fields id profile ts message
"""
NAMES = """
type subtype ts thread_ts user username bot_id bot_profile user_profile text blocks attachments files file message
previous_message deleted_ts edited replies root hidden comment channel
"""
KINDS = """
message_changed message_deleted tombstone bot_message section rich_text header table image rich_text_list
"""
VALUES = st.recursive(
    SCALARS | st.sampled_from(KINDS.split()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(INNER_NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES.split()), VALUES, max_size=8), max_size=6),
    VALUES,
    VALUES,
)
def test_any_json_is_read_or_refused(broken: list[dict[str, Any]], users: Any, channel: Any) -> None:
    sane = {"type": "message", "ts": "5.5", "user": "U1", "text": "a sane message"}
    messages = [sane, *({"type": "message", "ts": "7.7", **message} for message in broken)]
    value = {"messages": messages, "users": users, "channel": channel}
    for content in (
        json.dumps(value),
        json.dumps(messages),
        zipped({"users.json": users, "channels.json": [channel], "ops/2016-01-14.json": messages}),
    ):
        try:
            document = reading(content)
        except KbmeshError:
            continue
        document.text.encode()
        assert "\x00" not in document.text


LINES = st.sampled_from(
    [
        "Ada  9:12 AM",
        "[9:13 AM] Bob: text",
        "Ada",
        "  9:14 AM",
        "9:15",
        "Today",
        "---- Monday, May 5th ----",
        "2 replies",
        "",
        "a line of text",
        "**Eve** (2024-01-02 10:33): hi",
        "New",
        "```",
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(LINES | st.text(max_size=20), max_size=20), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_every_line_of_a_transcript_is_in_one_message(lines: list[str], end: str) -> None:
    text = end.join(lines)
    messages = find_messages(text, lambda: None)
    if messages:
        covered = "".join(text[message.start : message.end] for message in messages)
        assert "".join(covered.split()) == "".join(text.split())
        assert all(first.end <= second.start for first, second in pairwise(messages))
