"""Takes one document in: cut, embed, write, publish."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from kbmesh_rpc.errors import (
    Conflict,
    DependencyInvalidResponse,
    EmptyText,
    KbmeshError,
    KnowledgeBaseNotFound,
    QueueFull,
    Reason,
    error_for,
)
from kbmesh_rpc.logs import get_logger
from numpy.typing import NDArray

from kbmesh_retriever.catalog.port import Catalog, Document, KnowledgeBase, Reservation
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.fingerprint import content_sha256, description_fingerprint, points_fingerprint
from kbmesh_retriever.ingest.points import build_points, keyword_vectors
from kbmesh_retriever.ingest.turns import Turns
from kbmesh_retriever.keywords.analyser import ANALYSER_FINGERPRINT
from kbmesh_retriever.mesh.port import Chunk, Chunked, ChunkerPort, Embedded, EmbedderPort, SourceDocument, Warned
from kbmesh_retriever.stores.port import Scope, SparseVector, VectorStore

logger = get_logger(__name__)

_MAX_ATTEMPTS = 5
_TEXTS_A_CALL = 256
_MAX_RETRY_SECONDS = 10.0
_MAX_QUEUE_RETRIES = 20
_MAX_WARNINGS = 16


@dataclass(frozen=True, kw_only=True)
class _Hashes:
    content: bytes
    points: str
    description: str


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything that is written, but for the generation's number."""

    chunked: Chunked
    dense: list[NDArray[np.float32] | None] = field(repr=False)
    sparse: list[SparseVector] = field(repr=False)
    tokens: int
    truncated: int
    warnings: tuple[Warned, ...]


