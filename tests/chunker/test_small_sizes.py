"""Sizes of a few characters or tokens: the same laws hold as for large ones."""

import asyncio
import re
from concurrent.futures import Executor

import pytest
import regex
from chunker.conftest import Chunk
from chunker.counters import MODEL, WordPieceCounter
from chunker.laws import check_laws
from chunker.test_spans_and_coverage import TEXTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy, resolve_limits
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable

CUT_STRATEGIES = [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT]


@st.composite
def small_configs(draw: st.DrawFn, strategy: Strategy) -> ConfigRequest:
    size = draw(st.integers(1, 31))
    tokens = draw(st.booleans())
    return ConfigRequest(
        strategy=strategy,
        size=size,
        overlap=draw(st.none() | st.integers(0, size - 1)),
        minimum=draw(st.none() | st.integers(0, size)),
        unit=SizeUnit.TOKENS if tokens else SizeUnit.CHARACTERS,
        embedding_model=MODEL if tokens else "",
    )


@pytest.mark.parametrize("strategy", CUT_STRATEGIES)
def test_any_text_by_small_sizes_in_both_units(strategy: Strategy, executor: Executor) -> None:
    chunker = Chunker(limits=ReadingLimits(max_document_bytes=1_000_000), counter=WordPieceCounter(), executor=executor)

    @given(text=TEXTS, config=small_configs(strategy))
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def check(text: str, config: ConfigRequest) -> None:
        source = SourceDocument(content=text, media_type="text/markdown")
        try:
            chunked = asyncio.run(chunker.chunk(source, config, deadline=None))
        except (DocumentEmpty, DocumentUnreadable):
            return
        check_laws(chunked)

    check()


@pytest.mark.parametrize("unit", SizeUnit)
@pytest.mark.parametrize("size", range(1, 40))
def test_what_is_left_out_fits_every_small_size(size: int, unit: SizeUnit) -> None:
    limits = resolve_limits(ConfigRequest(size=size, unit=unit))
    assert limits.size == size
    assert 0 <= limits.overlap < size
    assert 0 <= limits.minimum <= size
    assert size > 1 or limits.overlap == 0


async def fixed(chunk: Chunk, text: str, size: int, overlap: int | None, **config: object) -> ChunkedDocument:
    """A text cut by FIXED, checked."""
    chunked = await chunk(text, strategy=Strategy.FIXED, size=size, overlap=overlap, **config)
    check_laws(chunked)
    return chunked


def spans(chunked: ChunkedDocument) -> list[tuple[int, int]]:
    return [(found.piece.start, found.piece.end) for found in chunked.chunks]


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_02_the_last_chunk_ends_with_the_text(chunk: Chunk, minimum: int | None) -> None:
    found = spans(await fixed(chunk, "0123456789" * 2 + "tail", 10, 3, minimum=minimum))
    assert found[-1][1] == 24
    assert len(set(found)) == len(found)


async def test_fix_05_twenty_tokens_and_ten_repeated(chunk: Chunk) -> None:
    text = "The migration window opens at 02:00 and closes at 04:30 each Sunday. " * 6
    chunked = await fixed(chunk, text, 20, 10, unit=SizeUnit.TOKENS, embedding_model=MODEL)
    assert len(chunked.chunks) > 5
    assert min(start for start, _ in spans(chunked)) == 0


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_06_characters_outside_the_bmp_are_not_halved(chunk: Chunk, minimum: int | None) -> None:
    chunked = await fixed(chunk, "Release 🎈🎈🎈🎈🎈🎈 shipped", 10, 2, minimum=minimum)
    for found in chunked.chunks:
        found.text.encode("utf-8")


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_08_no_chunk_starts_with_a_mark_or_half_a_syllable(chunk: Chunk, minimum: int | None) -> None:
    text = "re\u0301sume\u0301 क्षि \u1112\u1161\u11ab\u1100\u116e\u11a8 " * 20
    for found in (await fixed(chunk, text, 25, 5, minimum=minimum)).chunks:
        assert not regex.match(r"[\p{M}\p{GCB=V}\p{GCB=T}]", found.text)


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_14_blank_lines_between_short_paragraphs(chunk: Chunk, minimum: int | None) -> None:
    assert (await fixed(chunk, "one\n\ntwo2\n\nthree\n\nfour44\n\nfive", 8, 3, minimum=minimum)).chunks


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_15_chunks_without_overlap_tile_the_text(chunk: Chunk, minimum: int | None) -> None:
    text = "a\tb\n\n\n  c  \n\td\n"
    position = 0
    for start, end in spans(await fixed(chunk, text, 4, 0, minimum=minimum)):
        assert not text[position:start].strip()
        assert start >= position
        position = end
    assert not text[position:].strip()


@pytest.mark.parametrize("minimum", [None, 0])
async def test_fix_19_irregular_spaces(chunk: Chunk, minimum: int | None) -> None:
    text = "Item A.    Note   B.\n   \nItem C.  " * 10
    starts = [start for start, _ in spans(await fixed(chunk, text, 30, 10, minimum=minimum))]
    assert starts == sorted(starts)


async def test_one_character_a_chunk(chunk: Chunk) -> None:
    chunked = await fixed(chunk, "ab e\u0301\n🇩🇪", 1, None)
    assert [found.text for found in chunked.chunks] == ["a", "b", "e\u0301", "🇩🇪"]
    assert [found.oversize for found in chunked.chunks] == [False, False, True, True]


async def test_one_token_a_chunk(chunk: Chunk) -> None:
    chunked = await fixed(chunk, "one two\n\nsix", 1, None, unit=SizeUnit.TOKENS, embedding_model=MODEL)
    assert [found.text for found in chunked.chunks] == re.findall(r"\w+", "one two six")
