"""FIXED: windows of one size."""

import re
from collections.abc import Sequence

from kbmesh_chunker.blank import stretches, trim_end
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work
from kbmesh_chunker.strategies.rows import Rows

_HEADING_AND_NEXT = re.compile(r"#{1,6}[ \t][^\r\n]{0,200}\r?\n\s*")
_LINE_END = re.compile(r"[\r\n]")
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
    rows = Rows(work.document)
    cutter = work.cutter(rows.breaks(seals))
    context = work.context()
    return [
        Piece(start=start, end=end, type="fixed", context=rows.context(work, start, context).text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]


def find_seals(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """What holds lines of text[start:end] that begin like a heading to what follows, whatever the text is."""
    seals = []
    sign = text.find("#", start, end)
    while sign >= 0:
        before = text[max(start, sign - 4) : sign]
        line = len(before) - len(before.rstrip(" \t"))
        following = sign + 1
        if line < 4 and (line == len(before) or before[-1 - line] in "\r\n"):
            found = _HEADING_AND_NEXT.match(text, sign, end)
            if found is not None:
                seals.append((sign - line, found.end()))
                following = found.end()
        elif (line_end := _LINE_END.search(text, sign, end)) is None:
            break
        else:
            # One look at a line is enough, however many signs it has.
            following = line_end.end()
        sign = text.find("#", following, end)
    return seals
