"""SLACK: whole threads, and conversations of what is in none."""

import json
from itertools import pairwise

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import CHANNELS, USERS, said, texts
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy
from kbmesh_rpc.errors import InvalidField

START = 1_741_000_000


def thread(count: int, words: int, *, start: int = START, **more: object) -> list[dict[str, object]]:
    """A thread of that many messages of that many words, a minute apart."""
    root = f"{start}.000001"
    return [
        said(
            f"{start + 60 * place}.000001",
            f"m{place} " + " ".join(f"word{number}" for number in range(words)),
            ("U1", "U2")[place % 2],
            thread_ts=root,
            **more,
        )
        for place in range(count)
    ]


def ops(messages: object) -> str:
    return json.dumps({"channel": CHANNELS[0], "users": USERS, "messages": messages})


def wishing(**options: object) -> dict[str, object]:
    return {"strategy": Strategy.SLACK, "options_of": Strategy.SLACK, "options": options}


def starts_with_a_message(chunked: ChunkedDocument) -> bool:
    return all(text.startswith(("Ada,", "Bob Byte,", "↳ ")) for text in texts(chunked))


async def test_a_short_thread_stays_whole_and_says_where_it_is(chunk: Chunk) -> None:
    chunked = await chunk(ops(thread(4, 20)))
    check_laws(chunked)
    (found,) = chunked.chunks
    assert found.piece.type == "complete_thread"
    assert found.piece.context == "#ops — Who is on call — Running things"
    assert found.piece.metadata == {
        "channel": "ops",
        "channel_id": "C1",
        "thread_ts": f"{START}.000001",
        "users": "Ada, Bob Byte",
        "start_ts": f"{START}.000001",
        "end_ts": f"{START + 180}.000001",
        "start_time": "2025-03-03 11:06",
        "date": "2025-03-03",
        "message_count": "4",
    }


async def test_a_long_thread_is_cut_between_messages_and_repeats_how_it_began(chunk: Chunk) -> None:
    chunked = await chunk(ops(thread(40, 30)))
    check_laws(chunked)
    assert len(chunked.chunks) > 5
    assert starts_with_a_message(chunked)
    for index, found in enumerate(chunked.chunks):
        assert found.piece.type == "slack_messages"
        assert found.piece.metadata["thread_ts"] == f"{START}.000001"
        assert found.piece.context.startswith("#ops — Who is on call")
        assert ("Thread: Ada, 2025-03-03 11:06: m0 word0" in found.piece.context) == (index > 0)
        assert 500 <= len(found.text) <= 2000


async def test_only_a_message_that_is_too_long_alone_is_cut(chunk: Chunk) -> None:
    messages = [*thread(3, 20), said(f"{START + 300}.1", "long words. " * 3400, "U2", thread_ts=f"{START}.000001")]
    messages.append(said(f"{START + 400}.1", "the end", thread_ts=f"{START}.000001"))
    chunked = await chunk(ops(messages))
    check_laws(chunked)
    inside = [found for found in chunked.chunks if not found.text.startswith(("Ada,", "Bob", "↳"))]
    assert len(inside) > 20
    for found in inside:
        assert "Bob Byte, 2025-03-03 11:11 (continued)" in found.piece.context
        assert "Thread: Ada, 2025-03-03 11:06: m0" in found.piece.context
        assert len(found.piece.context) <= 450
    assert chunked.chunks[-1].text.endswith("the end")


@pytest.mark.parametrize("size", [80, 300, 1500])
async def test_a_root_that_is_too_long_is_no_context_of_itself(chunk: Chunk, size: int) -> None:
    root = said("1.1", "opening words " + "and more of them " * 300, thread_ts="1.1")
    chunked = await chunk(ops([root, said("2.1", "a reply", "U2", thread_ts="1.1")]), size=size)
    check_laws(chunked)
    assert "Thread:" not in chunked.chunks[1].piece.context
    assert all(len(found.piece.context) <= size * 0.3 for found in chunked.chunks)


async def test_whole_below_is_what_the_caller_says(chunk: Chunk) -> None:
    content = ops(thread(8, 20))
    assert [found.piece.type for found in (await chunk(content, **wishing())).chunks] == ["complete_thread"]
    cut = await chunk(content, size=400, **wishing(whole_below=300))
    check_laws(cut)
    assert {found.piece.type for found in cut.chunks} == {"slack_messages"}
    small = await chunk(content, size=400, **wishing(whole_below=100_000))
    check_laws(small)
    assert len(small.chunks) > 1
    for wrong in (-1, 100_001, "x"):
        with pytest.raises(InvalidField) as refused:
            await chunk(content, **wishing(whole_below=wrong))
        assert refused.value.metadata["field"] == "config.slack.whole_below"


