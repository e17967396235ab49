"""Pieces to chunks: positions in the whole text, in code points and in bytes, and all that travels with a chunk."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker.config import ChunkingConfig
from kbmesh_chunker.documents.source import ExtractedDocument, MailLayout, Part, TextDocument
from kbmesh_chunker.mail_labels import mail_labels
from kbmesh_chunker.measure import BoundedTokenMeasure
from kbmesh_chunker.piece import Chunk, Piece, embedded_text
from kbmesh_chunker.spans import byte_offsets
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.token_counter import ModelTokens
from kbmesh_chunker.token_limit import CountedPiece


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
    text = document.text
    encoded = text.encode()
    ends = [(part.offset, part.offset + len(part.document.text)) for part in document.parts]
    starts = [
        part.offset + _plain(item).start
        for part, of_part in zip(document.parts, cut, strict=True)
        for item in of_part.pieces
    ]
    ascii_only = len(encoded) == len(text)
    offsets = {} if ascii_only else byte_offsets(text, [*starts, *(place for pair in ends for place in pair)])
    chunks: list[Chunk] = []
    parts: list[ChunkedPart] = []
    for part, of_part, (start, end) in zip(document.parts, cut, ends, strict=True):
        before = len(chunks)
        for item in of_part.pieces:
            first = part.offset + _plain(item).start
            start_byte = first if ascii_only else offsets[first]
            chunks.append(make_chunk(len(chunks), item, part.document, of_part, part.offset, start_byte))
        parts.append(
            ChunkedPart(
                part=part,
                start_byte=start if ascii_only else offsets[start],
                end_byte=end if ascii_only else offsets[end],
                chunks=len(chunks) - before,
                config=of_part.config,
                strategy_reason=of_part.reason,
            )
        )
    return chunks, parts, hashlib.sha256(encoded).digest()


def make_chunk(
    index: int, item: CountedPiece | Piece, document: TextDocument, cut: CutPart, offset: int, start_byte: int
) -> Chunk:
    """The chunk of a piece of a document, whose text begins at `offset` of the whole.

    `start_byte` is where the piece begins in the whole text as UTF-8.
    """
    piece, work = _plain(item), cut.work
    start, end = piece.start, piece.end
    content = document.text[start:end]
    encoded = content.encode()
    tokens = item.tokens if isinstance(item, CountedPiece) else None
    too_long = cut.max_tokens is not None and tokens is not None and tokens > cut.max_tokens
    # The bound in characters is not a size that was asked for.
    measure = work.measure.tokens if isinstance(work.measure, BoundedTokenMeasure) else work.measure
    embedded = embedded_text(document.text, piece) if piece.left_out or piece.statement is not None else None
    metadata = _metadata(document, piece)
    if offset or metadata is not piece.metadata:
        piece = replace(piece, start=offset + start, end=offset + end, metadata=metadata)
    return Chunk(
        index=index,
        piece=piece,
        text=content,
        start_byte=start_byte,
        end_byte=start_byte + len(encoded),
        sha256=hashlib.sha256(encoded).digest(),
        token_count=tokens,
        oversize=too_long or measure.length(start, end) > work.limits.size + work.limits.minimum,
        pages=document.pages.within(start, end) if document.pages is not None else (),
        embedded_text=embedded or None,
        embedding_excluded=embedded == "",
    )


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


def _plain(item: CountedPiece | Piece) -> Piece:
    return item.piece if isinstance(item, CountedPiece) else item