class Ingester:
    """Takes documents in. Two versions of one document are worked on one after the other, in the order in which they
    came; another process may still be faster, which publishing notices."""

    def __init__(
        self,
        catalog: Catalog,
        store: VectorStore,
        chunker: ChunkerPort,
        embedder: EmbedderPort,
        *,
        max_document_bytes: int,
        analyser_fingerprint: str = ANALYSER_FINGERPRINT,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._chunker = chunker
        self._embedder = embedder
        self._max_document_bytes = max_document_bytes
        self._analyser_fingerprint = analyser_fingerprint
        self._now = now
        self._sleep = sleep
        self._turns = Turns()

    async def ingest(self, knowledge_base: KnowledgeBase, document: IncomingDocument) -> IngestResult:
        """Raises `KbmeshError`; whatever it raises, and whenever it is cancelled, readers see what they saw before."""
        content = document.checked_content(max_bytes=self._max_document_bytes)
        async with self._turns.take((knowledge_base.id, document.external_id)):
            hashes = await self._hash(knowledge_base, document, content)
            prepared: _Prepared | None = None
            for _ in range(_MAX_ATTEMPTS):
                current = await self._catalog.find_document(knowledge_base.id, document.external_id)
                try:
                    if current is not None and current.fingerprint == hashes.points:
                        return await self._keep_chunks(current, document, hashes)
                    if prepared is None:
                        prepared = await self._prepare(knowledge_base, document, content)
                    return await self._replace(knowledge_base, document, prepared, hashes)
                except Conflict as error:
                    conflict = error
            raise conflict

    async def _hash(self, knowledge_base: KnowledgeBase, document: IncomingDocument, content: str | bytes) -> _Hashes:
        sha256 = await asyncio.to_thread(content_sha256, content)
        return _Hashes(
            content=sha256,
            points=points_fingerprint(
                document,
                content_sha256=sha256,
                knowledge_base=knowledge_base,
                chunker_version=await self._chunker.fingerprint(),
                analyser_fingerprint=self._analyser_fingerprint,
            ),
            description=description_fingerprint(document),
        )

    async def _keep_chunks(self, current: Document, document: IncomingDocument, hashes: _Hashes) -> IngestResult:
        kept = IngestResult(
            external_id=current.external_id,
            document_id=str(current.id),
            outcome="unchanged",
            chunks=current.chunk_count,
        )
        if current.description_fingerprint == hashes.description:
            return kept
        await self._catalog.redescribe(
            replace(
                current,
                title=document.title or current.title,
                uri=document.uri,
                author=document.author,
                created_at=document.created_at,
                description_fingerprint=hashes.description,
            )
        )
        return replace(kept, outcome="changed")

    async def _prepare(
        self, knowledge_base: KnowledgeBase, document: IncomingDocument, content: str | bytes
    ) -> _Prepared:
        chunked = await self._chunker.chunk(
            SourceDocument(
                content=content,
                media_type=document.media_type,
                filename=document.filename,
                source_type=document.source_type,
                metadata=document.metadata,
            ),
            chunking=knowledge_base.chunking,
            embedding_model=knowledge_base.embedding_model,
        )
        wanted = [chunk for chunk in chunked.chunks if not chunk.embedding_excluded]
        vectors: dict[int, NDArray[np.float32]] = {}
        tokens = truncated = 0
        for batch in _batches(wanted):
            embedded = await self._embed(knowledge_base, [chunk.embedded_text for chunk in batch])
            _check(embedded, batch, dimension=knowledge_base.dimension)
            # A failed text is one without anything to read: `_check` lets no other pass.
            for chunk, vector, error in zip(batch, embedded.vectors, embedded.errors, strict=True):
                if error is None:
                    vectors[chunk.index] = vector
            tokens += sum(embedded.tokens)
            truncated += sum(cut > 0 for cut in embedded.tokens_cut)
        unread = [chunk.index for chunk in wanted if chunk.index not in vectors]
        if wanted and not vectors:
            raise EmptyText("document.document")
        return _Prepared(
            chunked=chunked,
            dense=[vectors.get(chunk.index) for chunk in chunked.chunks],
            sparse=await asyncio.to_thread(keyword_vectors, chunked.chunks),
            tokens=tokens,
            truncated=truncated,
            warnings=(*chunked.warnings, *map(_unread, unread[:_MAX_WARNINGS])),
        )

    async def _embed(self, knowledge_base: KnowledgeBase, texts: list[str]) -> Embedded:
        """A full queue is waited for: bulk work is what fills it."""
        for last in [*[False] * _MAX_QUEUE_RETRIES, True]:
            try:
                return await self._embedder.embed(
                    texts,
                    model=knowledge_base.embedding_model,
                    expected_fingerprint=knowledge_base.model_fingerprint,
                    input_type="document",
                    priority="bulk",
                )
            except QueueFull as error:
                if last:
                    raise
                await self._sleep(min(max(error.retry_after_seconds or 1.0, 0.05), _MAX_RETRY_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    async def _replace(
        self, knowledge_base: KnowledgeBase, document: IncomingDocument, prepared: _Prepared, hashes: _Hashes
    ) -> IngestResult:
        reservation = await self._catalog.reserve_generation(knowledge_base.id, document.external_id)
        chunked = prepared.chunked
        try:
            points = await asyncio.to_thread(
                build_points, knowledge_base, reservation, document, chunked, prepared.dense, prepared.sparse
            )
            await self._store.upsert(knowledge_base.collection, points)
            await self._catalog.publish(
                reservation,
                Document(
                    id=reservation.document_id,
                    knowledge_base_id=knowledge_base.id,
                    external_id=document.external_id,
                    title=document.title or chunked.title.replace("\0", ""),
                    uri=document.uri,
                    source_type=chunked.source_type or document.source_type,
                    media_type=chunked.media_type or document.media_type,
                    author=document.author,
                    created_at=document.created_at,
                    ingested_at=self._now(),
                    content_sha256=hashes.content,
                    fingerprint=hashes.points,
                    description_fingerprint=hashes.description,
                    generation=reservation.generation,
                    chunk_count=len(points),
                    strategy=chunked.strategy,
                    metadata={**chunked.metadata, **document.metadata},
                ),
            )
        except BaseException as error:
            await self._give_up(knowledge_base, reservation, error)
            raise
        return IngestResult(
            external_id=document.external_id,
            document_id=str(reservation.document_id),
            outcome="new" if reservation.replaces is None else "changed",
            chunks=len(points),
            embedded=sum(point.dense is not None for point in points),
            tokens=prepared.tokens,
            truncated=prepared.truncated,
            warnings=prepared.warnings,
        )

    async def _give_up(self, knowledge_base: KnowledgeBase, reservation: Reservation, cause: BaseException) -> None:
        try:
            if isinstance(cause, Conflict | KnowledgeBaseNotFound):
                # The sweeper may have been here already, and would not come again. Nobody ever saw these points.
                await self._store.delete_generations(
                    knowledge_base.collection,
                    Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id),
                    reservation.document_id,
                    [reservation.generation],
                )
        except KbmeshError:
            logger.warning("points of a version that lost could not be deleted", exc_info=True)
        try:
            await self._catalog.abandon(reservation)
        except KbmeshError:
            logger.warning("a reservation could not be given up; the sweeper will, in time", exc_info=True)


def _batches(chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
    for start in range(0, len(chunks), _TEXTS_A_CALL):
        yield chunks[start : start + _TEXTS_A_CALL]


def _check(embedded: Embedded, chunks: Sequence[Chunk], *, dimension: int) -> None:
    """A document with a chunk that cannot be found by its meaning would have lost it in silence; one without anything
    for the model to read has no meaning to lose."""
    if embedded.vectors.shape != (len(chunks), dimension):
        raise DependencyInvalidResponse(
            "embedder",
            f"the embedder gave vectors of shape {embedded.vectors.shape}, expected was {(len(chunks), dimension)}",
        )
    for chunk, error in zip(chunks, embedded.errors, strict=True):
        if error is not None and error.reason is not Reason.EMPTY_TEXT:
            raise error_for(error.reason, f"chunk {chunk.index}: {error.message}", error.metadata)


def _unread(chunk: int) -> Warned:
    return Warned(
        reason=Reason.EMPTY_TEXT,
        message="a chunk holds nothing that the model can read; it can be found by its words alone",
        metadata={"chunk": str(chunk)},
    )