async def test_short_messages_near_in_time_are_a_conversation(chunk: Chunk) -> None:
    morning = [said(f"{START + 60 * place}.1", f"line {place}", ("U1", "U2")[place % 2]) for place in range(5)]
    next_day = [said(f"{START + 90_000 + place}.1", f"later {place}") for place in range(2)]
    chunked = await chunk(ops(morning + next_day))
    check_laws(chunked)
    first, second = chunked.chunks
    assert [first.piece.metadata[name] for name in ("message_count", "users")] == ["5", "Ada, Bob Byte"]
    assert (second.piece.metadata["message_count"], second.piece.metadata["date"]) == ("2", "2025-03-04")
    assert "thread_ts" not in first.piece.metadata


async def test_a_silence_parts_conversations_that_have_substance(chunk: Chunk) -> None:
    def talk(start: int) -> list[dict[str, object]]:
        return [said(f"{start + place}.1", "words of some length " * 10) for place in range(4)]

    chunked = await chunk(ops(talk(START) + talk(START + 3600)))
    check_laws(chunked)
    assert [found.piece.metadata["start_ts"] for found in chunked.chunks] == [f"{START}.1", f"{START + 3600}.1"]


async def test_bots_that_are_left_out_are_nowhere(chunk: Chunk) -> None:
    bot = {"subtype": "bot_message", "bot_id": "B1", "username": "Pager", "text": "alarm 7"}
    root = f"{START}.1"
    messages = [
        {**bot, "ts": root, "thread_ts": root},
        said(f"{START + 1}.1", "on it", thread_ts=root),
        {**bot, "ts": f"{START + 2}.1", "thread_ts": root},
        said(f"{START + 3}.1", "solved", thread_ts=root),
        {**bot, "ts": f"{START + 4}.1"},
    ]
    everything = await chunk(ops(messages), **wishing(exclude_bots=False))
    check_laws(everything)
    assert "".join(texts(everything)).count("alarm 7") == 3
    people = await chunk(ops(messages), **wishing(exclude_bots=True))
    assert [text.rpartition(": ")[2] for text in texts(people)] == ["on it", "solved"]
    assert not any("alarm" in found.piece.context for found in people.chunks)
    assert [found.piece.metadata["thread_ts"] for found in people.chunks] == [root, root]


async def test_an_overlap_is_of_whole_messages(chunk: Chunk) -> None:
    chunked = await chunk(ops(thread(20, 8)), size=400, overlap=100, minimum=0, **wishing(whole_below=0))
    check_laws(chunked)
    assert starts_with_a_message(chunked)
    spans = [(found.piece.start, found.piece.end) for found in chunked.chunks]
    assert all(following[0] < before[1] for before, following in pairwise(spans))


async def test_no_chunk_has_more_tokens_than_the_model_reads(chunk: Chunk) -> None:
    messages = [*thread(12, 30), said(f"{START + 9_000}.1", "a long one " * 400, "U2")]
    chunked = await chunk(ops(messages), embedding_model="word-pieces", **wishing())
    check_laws(chunked)
    assert not any(found.oversize for found in chunked.chunks)
    by_tokens = await chunk(ops(messages), embedding_model="word-pieces", unit="tokens", size=40, **wishing())
    check_laws(by_tokens)
    assert len(by_tokens.chunks) > len(chunked.chunks)


async def test_a_conversation_that_goes_on_says_what_came_before(chunk: Chunk) -> None:
    messages = [said(f"{START + 60 * place}.1", f"number {place} " + "words " * 60) for place in range(8)]
    chunked = await chunk(ops(messages))
    check_laws(chunked)
    first, second, *_ = chunked.chunks
    last = first.text.split("\n\n")[-1]
    assert "Before:" not in first.piece.context
    assert f"Before: {last[:60]}" in second.piece.context


async def test_a_conversation_that_was_pasted_with_its_dates_is_parted_by_them(chunk: Chunk) -> None:
    text = "ada [2024-05-01 09:12]: morning\nbob [2024-05-01 09:13]: hello\nada [2024-05-03 18:00]: still there?"
    chunked = await chunk(text, strategy=Strategy.SLACK)
    check_laws(chunked)
    assert [found.piece.metadata["date"] for found in chunked.chunks] == ["2024-05-01", "2024-05-03"]
