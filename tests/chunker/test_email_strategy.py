"""EMAIL keeps short mails whole, and cuts long ones by what was said, quoted and signed."""

import re
import textwrap
from itertools import pairwise

import pytest
from chunker.conftest import Chunk
from chunker.counters import MODEL
from chunker.laws import check_laws
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.errors import InvalidField

HEADER = "From: Ana Lee <ana@example.com>\nTo: bob@example.com\nSubject: The budget\n\n"
ATTRIBUTION = "On Tue, 4 Mar 2025, Kim wrote:\n"


def paragraphs(count: int, word: str = "said") -> str:
    return "\n\n".join(
        f"Paragraph {number} says what is {word} about the budget of the year. It has a second sentence."
        for number in range(count)
    )


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def types(chunked: ChunkedDocument) -> list[str]:
    return [chunk.piece.type for chunk in chunked.chunks]


async def cut(chunk: Chunk, body: str, **config: object) -> ChunkedDocument:
    chunked = await chunk(HEADER + body, filename="mail.eml", strategy=Strategy.EMAIL, **config)
    if not config.get("options"):
        check_laws(chunked)
    return chunked


def options(**given_options: object) -> dict[str, object]:
    return {"options_of": Strategy.EMAIL, "options": given_options}


@pytest.mark.parametrize(("length", "whole"), [(1_999, True), (2_000, False)])
async def test_short_mails_stay_whole(chunk: Chunk, length: int, whole: bool) -> None:
    text = paragraphs(30)[:length].rstrip().ljust(length, "x")
    chunked = await cut(chunk, text)
    assert (types(chunked) == ["complete_email"]) is whole
    assert chunked.chunks[0].piece.context == HEADER.strip()


async def test_long_mails_have_a_start_bodies_and_an_end(chunk: Chunk) -> None:
    chunked = await cut(chunk, paragraphs(60))
    assert types(chunked)[0] == "email_start"
    assert types(chunked)[-1] == "email_end"
    assert set(types(chunked)[1:-1]) == {"email_body"}
    for item in chunked.chunks:
        assert item.piece.context == HEADER.strip()
        assert item.text.endswith(".")
        assert item.piece.metadata["section"] == "body"
        assert item.piece.metadata["from"] == "Ana Lee <ana@example.com>"


async def test_what_is_quoted_stands_apart(chunk: Chunk) -> None:
    body = f"{paragraphs(30)}\n\n-- \nAna\n\n{ATTRIBUTION}{quoted(paragraphs(40, 'quoted'))}\n"
    chunked = await cut(chunk, body)
    for item in chunked.chunks:
        assert ("is quoted about" in item.text) == (item.piece.type == "email_quote")
        assert ("is said about" in item.text) == (item.piece.type in {"email_start", "email_body", "email_end"})
    signed = next(item for item in chunked.chunks if "-- \nAna" in item.text)
    assert signed.piece.type == "email_end"
    start, end = map(int, signed.piece.metadata["signature"].split("-"))
    assert signed.text[start:end].startswith("-- \nAna")


@pytest.mark.parametrize("sizes", [{}, {"size": 400}, {"size": 300, "overlap": 150}, {"size": 120, "overlap": 60}])
async def test_quotes_begin_with_their_marks(chunk: Chunk, sizes: dict[str, int]) -> None:
    told = " ".join(f"Sentence {number} tells {'very ' * (number % 5)}much of the budget." for number in range(200))
    chunked = await cut(chunk, f"Yes.\n\n{ATTRIBUTION}{quoted(textwrap.fill(told, 72))}\n", **sizes)
    body, first, *others = chunked.chunks
    assert (body.text, first.text[:3]) == ("Yes.", "On ")
    assert len(others) > 4
    for item in others:
        assert item.text.startswith("> ")
        assert not item.text.rstrip().endswith(">")
    if sizes in ({}, {"size": 300, "overlap": 150}):
        assert any(left.piece.end > right.piece.start for left, right in pairwise(others))


@pytest.mark.parametrize("sizes", [{}, {"size": 400}, {"size": 200}])
async def test_delivery_reports_are_cut_between_fields(chunk: Chunk, sizes: dict[str, int]) -> None:
    reports = [
        f"Final-Recipient: rfc822; user{number}@example.com\nAction: failed\nStatus: 5.7.1\n"
        "Diagnostic-Code: smtp; 550 5.7.1 Message content rejected. It holds a file\n   that is not allowed. Ask\n"
        "\tthe postmaster.\nLast-Attempt-Date: Fri, 26 Nov 2004 19:41:44 -0800 (PST)"
        for number in range(20)
    ]
    chunked = await cut(chunk, "Your mail was not delivered.\n\n" + "\n\n".join(reports), **sizes)
    for left, right in pairwise(chunked.chunks):
        assert re.match(r"[A-Z][A-Za-z-]+: ", right.text)
        assert left.piece.end <= right.piece.start


