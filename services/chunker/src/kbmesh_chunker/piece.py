"""What strategies give and what becomes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbmesh_chunker.blank import is_visible


@dataclass(slots=True)
class Piece:
    """A stretch of a document, as a strategy cuts it. Positions are code points of the document's text.

    Nobody changes one; a frozen class would take thrice as long to fill.
    """

    start: int
    end: int
    type: str
    context: str = ""
    """What the piece needs to be understood. Not part of its text."""
    heading_path: tuple[str, ...] = ()
    """Headings above the piece, outermost first."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the strategy found out about it."""
    statement: str | None = None
    """What is embedded in place of its context and text."""
    left_out: tuple[tuple[int, int], ...] = ()
    """Stretches of it that are not embedded, as positions in the document's text, in order."""


@dataclass(slots=True)
class Chunk:
    """A piece with all that travels with it. Nobody changes one, like a piece."""

    index: int
    piece: Piece
    text: str
    start_byte: int
    end_byte: int
    sha256: bytes
    token_count: int | None
    oversize: bool
    pages: tuple[int, ...] = ()
    """From 1; empty where the document has none."""
    embedded_text: str | None = None
    """What is embedded, where that is not context and text."""
    embedding_excluded: bool = False
    """Whether nothing of it is to be embedded."""
    blank_before: str = ""
    """White space that parts it from the chunks before it in the same part. Empty also where it is not known."""


def embedded_text(text: str, piece: Piece) -> str:
    """What is embedded for a piece of `text`; empty where all of it is left out."""
    if piece.statement is not None:
        return piece.statement
    content = text[piece.start : piece.end]
    if piece.left_out:
        content = _without(text, piece)
        if not is_visible(content):
            return ""
    return f"{piece.context}\n\n{content}" if piece.context else content


def _without(text: str, piece: Piece) -> str:
    kept, position = [], piece.start
    for start, end in piece.left_out:
        kept.append(text[position : max(position, min(start, piece.end))])
        position = max(position, min(end, piece.end))
    kept.append(text[position : piece.end])
    return "\n".join(part for stretch in kept if (part := stretch.strip("\r\n")))
