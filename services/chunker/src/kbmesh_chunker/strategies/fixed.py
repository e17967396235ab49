"""FIXED: windows of one size."""

from collections.abc import Sequence

from kbmesh_chunker.blank import stretches, trim_end
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.heading_seals import HEADING_LINE, find_heading_seals
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work
from kbmesh_chunker.strategies.rows import Rows


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
        return Breaks(seals=find_heading_seals(text, start, end)), end - HEADING_LINE


def cut_fixed(work: Work) -> list[Piece]:
    """All of the text, from end to end."""
    text = work.document.text
    seals: list[tuple[int, int]] = []
    for start, end in stretches(text, 0, len(text)):
        seals += find_heading_seals(text, start, trim_end(text, start, end))
    rows = Rows(work.document)
    cutter = work.cutter(rows.breaks(seals))
    context = work.context()
    return [
        Piece(start=start, end=end, type="fixed", context=rows.context(work, start, context).text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]
