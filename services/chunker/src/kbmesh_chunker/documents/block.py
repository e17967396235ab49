"""What a block of a Markdown text is."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

Parts = tuple[tuple[int, int], ...]
"""Positions and how welcome a cut is there: (position, strength), strength 1 to 3."""


class BlockKind(StrEnum):
    """What a block is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    TABLE = "table"
    CODE = "code"
    LIST = "list"
    QUOTE = "quote"
    OTHER = "other"


class Block(NamedTuple):
    """A block. Positions are code points of the whole text, ends are exclusive."""

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    """Of a heading, 1 to 6."""
    title: str = ""
    """Of a heading, as it reads: without its markup."""
    language: str = ""
    """Of fenced code, as its fence says."""
    parts: "Parts | Callable[[Block], Parts]" = ()
    """What `inner` is, or who finds it: most blocks are never cut."""
    header_end: int = 0
    """Of a table: where its first row after the header and the delimiter row starts."""
    within: "tuple[Block, ...] | Callable[[Block], tuple[Block, ...]]" = ()
    """What `nested` is, or who finds it."""

    @property
    def inner(self) -> Parts:
        """Where its parts start and how welcome a cut is there."""
        parts = self.parts
        return parts if isinstance(parts, tuple) else parts(self)

    @property
    def nested(self) -> "tuple[Block, ...]":
        """Of a list or a quote: the tables and the code that stand in it, in order. They begin and end with lines."""
        within = self.within
        return within if isinstance(within, tuple) else within(self)
