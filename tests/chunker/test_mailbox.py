"""Each mail of a mailbox is found, whole, and fails alone."""

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, SourceDocument, SourceType
from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable, KbmeshError

POSTMARK = "From a@example.com Tue Mar  4 10:00:00 2025\n"


def read_mailbox(content: str | bytes, limits: ReadingLimits | None = None) -> ExtractedDocument:
    source = SourceDocument(content=content, media_type="application/mbox", filename="mails.mbox")
    return read(source, limits=limits or ReadingLimits())


def texts(document: ExtractedDocument) -> list[str]:
    return [part.document.text for part in document.parts]


def message(number: int, body: str, header: str = "") -> str:
    return f"{POSTMARK}From: a@example.com\nSubject: {number}\n{header}\n{body}\n\n"


async def test_a_line_that_begins_with_from(chunk: Chunk) -> None:
    """EML-15."""
    content = (
        "From a@example.com Tue Mar  4 10:00:00 2025\nFrom: a@example.com\nSubject: plan\n\nSteps:\n\n"
        "From now on use the new gateway.\nBye\n\n"
        "From b@example.com Tue Mar  4 11:00:00 2025\nFrom: b@example.com\nSubject: ok\n\nFine\n"
    )
    for given_content in (content, content.encode(), content.replace("\n", "\r\n").encode()):
        chunked = await chunk(given_content, filename="mails.mbox")
        check_laws(chunked)
        assert [item.text for item in chunked.chunks] == ["Steps:\n\nFrom now on use the new gateway.\nBye", "Fine"]
        assert [item.piece.metadata["from"] for item in chunked.chunks] == ["a@example.com", "b@example.com"]
        assert chunked.config.strategy is Strategy.EMAIL
        assert chunked.document.source_type is SourceType.EMAIL


@pytest.mark.parametrize(
    "line",
    [
        "From now on use the new gateway.",
        "From 10:30 to 11:00 we meet.",
        "From: Kim",
        "From a@example.com",
        "From Monday, 10:00 on:",
    ],
)
def test_text_that_is_no_postmark(line: str) -> None:
    document = read_mailbox(message(1, f"Before\n\n{line}\nAfter: all is well.") + message(2, "Next"))
    assert texts(document) == [f"Before\n\n{line}\nAfter: all is well.", "Next"]


@pytest.mark.parametrize(
    "postmark",
    [
        "From a@example.com Tue Mar  4 10:00:00 2025",
        "From - Tue Mar 04 10:00:00 2025",
        "From MAILER-DAEMON Tue Mar  4 10:00:00 2025",
        "From 1234567@xxx Tue Mar 04 10:00:00 +0000 2025",
        "From kim at example.com  Tue Mar  4 10:00:00 2025",
        "From kim@example.com",
        "From kim@example.com 2025-03-04T10:00:00Z",
    ],
)
def test_postmarks(postmark: str) -> None:
    mail = f"{postmark}\nX-Status: R\nFrom: kim@example.com\n\nText\n\n"
    assert texts(read_mailbox(mail * 2)) == ["Text", "Text"]


DATED = "From b@example.com Tue Mar  4 11:00:00 2025\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "postmark",
    [DATED, "From - Tue Mar 04 11:00:00 2025\n", "From b at example.com  Tue, 4 Mar 2025 11:00:00 +0000\n"],
)
def test_a_postmark_without_a_blank_line_before_it(postmark: str, end: str) -> None:
    second = f"{postmark}From: b@example.com\nSubject: two\n\nSecond\n"
    content = message(1, "First").rstrip("\n") + "\n" + second
    assert texts(read_mailbox(content.replace("\n", end).encode())) == ["First", "Second"]
    parts = "--X\nContent-Type: text/plain\n\nFirst\n--X--\n"
    content = message(1, parts, "Content-Type: multipart/mixed; boundary=X\n").rstrip("\n") + "\n" + second
    assert texts(read_mailbox(content.replace("\n", end).encode())) == ["First", "Second"]


