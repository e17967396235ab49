"""Pieces to chunks: positions in the whole text, in code points and in bytes, and all that travels with a chunk."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker.config import ChunkingConfig
from kbmesh_chunker.documents.source import ExtractedDocument, MailLayout, Part, TextDocument
from kbmesh_chunker.mail_labels import mail_labels
from kbmesh_chunker.measure import BoundedTokenMeasure
from kbmesh_chunker.piece import Chunk, Piece, embedded_text
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.token_counter import ModelTokens
from kbmesh_chunker.token_limit import CountedPiece

LONGEST_BLANK_BEFORE = 256
"""White space between two chunks that travels with the later one. Less than a stream keeps of what it has cut."""


@dataclass(frozen=True, kw_only=True)
class ChunkedPart:
    """What became of a part of a document."""

    part: Part
    start_byte: int
    """Where it stands in the text of the whole, in bytes of UTF-8."""
    end_byte: int
    chunks: int
    config: ChunkingConfig
    strategy_reason: str
    """Why its strategy was chosen; empty where the caller chose it."""


@dataclass(frozen=True, kw_only=True)
class CutPart:
    """A part of a document that was cut into pieces."""

    config: ChunkingConfig
    reason: str
    work: Work
    pieces: Sequence[CountedPiece | Piece]
    tokens: ModelTokens | None
    max_tokens: int | None
    """Tokens that no chunk may exceed; None where nothing was to be cut by them."""
    made_with: Mapping[str, str]


def assemble(document: ExtractedDocument, cut: Sequence[CutPart]) -> tuple[list[Chunk], list[ChunkedPart], bytes]:
    """The chunks of the whole, with positions in its text, what became of each part, and the text's SHA-256."""
    encoded = document.text.encode()
    chunks: list[Chunk] = []
    parts: list[ChunkedPart] = []
    place = place_bytes = 0
    for part, of_part in zip(document.parts, cut, strict=True):
        start_byte = place_bytes + _bytes_between(document.text, place, part.offset)
        before = len(chunks)
        chunks += make_chunks(of_part, part.document, index=before, offset=part.offset, start_byte=start_byte)
        place = part.offset + len(part.document.text)
        only = len(document.parts) == 1
        place_bytes = len(encoded) if only else start_byte + len(part.document.text.encode())
        parts.append(
            ChunkedPart(
                part=part,
                start_byte=start_byte,
                end_byte=place_bytes,
                chunks=len(chunks) - before,
                config=of_part.config,
                strategy_reason=of_part.reason,
            )
        )
    return chunks, parts, hashlib.sha256(encoded).digest()


def make_chunks(
    cut: CutPart, document: TextDocument, *, index: int, offset: int, start_byte: int, covered: int | None = None
) -> list[Chunk]:
    """The chunks of the pieces of a document, numbered from `index` on.

    Its text begins at `offset` of the whole text, in code points, and at `start_byte` of it as UTF-8. `covered` is up
    to where of the whole text earlier chunks of the same part reach; None where there are none.
    """
    text, work = document.text, cut.work
    # The bound in characters is not a size that was asked for.
    measure = work.measure.tokens if isinstance(work.measure, BoundedTokenMeasure) else work.measure
    most = work.limits.size + work.limits.minimum
    plain = not (document.chunk_metadata or document.source_lines or isinstance(document.layout, MailLayout))
    pages, max_tokens = document.pages, cut.max_tokens
    chunks: list[Chunk] = []
    place, place_bytes = 0, start_byte
    for number, item in enumerate(cut.pieces, index):
        piece, tokens = (item, None) if isinstance(item, Piece) else (item.piece, item.tokens)
        start, end = piece.start, piece.end
        place_bytes += _bytes_between(text, place, start)
        place = start
        content = text[start:end]
        encoded = content.encode()
        embedded = embedded_text(text, piece) if piece.left_out or piece.statement is not None else None
        too_long = max_tokens is not None and tokens is not None and tokens > max_tokens
        gap = 0 if covered is None else offset + start - covered
        blank = text[start - gap : start] if 0 < gap <= min(start, LONGEST_BLANK_BEFORE) else ""
        covered = max(covered or 0, offset + end)
        if offset or not plain:
            metadata = piece.metadata if plain else _metadata(document, piece)
            piece = replace(piece, start=offset + start, end=offset + end, metadata=metadata)
        chunks.append(
            Chunk(
                number,
                piece,
                content,
                place_bytes,
                place_bytes + len(encoded),
                hashlib.sha256(encoded).digest(),
                tokens,
                too_long or measure.length(start, end) > most,
                pages.within(start, end) if pages is not None else (),
                embedded or None,
                embedded == "",
                blank if blank.isspace() else "",
            )
        )
    return chunks


def _bytes_between(text: str, start: int, end: int) -> int:
    """Bytes of UTF-8 from `start` to `end`, which may be before it."""
    if text.isascii():
        return end - start
    return len(text[start:end].encode()) if start <= end else -len(text[end:start].encode())


def _metadata(document: TextDocument, piece: Piece) -> Mapping[str, str]:
    metadata = piece.metadata
    if document.chunk_metadata:
        metadata = {**document.chunk_metadata, **metadata}
    if isinstance(document.layout, MailLayout):
        metadata = {**mail_labels(document.layout, piece.start, piece.end), **metadata}
    if document.source_lines is not None:
        lines = document.source_lines.within(piece.start, piece.end)
        metadata = {"start_line": str(lines[0]), "end_line": str(lines[-1]), **metadata}
    return metadata
