"""What is told of a document once all of its chunks are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbmesh_chunker.assembly import ChunkedPart
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.source import SourceType
from kbmesh_chunker.documents.source import Warning as DocumentWarning


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What became of a document, without its text."""

    total: int
    strategy: Strategy
    strategy_reason: str
    media_type: str
    source_type: SourceType
    title: str
    text_sha256: bytes
    text_characters: int
    warnings: Sequence[DocumentWarning]
    fingerprint: str
    metadata: Mapping[str, str]
    parts: Sequence[ChunkedPart] = ()
    """What became of the documents it is made of; empty where it is one."""


def summarize(chunked: ChunkedDocument) -> Summary:
    """The summary of a document that was cut whole."""
    document = chunked.document
    return Summary(
        total=len(chunked.chunks),
        strategy=chunked.config.strategy,
        strategy_reason=chunked.strategy_reason,
        media_type=document.media_type,
        source_type=document.source_type,
        title=document.title,
        text_sha256=chunked.text_sha256,
        text_characters=len(document.text),
        warnings=chunked.warnings,
        fingerprint=chunked.fingerprint,
        metadata=document.metadata,
        parts=chunked.parts if len(chunked.parts) > 1 else (),
    )
