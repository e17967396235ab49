"""FIXED: windows of one size."""

import re
from collections.abc import Sequence

from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work

_HEADING_AND_NEXT = re.compile(r"^[ \t]{0,3}#{1,6}[ \t][^\r\n]{0,200}\r?\n\s*", re.MULTILINE)


class Fixed:
    """Windows of a fixed size, moved to the nearest sentence or word boundary."""

    strategy = Strategy.FIXED
    description = "Windows of a fixed size, moved to the nearest sentence or word boundary."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = ANY_GRAMMAR

    def options(self, given: Options, path: str) -> Options:
        return given

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_fixed, work)


def cut_fixed(work: Work) -> list[Piece]:
    """All of the text, from end to end."""
    text = work.document.text
    # Whatever the text is, a line that starts like a heading belongs to what follows.
    seals = [match.span() for match in _HEADING_AND_NEXT.finditer(text)]
    cutter = work.cutter(Breaks(seals=seals))
    context = work.context()
    return [
        Piece(start=start, end=end, type="fixed", context=context.text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]
