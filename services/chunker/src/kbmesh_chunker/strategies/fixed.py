"""FIXED: windows of one size."""

import re
from collections.abc import Sequence

from kbmesh_chunker.blank import stretches, trim_end
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work

_HEADING_AND_NEXT = re.compile(r"#(?<!##)#{0,5}[ \t][^\r\n]{0,200}\r?\n\s*")
_HEADING_LINE = 256
"""A line that begins like a heading is shorter, or is none."""


class Fixed:
    """Windows of a fixed size, moved to the nearest sentence or word boundary."""

    strategy = Strategy.FIXED
    description = "Windows of a fixed size, moved to the nearest sentence or word boundary."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = ANY_GRAMMAR
    piece_type = "fixed"

    def options(self, given: Options, path: str) -> Options:
        return given

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_fixed, work)

    def structure(self, text: str, start: int, end: int, options: Options) -> tuple[Breaks, int]:
        """Breaks and seals of text[start:end], and up to where they are the same whatever follows."""
        return Breaks(seals=find_seals(text, start, end)), end - _HEADING_LINE


def cut_fixed(work: Work) -> list[Piece]:
    """All of the text, from end to end."""
    text = work.document.text
    seals: list[tuple[int, int]] = []
    for start, end in stretches(text, 0, len(text)):
        seals += find_seals(text, start, trim_end(text, start, end))
    cutter = work.cutter(Breaks(seals=seals))
    context = work.context()
    return [
        Piece(start=start, end=end, type="fixed", context=context.text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]


def find_seals(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """What holds lines of text[start:end] that begin like a heading to what follows, whatever the text is."""
    seals = []
    for found in _HEADING_AND_NEXT.finditer(text, start, end):
        before = text[max(0, found.start() - 4) : found.start()]
        line = len(before) - len(before.rstrip(" \t"))
        if line < 4 and (line == len(before) or before[-1 - line] in "\r\n"):
            seals.append((found.start() - line, found.end()))
    return seals
