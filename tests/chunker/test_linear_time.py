"""The work grows as the text does, whatever the text is made of."""

import asyncio
import sys
from concurrent.futures import Executor, Future
from types import FrameType
from typing import Any

import pytest
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument

UNITS = [
    " ", ".", "\u0301", "[", "*", "> ", "- ", "|a", "\t", "\r", "👩\u200d👩\u200d👧", "🇩🇪", "🇩", "ภาษาไทย", "ภาษา ",
    "\u1100", "\u1100\u1161", "漢", "#", "```", "a\n", "a\n=\n", "\r\n", "a\r\n", "# a\n", "# ", "#\n", "- a\n",
    "1. x\n", "a\n\n", "|a|b|\n", "<div>\n", "<", "[a]: b\n", "\\", "_", "!", "? ", "z.b. ", "a:\n\n", "**a**\n\n",
    "\u200b", "\u00a0", "\u2029", "\u0600", "\ufe0f", "word ", '.")', "---\n", "> a\n", "```\n", "    a\n",
    "> a\n- b\n", "[a]: b\n===\n", "- > a\n", "- a\n  > b\n", "# [a](b)\n",
]  # fmt: skip
STRATEGIES = [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT]


class InlineExecutor(Executor):
    """Does the work where it is given to it, so that it can be counted."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **keywords))
        except Exception as error:
            done.set_exception(error)
        return done


def chunk(
    text: str, strategy: Strategy, size: int, limit: int = 64 * 1024 * 1024, *, media_type: str = ""
) -> ChunkedDocument:
    limits = ReadingLimits(max_document_bytes=limit, max_text_bytes=limit)
    chunker = Chunker(limits=limits, counter=None, executor=InlineExecutor())
    media_type = media_type or ("text/markdown" if strategy is Strategy.DOCUMENT else "text/plain")
    request = ConfigRequest(strategy=strategy, size=size)
    return asyncio.run(chunker.chunk(SourceDocument(content=text, media_type=media_type), request, deadline=None))


def calls(text: str, strategy: Strategy, size: int) -> int:
    """How many functions are called, of Python or C, to chunk a text."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        chunk(text, strategy, size)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("size", [16, 1_500])
def test_twice_the_text_is_twice_the_work(unit: str, strategy: Strategy, size: int) -> None:
    # Few lines: lists and paragraphs of thousands are divided, which costs something once.
    count = min((1_000 if size == 16 else 6_000) // len(unit), 400)
    text = "x" + unit * count
    once, twice = calls(text, strategy, size), calls(text + text, strategy, size)
    assert twice < 2.4 * once + 4_000


@pytest.mark.parametrize("row", ["|-|-{}x", "|-|-|{}x", "{}|-|-x", "|{}-|-x", "|-|-{}|x"])
def test_a_row_of_dashes_with_much_space_is_looked_through_once(row: str) -> None:
    """It took hours: counted calls do not tell what a pattern does."""
    chunked = chunk(f"a|b\n{row.format(' ' * 400_000)}\nc|d\n", Strategy.SEMANTIC, 1_500, media_type="text/markdown")
    assert chunked.chunks


@pytest.mark.soak
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("unit", UNITS)
def test_10_mb_end(unit: str, strategy: Strategy) -> None:
    chunked = chunk("x" + unit * (10_000_000 // len(unit.encode())), strategy, 1_500)
    assert chunked.chunks[-1].piece.end <= len(chunked.document.text)
