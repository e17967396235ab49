"""How a section is built that is too long for one piece: where it may be cut, and which blocks stand where."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.documents.block import Block, BlockKind, Parts
from kbmesh_chunker.documents.table_header import table_header

_NEXT_BLOCK = 4
_LEADS_ON = (":", "：")
_LED_TO = {BlockKind.LIST, BlockKind.CODE, BlockKind.TABLE, BlockKind.QUOTE}


class Table(NamedTuple):
    """A table whose header may have to be repeated. Positions are code points of the document's text."""

    start: int
    header_end: int
    """Where its first row below the header begins."""
    end: int
    header: str
    """The header and the row of dashes below it, without the marks of what they stand in."""


class PieceType(NamedTuple):
    """What a piece is."""

    name: str
    language: str = ""
    """Where it is code, as its fence says."""


SECTION = PieceType("section")
TABLE = PieceType("table")


def type_of(blocks: Iterable[Block]) -> PieceType:
    """The type of a piece that is made of `blocks`."""
    only: BlockKind | None = None
    language = ""
    for block in blocks:
        kind = block.kind
        if kind is BlockKind.HEADING:
            continue
        if kind is BlockKind.CODE:
            language = language or block.language
        elif kind is not BlockKind.TABLE:
            return SECTION
        if only is not None and kind is not only:
            return SECTION
        only = kind
    if only is None:
        return SECTION
    return PieceType("code_block", language) if only is BlockKind.CODE else TABLE


class SectionLayout:
    """The blocks of one section, and the tables and the code that stand in its lists and quotes."""

    def __init__(self, text: str, start: int, end: int, headings: Sequence[Block], blocks: Sequence[Block]) -> None:
        """`blocks` are what stands in text[start:end], `headings` those above and at the head of it."""
        self._text = text
        self.start = start
        self.end = end
        self.headings = headings
        self.blocks = blocks
        self.nested = [inner for block in blocks for inner in block.nested]
        self._starts = array("Q", (block.start for block in blocks))
        self._nested_starts = array("Q", (block.start for block in self.nested))

    def type_of(self, start: int, end: int) -> PieceType:
        """The type of a piece of the section."""
        inner = _last_before(self.nested, self._nested_starts, start)
        if inner is not None and end <= inner.end:
            return type_of((inner,))
        first = max(0, bisect_right(self._starts, start) - 1)
        blocks = self.blocks[first : bisect_left(self._starts, end)]
        return type_of([block for block in blocks if block.end > start])

    def table_at(self, position: int) -> Table | None:
        """The table of which `position` is in a row below the header."""
        for blocks, starts, nested in (
            (self.nested, self._nested_starts, True),
            (self.blocks, self._starts, False),
        ):
            block = _last_before(blocks, starts, position)
            if block is not None and block.kind is BlockKind.TABLE and block.header_end <= position < block.end:
                header = table_header(self._text, block, nested=nested)
                return Table(block.start, block.header_end, block.end, header)
        return None


def _last_before(blocks: Sequence[Block], starts: "array[int]", position: int) -> Block | None:
    index = bisect_right(starts, position) - 1
    return blocks[index] if index >= 0 else None


def breaks_of(text: str, layouts: Sequence[SectionLayout]) -> Breaks:
    """Where sections may be cut, and where they may not."""
    breaks: list[tuple[int, int]] = []
    seals: list[tuple[int, int]] = []
    solids: list[tuple[int, int]] = []
    for layout in layouts:
        blocks = layout.blocks
        last = len(blocks) - 1
        for index, block in enumerate(blocks):
            kind, start = block.kind, block.start
            if kind is BlockKind.HEADING:
                breaks.append((start, PARTING))
                following = blocks[index + 1].start if index < last else layout.end
                if following < len(text):
                    seals.append((start, following))
                continue
            breaks.append((start, _NEXT_BLOCK))
            if kind is BlockKind.PARAGRAPH:
                if index < last and _leads_on(text, block, blocks[index + 1]):
                    seals.append((block.end - 1, blocks[index + 1].start))
                continue
            inner = block.inner
            _hold(block, inner, seals, solids)
            if nested := block.nested:
                inner = _with_nested(inner, nested, seals, solids)
            breaks.extend(inner[1:] if inner and inner[0][0] <= start else inner)
    return Breaks(breaks, seals, solids)


def _hold(block: Block, inner: Parts, seals: list[tuple[int, int]], solids: list[tuple[int, int]]) -> None:
    """Adds what may not be cut in a table or in code, and that pieces of them do not overlap."""
    if block.kind is BlockKind.TABLE:
        seals.append((block.start, block.header_end))
    elif block.kind is BlockKind.CODE and inner:
        # The fences stay with the lines beside them.
        seals.append((block.start, inner[0][0]))
        seals.append((inner[-2][0] if len(inner) > 1 else block.start, inner[-1][0]))
    else:
        return
    solids.append((block.start, block.end))


def _with_nested(
    inner: Parts, nested: Sequence[Block], seals: list[tuple[int, int]], solids: list[tuple[int, int]]
) -> Parts:
    """The breaks of a list or a quote with those of the tables and the code in it."""
    strengths = dict(inner)
    for block in nested:
        lines = block.inner
        _hold(block, lines, seals, solids)
        for position, strength in ((block.start, 1), *lines):
            strengths[position] = max(strength, strengths.get(position, 0))
    return tuple(sorted(strengths.items()))


def _leads_on(text: str, block: Block, following: Block) -> bool:
    return following.kind in _LED_TO and text[max(block.start, block.end - 16) : block.end].rstrip().endswith(_LEADS_ON)
