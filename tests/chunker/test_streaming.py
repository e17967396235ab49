"""A document that comes in parts gives the chunks that it gives whole, as they are cut, in bounded memory."""

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise

import pytest
from chunker.conftest import DOCUMENTS
from chunker.counters import MODEL, WordPieceCounter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.blank import GULF
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.piece import Chunk
from kbmesh_chunker.streaming import stream_document
from kbmesh_chunker.summary import Summary, summarize
from kbmesh_rpc.errors import DocumentEmpty, DocumentTooLarge, DocumentUnreadable

STREAMED = st.sampled_from([Strategy.FIXED, Strategy.SEMANTIC])
FRAGMENTS = st.sampled_from(
    [
        "word ", "Sentence one. ", "Another?! ", "\n", "\n\n", "\r\n", "\r\n\r\n", "   ", "\t", "# Heading\n",
        "## B\n\n", "Title\n===\n\n", "**bold**\n\n", "1. item\n", "lead:\n\n", "é", "e\u0301", "中文。", "ไทย ภาษา ",
        "👩\u200d👩\u200d👧", "🇩🇪🇫🇷", "***", "...", " " * 700, "\n" * 90, "x" * 300, "\u2029", "a.b.c ",
        "J. S. Bach ", "한글 ", "\u200b", "|a|b|\n",
    ]
)  # fmt: skip


async def stream(
    chunker: Chunker,
    data: bytes,
    cuts: Sequence[int],
    request: ConfigRequest,
    *,
    media_type: str = "text/plain",
    head_bytes: int = 16,
    batch_characters: int = 64,
) -> tuple[list[Chunk], Summary]:
    """Chunks and summary of a file that comes in parts; nearly nothing of it is its head, so that little is read
    whole."""

    async def parts() -> AsyncIterator[bytes]:
        for start, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]):
            yield data[start:end]

    chunks: list[Chunk] = []
    source = SourceDocument(content=b"", media_type=media_type)
    answers = stream_document(
        chunker, source, request, parts(), deadline=None, head_bytes=head_bytes, batch_characters=batch_characters
    )
    async for answer in answers:
        if isinstance(answer, Summary):
            return chunks, answer
        chunks.append(answer)
    raise AssertionError("a stream ends with a summary")


@pytest.fixture(scope="module")
def chunker(executor: Executor) -> Chunker:
    return Chunker(
        limits=ReadingLimits(max_document_bytes=5_000_000), counter=WordPieceCounter(max_tokens=64), executor=executor
    )


@given(
    text=st.lists(FRAGMENTS, min_size=1, max_size=120).map("".join),
    strategy=STREAMED,
    size=st.integers(1, 400),
    overlap=st.floats(0, 0.6),
    minimum=st.floats(0, 1),
    cuts=st.lists(st.integers(0, 20_000), max_size=12),
    tokens=st.sampled_from(["none", "limit", "unit", "counted"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_parts_give_the_chunks_of_the_whole(
    chunker: Chunker,
    text: str,
    strategy: Strategy,
    size: int,
    overlap: float,
    minimum: float,
    cuts: list[int],
    tokens: str,
) -> None:
    request = ConfigRequest(
        strategy=strategy,
        size=size,
        overlap=int(overlap * size),
        minimum=int(minimum * size),
        unit=SizeUnit.TOKENS if tokens == "unit" else SizeUnit.CHARACTERS,
        embedding_model="" if tokens == "none" else MODEL,
        allow_truncation=tokens == "counted",
    )
    # A text that is blank is refused; that is another story.
    data = ("The first words of it.\n" + text).encode()
    whole = await chunker.chunk(SourceDocument(content=data, media_type="text/plain"), request, deadline=None)
    chunks, summary = await stream(chunker, data, cuts, request)
    assert chunks == list(whole.chunks)
    assert summary == summarize(whole)


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.SEMANTIC])
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith((".md", ".txt"))])
async def test_real_files(chunker: Chunker, strategy: Strategy, name: str) -> None:
    data = DOCUMENTS[name]
    request = ConfigRequest(strategy=strategy)
    media_type = "text/markdown" if name.endswith(".md") else "text/plain"
    whole = await chunker.chunk(SourceDocument(content=data, media_type=media_type), request, deadline=None)
    cuts = range(0, len(data), 997)
    chunks, summary = await stream(chunker, data, cuts, request, media_type=media_type, head_bytes=len(data) // 2)
    assert chunks == list(whole.chunks)
    assert summary.text_sha256 == whole.text_sha256
    assert summary.title == whole.document.title
    assert summary.metadata == whole.document.metadata


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.SEMANTIC])
@pytest.mark.parametrize("blank", [" ", "\n", " \n", "\t", "\u00a0"])
@pytest.mark.parametrize("width", [GULF - 1, GULF, 3 * GULF])
async def test_what_white_space_without_end_parts_is_cut_alone(
    chunker: Chunker, strategy: Strategy, blank: str, width: int
) -> None:
    gulf = blank * (width // len(blank))
    data = f"{gulf}    Before it.\n\nHeading{gulf}  after it: more words.{gulf}".encode()
    request = ConfigRequest(strategy=strategy, size=32, overlap=8)
    whole = await chunker.chunk(SourceDocument(content=data, media_type="text/plain"), request, deadline=None)
    chunks, summary = await stream(chunker, data, range(0, len(data), 40_009), request)
    assert chunks == list(whole.chunks)
    assert summary == summarize(whole)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "iso8859-5", "shift_jis"])
