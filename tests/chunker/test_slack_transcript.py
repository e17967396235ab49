"""Conversations that were copied from Slack's window."""

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.slack_files import texts
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.slack_transcript import find_messages
from kbmesh_chunker.documents.source import Grammar, SlackLayout, SourceType

FORMS = {
    "copied": "Ada Lovelace  9:12 AM\nDeploy failed?\nSee the log.\nBob Byte  9:13 AM\nWhich env\n",
    "copied with apps": "Ada (she/her)  9:12 AM\nDeploy failed?\n\nGitHub APP  9:13 AM\nWhich env\n",
    "two lines": "Ada Lovelace\n  9:12 AM\nDeploy failed?\n\nBob Byte\n  9:13 AM\nWhich env\n",
    "time first": "[9:12 AM] Ada: Deploy failed?\nSee the log.\n[9:13 AM] Bob: Which env\n",
    "date first": "[2024-05-01 09:12:01] <ada> Deploy failed?\n[2024-05-01 09:13:44] <bob> Which env\n",
    "name and time": "Ada:10:32\nDeploy failed?\nBob:10:33\nWhich env\n",
    "in brackets": "alice [2024-05-01 09:12]: Deploy failed?\nbob [2024-05-01 09:13]: Which env\n",
    "old copy": "alice [9:12 AM]\nDeploy failed?\n\nbob [9:13 AM]\nWhich env\n",
    "bold": "**Ada** (2024-01-02 10:33): Deploy failed?\n\n**Bob B.** (2024-01-02 10:34): Which env\n",
    "log": "2024-05-01 09:12 ada: Deploy failed?\n2024-05-01 09:13 bob: Which env\n",
    "24 hours": "Ada\t09:12\nDeploy failed?\nBob\t09:13\nWhich env\n",
    "windows": "Ada  9:12 AM\r\nDeploy failed?\r\nBob  9:13 AM\r\nWhich env\r\n",
    "narrow space": "Ada  9:12\u202fAM\nDeploy failed?\nZoë Ω  9:13\u202fAM\nWhich env",
}


def layout(text: str) -> list[tuple[str, str, str]]:
    return [
        (message.author, message.timestamp, text[message.start : message.end])
        for message in find_messages(text, lambda: None)
    ]


@pytest.mark.parametrize("name", FORMS)
async def test_each_way_to_copy_gives_messages_of_somebody(chunk: Chunk, name: str) -> None:
    text = FORMS[name]
    first, second = layout(text)
    assert first[0][:3].lower() in {"ada", "ali"}
    assert second[0][:3].lower() in {"bob", "git", "zoë"}
    assert "Deploy failed?" in first[2]
    assert "Which env" in second[2]
    assert first[1]
    assert first[1] != second[1]
    chunked = await chunk(text, strategy=Strategy.SLACK)
    check_laws(chunked)
    assert chunked.document.text == text
    assert chunked.document.source_type is SourceType.SLACK
    assert chunked.document.main.grammar is Grammar.SLACK
    assert texts(chunked) == [text.rstrip()]


def test_who_goes_on_is_who_spoke_last() -> None:
    text = "Ada  9:12 AM\nfirst\n9:15\nsecond\n[9:16]\nthird\nBob  9:20 AM\nfourth"
    assert [(author, time) for author, time, _ in layout(text)] == [
        ("Ada", "9:12 AM"),
        ("Ada", "9:15"),
        ("Ada", "9:16"),
        ("Bob", "9:20 AM"),
    ]


def test_dates_stand_with_what_follows_them() -> None:
    text = (
        "Monday, January 8th\nAda  9:12 AM\nfirst (edited)\n3 replies\nLast reply 2 days ago\n"
        "----- Tuesday, January 9th -----\nNew\nBob  9:13 AM\nsecond\n\nToday\n\nAda  9:14 AM\nthird"
    )
    assert [(author, time) for author, time, _ in layout(text)] == [
        ("Ada", "Monday, January 8th 9:12 AM"),
        ("Bob", "Tuesday, January 9th 9:13 AM"),
        ("Ada", "Today 9:14 AM"),
    ]
    second = layout(text)[1][2]
    assert second.startswith("----- Tuesday")
    assert layout(text)[0][2].endswith("Last reply 2 days ago")


def test_what_stands_above_the_first_message_is_of_nobody() -> None:
    text = "From the channel #ops:\n\nAda  9:12 AM\nhello"
    assert layout(text) == [("", "", "From the channel #ops:"), ("Ada", "9:12 AM", "Ada  9:12 AM\nhello")]


async def test_a_thread_that_was_copied_is_a_thread(chunk: Chunk) -> None:
    text = "Ada  9:12 AM\nDeploy failed?\n2 replies\nBob  9:13 AM\nWhich env\nAda  9:14 AM\nprod"
    chunked = await chunk(text, strategy=Strategy.SLACK)
    assert [chunk.piece.type for chunk in chunked.chunks] == ["complete_thread"]
    assert chunked.chunks[0].piece.metadata["users"] == "Ada, Bob"


@pytest.mark.parametrize(
    "line",
    [
        "We meet at 9:12 AM",
        "We met (9:12) and left",
        "At 10:30 the cluster went down: nobody knew why.",
        "see [12:30] for the rest",
        "Ratio 3:45",
        "- item  9:12",
        "https://example.com:10:20",
        "12:30:45  9:12 AM",
    ],
)
def test_sentences_with_times_are_no_messages(line: str) -> None:
    assert [author for author, _, _ in layout(f"Ada  9:12 AM\n{line}\nmore")] == ["Ada"]
    assert layout(f"{line}\nmore") == []


def test_a_line_as_long_as_a_book_is_text() -> None:
    text = "Ada  9:12 AM\n" + "word " * 200_000 + " 9:12 AM\n" + "Bob  9:13 AM" + " " * 1000 + "\nhello"
    messages = find_messages(text, lambda: None)
    assert messages[0].author == "Ada"
    layout_ = SlackLayout(channel="", messages=tuple(messages))
    assert layout_.messages[-1].end == len(text)
