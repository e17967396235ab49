"""Blocks of a text whose headings are no markup: they were found by how they were set."""

import re
from collections.abc import Iterator

from kbmesh_chunker.documents.markdown import Block, BlockKind
from kbmesh_chunker.documents.source import HeadingLayout

_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")


def blocks_under_headings(text: str, layout: HeadingLayout) -> Iterator[Block]:
    """Headings, and what blank lines part between them. Every character that is not white space is in one block."""
    start = 0
    for heading in layout.headings:
        yield from _paragraphs(text, start, heading.start)
        yield Block(
            kind=BlockKind.HEADING, start=heading.start, end=heading.end, level=heading.level, title=heading.title
        )
        start = heading.end
    yield from _paragraphs(text, start, len(text))


def _paragraphs(text: str, start: int, end: int) -> Iterator[Block]:
    for gap in _BLANK_LINE.finditer(text, start, end):
        if gap.start() > start:
            yield Block(kind=BlockKind.PARAGRAPH, start=start, end=gap.end())
        start = gap.end()
    if text[start:end].strip():
        yield Block(kind=BlockKind.PARAGRAPH, start=start, end=end)