async def test_an_encoding_that_is_named_is_followed_through_the_parts(chunker: Chunker, encoding: str) -> None:
    data = ("Слово за словом. " * 300).encode(encoding)
    media_type = "text/plain" if encoding in {"utf-8-sig", "utf-16"} else f"text/plain; charset={encoding}"
    request = ConfigRequest(strategy=Strategy.FIXED, size=100)
    whole = await chunker.chunk(SourceDocument(content=data, media_type=media_type), request, deadline=None)
    chunks, summary = await stream(chunker, data, range(0, len(data), 7), request, media_type=media_type)
    assert chunks == list(whole.chunks)
    assert summary == summarize(whole)


async def test_a_foreign_byte_far_into_a_file_ends_the_stream_and_leaves_what_was_sent(chunker: Chunker) -> None:
    sent: list[Chunk | Summary] = []

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"Some words of a file. " * 4_000
        yield b"\xff\xfe broken"

    source = SourceDocument(content=b"", media_type="text/plain")
    answers = stream_document(chunker, source, ConfigRequest(strategy=Strategy.FIXED), parts(), deadline=None)

    async def take() -> None:
        note = sent.append
        async for answer in answers:
            note(answer)

    with pytest.raises(DocumentUnreadable) as raised:
        await take()
    assert "byte 1760000 " in raised.value.message
    assert len(sent) > 1_000


async def test_a_file_without_anything_to_read_is_empty(chunker: Chunker) -> None:
    with pytest.raises(DocumentEmpty):
        await stream(chunker, b" \n" * 100_000, range(0, 200_000, 999), ConfigRequest(strategy=Strategy.SEMANTIC))


@pytest.mark.parametrize(
    ("strategy", "media_type", "head"),
    [
        (Strategy.DOCUMENT, "text/plain", b"words "),
        (Strategy.AUTO, "text/markdown", b"# Heading\n\n"),
        (Strategy.FIXED, "text/html", b"<p>words"),
    ],
)
async def test_what_must_be_seen_whole_has_a_limit_and_says_what_has_none(
    chunker: Chunker, strategy: Strategy, media_type: str, head: bytes
) -> None:
    data = head + b"words " * 1_000_000
    cuts = range(0, len(data), 500_000)
    request = ConfigRequest(strategy=strategy)
    with pytest.raises(DocumentTooLarge) as raised:
        await stream(chunker, data, cuts, request, media_type=media_type, head_bytes=400_000)
    assert raised.value.metadata["limit"] == "5000000"
    assert "FIXED and SEMANTIC" in raised.value.message


async def test_a_file_that_was_cut_within_a_character_is_read_to_its_end(chunker: Chunker) -> None:
    data = "Forty litres – no more. ".encode() * 40 + b"\xe2\x80"
    chunks, summary = await stream(chunker, data, [200, 500], ConfigRequest(strategy=Strategy.FIXED, size=100))
    assert chunks[-1].text.endswith("\ufffd")
    assert [warning.metadata for warning in summary.warnings] == [{"encoding": "utf-8"}]


async def test_auto_streams_plain_text(chunker: Chunker) -> None:
    data = b"Plain words without an end. " * 200_000
    chunks, summary = await stream(chunker, data, range(0, len(data), 500_000), ConfigRequest(), head_bytes=400_000)
    assert summary.strategy is Strategy.SEMANTIC
    assert summary.strategy_reason
    assert summary.text_characters == len(data) > chunker.limits.max_document_bytes
    assert summary.total == len(chunks)


async def test_no_part_is_read_while_chunks_wait_to_be_taken(chunker: Chunker) -> None:
    read = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"Some words of a file. " * 4_000

    source = SourceDocument(content=b"", media_type="text/plain")
    answers = stream_document(chunker, source, ConfigRequest(strategy=Strategy.FIXED), parts(), deadline=None)
    await anext(answers)
    assert read < 10
    await answers.aclose()
    assert chunker.admission.waiting_bytes == 0
