"""Whatever a document holds, its chunks are exact slices of it and lose nothing."""

import asyncio
import re
from concurrent.futures import Executor
from dataclasses import replace

import pytest
from chunker.laws import check_laws, check_windows
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.cutter import Cutter, Limits, TokenCap
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.measure import CharacterMeasure, TokenMeasure
from kbmesh_chunker.strategies.semantic import paragraph_breaks
from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable

CUT_STRATEGIES = [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT]

# What makes cutting hard: marks, joiners, flags, syllables, white space of all kinds, Markdown.
TRICKY = st.sampled_from(
    [
        *"ab. !?\n\r\t,;:#*_`|->=~[]()0",
        "\u0301", "\u102c", "က\u102c", "\u200d", "\u0600", "क्षि", "한", "\u1112\u1161\u11ab",
        "🇩🇪", "👩\u200d👧", "。", "中", "ไทย", "\u2029", "\u3000",
        "\r\n", "\n\n", "## ", "```\n", "| a | b |\n|---|---|\n", "---\n", "- ", "> ", "A sentence. ", "word ",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(TRICKY, max_size=120).map("".join),
    st.text(max_size=200),
)


@st.composite
def limits(draw: st.DrawFn, smallest: int = 1) -> Limits:
    size = draw(st.integers(smallest, 60))
    return Limits(size=size, overlap=draw(st.integers(0, size - 1)), minimum=draw(st.integers(0, size)))


@given(
    text=TEXTS,
    limits=limits(),
    breaks=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 6)), max_size=6),
    seals=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=4),
)
@example(text="a" * 40, limits=Limits(size=8, overlap=7, minimum=8), breaks=[], seals=[])
@example(text="\u0301" * 400, limits=Limits(size=8, overlap=7, minimum=8), breaks=[], seals=[])
@settings(max_examples=400, deadline=None)
def test_windows_of_any_text_by_any_limits(
    text: str, limits: Limits, breaks: list[tuple[int, int]], seals: list[tuple[int, int]]
) -> None:
    structure = Breaks(breaks, [(first, first + length) for first, length in seals])
    cutter = Cutter(text=text, limits=limits, measure=CharacterMeasure(text_length=len(text)), breaks=structure)
    check_windows(text, list(cutter.cut(0, len(text))))


@given(
    text=TEXTS,
    limits=limits(),
    token=st.integers(1, 5),
    breaks=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 6)), max_size=6),
    capped=st.booleans(),
)
@example(text="word " * 8 + "...", limits=Limits(size=8, overlap=0, minimum=0), token=4, breaks=[], capped=False)
@example(text="a" * 8 + "\n" * 9, limits=Limits(size=1, overlap=0, minimum=0), token=1, breaks=[], capped=True)
@settings(max_examples=300, deadline=None)
def test_windows_of_any_text_by_any_limits_in_tokens(
    text: str, limits: Limits, token: int, breaks: list[tuple[int, int]], capped: bool
) -> None:
    measure = token_measure(text, token)
    cap = TokenCap(measure=measure, tokens=max(1, limits.size // 2)) if capped else None
    cutter = Cutter(text=text, limits=limits, measure=measure, breaks=Breaks(breaks), cap=cap)
    check_windows(text, list(cutter.cut(0, len(text))))


@given(text=TEXTS, token=st.integers(1, 5), place=st.integers(0, 400), size=st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_a_stretch_of_so_many_tokens_lies_within_the_text(text: str, token: int, place: int, size: int) -> None:
    measure, place = token_measure(text, token), min(place, len(text))
    first, last = measure.earliest(place, size), measure.furthest(place, size)
    assert 0 <= first <= place <= last <= len(text)
    assert measure.length(first, place) <= size


def token_measure(text: str, token: int) -> TokenMeasure:
    """A measure by tokens of at most `token` letters or other signs; white space is in none."""
    found = list(re.finditer(rf"\w{{1,{token}}}|[^\w\s]", text))
    measure = TokenMeasure(text_length=len(text))
    measure.extend(0, [piece.start() for piece in found], [piece.end() for piece in found])
    return measure


SENTENCE = st.lists(st.sampled_from(["a", "few", "words", "of", "different", "lengths"]), min_size=1, max_size=20)
PROSE = st.lists(
    st.tuples(SENTENCE.map(" ".join), st.sampled_from([". ", "? ", "\n", "\n\n", "\n\n## Head\n\n", ":\n\n"])).map(
        "".join
    ),
    min_size=1,
    max_size=40,
).map("".join)


@given(text=PROSE, limits=limits(smallest=32))
@settings(max_examples=200, deadline=None)
def test_no_chunk_of_prose_is_shorter_than_the_minimum_or_longer_than_allowed(text: str, limits: Limits) -> None:
    # Between a size and a minimum that are nearly the same there may be no room for a whole word.
    limits = replace(limits, minimum=limits.minimum // 2)
    measure = CharacterMeasure(text_length=len(text))
    for breaks in (Breaks(), paragraph_breaks(text, 1)):
        spans = list(Cutter(text=text, limits=limits, measure=measure, breaks=breaks).cut(0, len(text)))
        check_windows(text, spans)
        for start, end in spans:
            assert end - start <= limits.size + limits.minimum
            # White space at the ends is not part of a chunk, but was counted when it was cut.
            assert len(spans) == 1 or end - start >= limits.minimum - 2


@pytest.mark.parametrize("strategy", CUT_STRATEGIES)
def test_any_text_by_every_strategy(strategy: Strategy, executor: Executor) -> None:
    chunker = Chunker(limits=ReadingLimits(max_document_bytes=1_000_000), counter=None, executor=executor)

    @given(text=TEXTS, limits=limits())
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def check(text: str, limits: Limits) -> None:
        config = ConfigRequest(strategy=strategy, size=limits.size, overlap=limits.overlap, minimum=limits.minimum)
        first, second = (_chunk(chunker, text, config) for _ in range(2))
        if first is None or second is None:
            return
        check_laws(first)
        assert first.chunks == second.chunks, "the same document gives the same chunks"
        assert first.fingerprint == second.fingerprint

    check()


def _chunk(chunker: Chunker, text: str, config: ConfigRequest) -> ChunkedDocument | None:
    source = SourceDocument(content=text, media_type="text/markdown")
    try:
        return asyncio.run(chunker.chunk(source, config, deadline=None))
    except (DocumentEmpty, DocumentUnreadable):
        event("not a text")
        return None
