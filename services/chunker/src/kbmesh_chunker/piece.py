"""What strategies give and what becomes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stretch of a document, as a strategy cuts it. Positions are code points of the document's text."""

    start: int
    end: int
    type: str
    context: str = ""
    """What the piece needs to be understood. Not part of its text."""
    heading_path: tuple[str, ...] = ()
    """Headings above the piece, outermost first."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the strategy found out about it."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece with all that travels with it."""

    index: int
    piece: Piece
    text: str
    start_byte: int
    end_byte: int
    sha256: bytes
    token_count: int | None
    oversize: bool


def embedded_text(context: str, text: str) -> str:
    """What is embedded for a piece."""
    return f"{context}\n\n{text}" if context else text