async def test_short_quotes_stay_with_their_answers(chunk: Chunk) -> None:
    pairs = [f"> Question {number}: what about it?\n\nAnswer {number}: {paragraphs(2)}" for number in range(20)]
    chunked = await cut(chunk, "\n\n".join(pairs))
    for number in range(20):
        assert any(f"Question {number}:" in item.text and f"Answer {number}:" in item.text for item in chunked.chunks)
    mixed = chunked.chunks[0]
    assert mixed.piece.metadata["section"] == "mixed"
    for place in mixed.piece.metadata["quotes"].split(","):
        start, end = map(int, place.split("-"))
        assert mixed.text[start:end].startswith("> Question")


async def test_quotes_can_be_left_out_of_embedding(chunk: Chunk) -> None:
    body = f"Yes, we do.\n\n-- \nAna\n\n{ATTRIBUTION}{quoted(paragraphs(40, 'quoted'))}\n"
    plain = await cut(chunk, body)
    assert all(item.embedded_text is None and not item.embedding_excluded for item in plain.chunks)
    chunked = await cut(chunk, body, **options(exclude_quotes=True))
    assert [item.text for item in chunked.chunks] == [item.text for item in plain.chunks]
    first, *others = chunked.chunks
    assert first.embedded_text == f"{HEADER.strip()}\n\nYes, we do."
    assert "-- \nAna" in first.text
    assert others
    assert all(item.embedding_excluded for item in others)


async def test_a_whole_mail_can_leave_its_quotes_out(chunk: Chunk) -> None:
    chunked = await cut(chunk, f"Yes.\n\n{ATTRIBUTION}> Do we?\n", **options(exclude_quotes=True))
    assert types(chunked) == ["complete_email"]
    assert chunked.chunks[0].embedded_text == f"{HEADER.strip()}\n\nYes."


async def test_how_long_a_mail_stays_whole_can_be_said(chunk: Chunk) -> None:
    text = paragraphs(40)
    assert types(await cut(chunk, text, **options(whole_below=10_000))) == ["complete_email"]
    assert len((await cut(chunk, paragraphs(5), size=200, **options(whole_below=0))).chunks) > 1
    assert len((await cut(chunk, paragraphs(5), size=200)).chunks) > 1
    assert types(await cut(chunk, "Short.", **options(whole_below=0))) == ["complete_email"]


@pytest.mark.parametrize("whole_below", [-1, 100_001, "many"])
async def test_options_are_checked(chunk: Chunk, whole_below: object) -> None:
    with pytest.raises(InvalidField) as error:
        await cut(chunk, "x", **options(whole_below=whole_below))
    assert error.value.metadata["field"] == "config.email.whole_below"


async def test_a_whole_mail_fits_the_model(chunk: Chunk) -> None:
    chunked = await cut(chunk, paragraphs(20), embedding_model=MODEL)
    assert len(chunked.chunks) > 1
    assert all(item.token_count is not None and item.token_count <= 256 for item in chunked.chunks)
    for item in chunked.chunks:
        assert item.piece.metadata["section"] == "body"


async def test_sizes_in_tokens(chunk: Chunk) -> None:
    chunked = await cut(chunk, paragraphs(40), unit=SizeUnit.TOKENS, size=100, embedding_model=MODEL)
    assert len(chunked.chunks) > 5


async def test_other_strategies_keep_the_labels(chunk: Chunk) -> None:
    chunked = await chunk(f"{HEADER}Yes.\n\n{ATTRIBUTION}> Do we?\n", filename="mail.eml", strategy=Strategy.FIXED)
    assert chunked.chunks[0].piece.metadata["section"] == "mixed"
    assert chunked.chunks[0].piece.context == HEADER.strip()


LINES = st.sampled_from(
    ["", "> quoted words here", ">", "On 4 Mar 2025 Kim wrote:", "-- ", "Ana", "An answer, with words. And more.",
     "!!!", "> !!!", "-----Original Message-----", "Größe 😀 日本語。", "e\u0301" * 10, "x" * 300]
)  # fmt: skip


@given(
    st.lists(LINES, max_size=60),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 400),
    st.booleans(),
    st.sampled_from([0, 2000]),
)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
async def test_random_mails(
    executor: object, lines: list[str], end: str, size: int, exclude: bool, whole_below: int
) -> None:
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)  # type: ignore[arg-type]
    source = SourceDocument(content="words\n" + end.join(lines))
    given_options = options(whole_below=whole_below, exclude_quotes=exclude)
    request = ConfigRequest(strategy=Strategy.EMAIL, size=size, **given_options)  # type: ignore[arg-type]
    chunked = await chunker.chunk(source, request, deadline=None)
    check_laws(chunked)
    for item in chunked.chunks:
        for name in ("quotes", "signature"):
            for place in filter(None, item.piece.metadata.get(name, "").split(",")):
                start, stop = map(int, place.split("-"))
                assert 0 <= start < stop <= len(item.text)
