"""What kbmesh stores of a chunk, in bytes: measured over the files that ship with the repository."""

import asyncio
import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_retriever.catalog.port import KnowledgeBase, Reservation
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.points import build_points, keyword_vectors
from kbmesh_retriever.mesh.port import Chunk, Chunked
from kbmesh_retriever.stores.port import Point

from benchmarks.corpus import Kind, read_corpus
from benchmarks.ranking import MODEL, Encoder

_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_ID = uuid.UUID("00000000-0000-4000-8000-000000000000")


@dataclass(frozen=True, kw_only=True)
class ChunkBytes:
    """Means over all chunks."""

    documents: int
    chunks: int
    characters: float
    tokens: float
    terms: float
    """Of the BM25 vector: 8 bytes each, an index and a value."""
    payload_bytes: float
    """As JSON in UTF-8, text included."""


def measure_chunk_bytes(models: Path, *, max_megabytes: float) -> ChunkBytes:
    """Cuts prose and Markdown as a knowledge base of the default model does, and builds what would be written."""
    with closing(Encoder(models, model=MODEL)) as encoder, ThreadPoolExecutor(1) as executor:
        chunker = Chunker(limits=ReadingLimits(), counter=encoder, executor=executor)
        files = [file for file in read_corpus(None, max_megabytes=max_megabytes) if file.kind is not Kind.CODE]
        points: list[Point] = []
        for file in files:
            chunked = asyncio.run(
                chunker.chunk(
                    SourceDocument(content=file.text, filename=Path(file.name).name),
                    ConfigRequest(embedding_model=MODEL),
                    deadline=None,
                )
            )
            points += _points(file.name, chunked)
    return ChunkBytes(
        documents=len(files),
        chunks=len(points),
        characters=_mean([len(point.payload["text"]) for point in points]),
        tokens=_mean([point.payload["token_count"] or 0 for point in points]),
        terms=_mean([len(point.sparse.indices) for point in points]),
        payload_bytes=_mean([len(json.dumps(point.payload, ensure_ascii=False).encode()) for point in points]),
    )


def _points(name: str, chunked: ChunkedDocument) -> Sequence[Point]:
    chunks = tuple(
        Chunk(
            index=chunk.index,
            type=chunk.piece.type,
            text=chunk.text,
            context=chunk.piece.context,
            embedded_text=chunk.text,
            start=chunk.piece.start,
            end=chunk.piece.end,
            start_byte=chunk.start_byte,
            end_byte=chunk.end_byte,
            heading_path=tuple(chunk.piece.heading_path),
            pages=tuple(chunk.pages),
            token_count=chunk.token_count,
            metadata=dict(chunk.piece.metadata),
        )
        for chunk in chunked.chunks
    )
    knowledge_base = KnowledgeBase(
        id=_ID,
        tenant="default",
        name="handbook",
        embedding_model=MODEL,
        model_fingerprint="0" * 64,
        dimension=384,
        collection=f"kb-{_ID}",
        created_at=_MOMENT,
        updated_at=_MOMENT,
    )
    return build_points(
        knowledge_base,
        Reservation(document_id=_ID, knowledge_base_id=_ID, generation=1, replaces=None),
        IncomingDocument(external_id=name, content=chunked.document.text),
        Chunked(
            chunks=chunks,
            strategy=str(chunked.config.strategy),
            media_type=chunked.document.media_type,
            source_type="file",
            title="",
            metadata=chunked.document.metadata,
            chunking_fingerprint="",
            warnings=(),
        ),
        [None] * len(chunks),
        keyword_vectors(chunks),
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