@pytest.mark.parametrize(
    "text",
    [
        f"See:\n{DATED}was the last line.",
        f"See:\n{DATED}Note: one field\nis no header.",
        f"> {DATED}> From: b@example.com\n> Subject: two",
        "See:\nFrom 10:00 on\nFrom: the start\nTo: the end",
        "See:\nFrom b@example.com\nFrom: b@example.com\nSubject: two",
    ],
)
def test_what_looks_like_a_postmark_within_a_paragraph(text: str) -> None:
    assert texts(read_mailbox(message(1, text) + message(2, "Next"))) == [text, "Next"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [(">From the start", "From the start"), (">>From the start", ">From the start"), ("> From me", "> From me")],
)
def test_escapes_are_undone_once(written: str, meant: str) -> None:
    assert texts(read_mailbox(message(1, f"A\n{written}\nB"))) == [f"A\n{meant}\nB"]


def test_a_mail_within_the_text_of_a_mail_by_its_length() -> None:
    body = f"See:\n\n{POSTMARK}From: c@example.com\n\nInner\n"
    whole = f"{POSTMARK}From: a@example.com\nContent-Length: {len(body)}\n\n{body}\n"
    assert texts(read_mailbox(whole + message(2, "Next"))) == [body.rstrip("\n"), "Next"]


@pytest.mark.parametrize("length", [0, 3, 10**9])
def test_a_length_that_is_wrong(length: int) -> None:
    content = message(1, "First", f"Content-Length: {length}\n") + message(2, "Second")
    assert texts(read_mailbox(content)) == ["First", "Second"]


def test_one_bad_mail_fails_alone() -> None:
    deep = "\n\n".join(f"--B\nContent-Type: text/plain\n\n{number}" for number in range(50))
    bad = message(2, deep, "Content-Type: multipart/mixed; boundary=B\n")
    document = read_mailbox(message(1, "One") + bad + message(3, "Three"), ReadingLimits(max_parts=20))
    assert texts(document) == ["One", "Three"]
    assert [warning.metadata["part"] for warning in document.warnings] == ["message 2"]


def test_a_mailbox_of_too_many_mails_says_so() -> None:
    content = "".join(message(number, "x") for number in range(101))
    with pytest.raises(DocumentUnreadable, match="more than 100 documents"):
        read_mailbox(content, ReadingLimits(max_parts=100))
    assert len(read_mailbox(content, ReadingLimits(max_parts=101)).parts) == 101


def test_a_mail_without_a_postmark_and_words_before_the_first() -> None:
    assert texts(read_mailbox("From: a@example.com\nSubject: s\n\nAlone\n")) == ["Alone"]
    assert texts(read_mailbox("A note\n\n" + message(1, "Text"))) == ["A note", "Text"]
    with pytest.raises(DocumentEmpty):
        read_mailbox("\n")


LINES = st.sampled_from(
    [
        "",
        "From ",
        "From a@example.com Tue Mar  4 10:00:00 2025",
        ">From x",
        "From: a",
        "Subject: s",
        "word",
        "\x00",
        "ü",
    ]
)


@given(st.lists(LINES, max_size=40))
@settings(max_examples=150, deadline=None)
def test_random_mailboxes(lines: list[str]) -> None:
    content = "\n".join(lines)
    for given_content in (content, content.encode(), content.encode("latin-1")):
        try:
            document = read_mailbox(given_content)
        except KbmeshError:
            continue
        told = [document.text, *(value for part in document.parts for value in part.document.metadata.values())]
        assert "word" not in content or any("word" in text for text in told)


async def test_no_mail_speaks_for_a_mailbox_and_a_mail_speaks_for_its_attachments(chunk: Chunk) -> None:
    mails = "".join(
        f"From {name}@example.org Tue Mar  4 10:00:00 2025\nFrom: {name}@example.org\nSubject: {name}\n\nHello.\n\n"
        for name in ("ada", "bob")
    )
    mailbox = (await chunk(mails.encode(), filename="all.mbox")).document
    assert [part.document.title for part in mailbox.parts] == ["ada", "bob"]
    assert (mailbox.title, dict(mailbox.metadata)) == ("", {})
    alone = (await chunk(mails[: len(mails) // 2].encode(), filename="one.mbox")).document
    assert (alone.title, alone.metadata["from"]) == ("ada", "ada@example.org")
