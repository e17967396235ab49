"""Takes one document in: cut, embed, write, publish."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kbmesh_rpc.errors import (
    Conflict,
    DeadlineExceeded,
    DependencyUnavailable,
    DocumentEmpty,
    DocumentShrunk,
    KbmeshError,
    KnowledgeBaseNotFound,
)
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, Document, KnowledgeBase, Reservation, narrows
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.embedding import TEXTS_A_CALL, BulkEmbedding
from kbmesh_retriever.ingest.fingerprint import (
    content_sha256,
    description_fingerprint,
    payload_fingerprint,
    points_fingerprint,
    source_fingerprint,
)
from kbmesh_retriever.ingest.packing import Packer
from kbmesh_retriever.ingest.points import build_points, copy_points
from kbmesh_retriever.ingest.preparation import Prepared, cut, prepare, prepared_empty, text_characters
from kbmesh_retriever.ingest.turns import Turns
from kbmesh_retriever.keywords.analyser import ANALYSER_FINGERPRINT
from kbmesh_retriever.mesh.port import ChunkerPort, Embedded, EmbedderPort
from kbmesh_retriever.stores.port import Point, Scope, VectorStore

logger = get_logger(__name__)

_MAX_ATTEMPTS = 10
_LOOKUPS_A_CALL = 256
_EMBED_CALLS = 2
"""At once for one stream: while one is answered, the embedder has the next."""
_DOCUMENTS_A_TRANSACTION = 64
_POINTS_A_WRITE = 100
_WRITES = 2
SHRINK_FROM_CHARACTERS = 500
"""A shorter text may lose any part: it is less than the least chunk."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What taking a document in asks of others, for one knowledge base: alone, or together with its stream's others."""

    find: Callable[[str], Awaitable[Document | None]]
    """The document of an external id."""
    embed: Callable[[Sequence[str]], Awaitable[Embedded]]
    reserve: Callable[[str], Awaitable[Reservation]]
    write: Callable[[Sequence[Point]], Awaitable[None]]
    publish: Callable[[Reservation, Document], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class _Hashes:
    content: bytes
    source: str
    points: str
    payload: str
    description: str


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
        shrink_share: float = 0.2,
        analyser_fingerprint: str = ANALYSER_FINGERPRINT,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`shrink_share`: a document that has less than this share of its characters left counts as a failed read."""
        self._catalog = catalog
        self._store = store
        self._chunker = chunker
        self._embedding = BulkEmbedding(embedder, sleep=sleep)
        self._max_document_bytes = max_document_bytes
        self._shrink_share = shrink_share
        self._analyser_fingerprint = analyser_fingerprint
        self._now = now
        self._turns = Turns()

    def needs_alone(self, knowledge_base: KnowledgeBase) -> Needs:
        """A call for each need of each document."""

        async def embed(texts: Sequence[str]) -> Embedded:
            [answer] = await self._embedding.embed(knowledge_base, [texts])
            if isinstance(answer, KbmeshError):
                raise answer
            return answer

        return Needs(
            find=lambda external_id: self._catalog.find_document(knowledge_base.id, external_id),
            embed=embed,
            reserve=lambda external_id: self._catalog.reserve_generation(knowledge_base.id, external_id),
            write=lambda points: self._store.upsert(knowledge_base.collection, points),
            publish=self._catalog.publish,
        )

    def needs_together(self, knowledge_base: KnowledgeBase, group: asyncio.TaskGroup) -> Needs:
        """One call for what several documents need at the same time. Ends with `group`."""

        async def find(external_ids: Sequence[str]) -> Sequence[Document | None]:
            found = await self._catalog.find_documents(knowledge_base.id, set(external_ids))
            return [found.get(external_id) for external_id in external_ids]

        async def embed(documents: Sequence[Sequence[str]]) -> Sequence[Embedded | KbmeshError]:
            return await self._embedding.embed(knowledge_base, documents)

        async def reserve(external_ids: Sequence[str]) -> Sequence[Reservation]:
            if len(external_ids) == 1:
                return [await self._catalog.reserve_generation(knowledge_base.id, external_ids[0])]
            return await self._catalog.reserve_generations(knowledge_base.id, external_ids)

        async def write(documents: Sequence[Sequence[Point]]) -> Sequence[KbmeshError | None]:
            try:
                await self._store.upsert(knowledge_base.collection, [point for each in documents for point in each])
            except KbmeshError as error:
                if len(documents) == 1 or isinstance(error, DependencyUnavailable | DeadlineExceeded):
                    return [error] * len(documents)
                return [answer for each in documents for answer in await write([each])]
            return [None] * len(documents)

        async def publish(published: Sequence[tuple[Reservation, Document]]) -> Sequence[KbmeshError | None]:
            if len(published) == 1:
                await self._catalog.publish(*published[0])
                return [None]
            return await self._catalog.publish_together(knowledge_base.id, published)

        finding = Packer[str, Document | None](find, group, max_weight=_LOOKUPS_A_CALL)
        embedding = Packer[Sequence[str], Embedded](embed, group, max_weight=TEXTS_A_CALL, in_flight=_EMBED_CALLS)
        reserving = Packer[str, Reservation](reserve, group, max_weight=_DOCUMENTS_A_TRANSACTION)
        writing = Packer[Sequence[Point], None](write, group, max_weight=_POINTS_A_WRITE, in_flight=_WRITES)
        publishing = Packer[tuple[Reservation, Document], None](publish, group, max_weight=_DOCUMENTS_A_TRANSACTION)
        return Needs(
            find=finding.ask,
            embed=lambda texts: embedding.ask(texts, weight=len(texts)),
            reserve=reserving.ask,
            write=lambda points: writing.ask(points, weight=len(points)),
            publish=lambda reservation, document: publishing.ask((reservation, document)),
        )

    async def ingest(
        self, knowledge_base: KnowledgeBase, document: IncomingDocument, needs: Needs | None = None
    ) -> IngestResult:
        """Raises `KbmeshError`; whatever it raises, and whenever it is cancelled, readers see what they saw before."""
        content = document.checked_content(max_bytes=self._max_document_bytes)
        needs = needs or self.needs_alone(knowledge_base)
        async with self._turns.take((knowledge_base.id, document.external_id)):
            hashes = await self._hash(knowledge_base, document, content)
            result = await self._ingest(knowledge_base, document, content, hashes, needs)
            return replace(result, content_sha256=hashes.content)

    async def _ingest(
        self,
        knowledge_base: KnowledgeBase,
        document: IncomingDocument,
        content: str | bytes,
        hashes: _Hashes,
        needs: Needs,
    ) -> IngestResult:
        prepared: Prepared | None = None
        for _ in range(_MAX_ATTEMPTS):
            current = await needs.find(document.external_id)
            if current is not None:
                await self._revoke(current, document, hashes)
            try:
                if current is not None and current.fingerprint == hashes.points:
                    if current.payload_fingerprint == hashes.payload:
                        return await self._keep(current, document, hashes)
                    copied = await self._copy(knowledge_base, current, document, hashes, needs)
                    if copied is not None:
                        return copied
                if prepared is None:
                    prepared = await self._prepare(knowledge_base, current, document, content, hashes, needs)
                elif current is not None and prepared.chunked.chunks:
                    self._check_shrink(current, document, hashes, prepared.characters)
                return await self._replace(knowledge_base, document, prepared, hashes, needs)
            except Conflict as error:
                conflict = error
        raise conflict

    async def _hash(self, knowledge_base: KnowledgeBase, document: IncomingDocument, content: str | bytes) -> _Hashes:
        large = len(content) > 65_536
        sha256 = await asyncio.to_thread(content_sha256, content) if large else content_sha256(content)
        return _Hashes(
            content=sha256,
            source=source_fingerprint(document, content_sha256=sha256),
            points=points_fingerprint(
                document,
                content_sha256=sha256,
                knowledge_base=knowledge_base,
                chunker_version=await self._chunker.fingerprint(),
                analyser_fingerprint=self._analyser_fingerprint,
            ),
            payload=payload_fingerprint(document),
            description=description_fingerprint(document),
        )

    async def _revoke(self, current: Document, document: IncomingDocument, hashes: _Hashes) -> None:
        """Who may not read it any more loses it now: whatever becomes of the rest, and before the store is asked."""
        already = set(current.narrowed_to) == set(document.principals)
        if not already and narrows(current.principals, document.principals):
            await self._catalog.narrow(current, document.principals, source_fingerprint=hashes.source)

    async def _keep(self, current: Document, document: IncomingDocument, hashes: _Hashes) -> IngestResult:
        """Chunks and payload are what they should be; what the catalog alone has of the document may not be."""
        kept = IngestResult(
            external_id=current.external_id,
            document_id=str(current.id),
            outcome="unchanged",
            chunks=current.chunk_count,
        )
        if current.description_fingerprint == hashes.description and not current.narrowed_to:
            return kept
        await self._catalog.redescribe(replace(current, **_description(document, hashes, current.title)))
        return replace(kept, outcome="changed")

    async def _copy(
        self,
        knowledge_base: KnowledgeBase,
        current: Document,
        document: IncomingDocument,
        hashes: _Hashes,
        needs: Needs,
    ) -> IngestResult | None:
        """Only what lies beside the vectors has changed: they are copied as a new generation, within the store, so that
        a reader sees all chunks as they were or all as they are. None where the store does not have them all."""
        reservation = await needs.reserve(document.external_id)
        copied = 0
        try:
            if reservation.replaces != current.generation:
                raise Conflict(f"documents/{current.id}", "another version was published meanwhile")
            scope = Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id)
            async for page in self._store.read_generation(
                knowledge_base.collection, scope, current.id, current.generation
            ):
                await needs.write(
                    copy_points(
                        page,
                        reservation=reservation,
                        knowledge_base=knowledge_base,
                        given_before=current.given_metadata,
                        document=document,
                    )
                )
                copied += len(page)
            if copied == current.chunk_count:
                await needs.publish(
                    reservation,
                    replace(
                        current,
                        metadata={**current.found_metadata, **document.metadata},
                        given_metadata=document.metadata,
                        payload_fingerprint=hashes.payload,
                        tags=document.tags,
                        principals=document.principals,
                        generation=reservation.generation,
                        ingested_at=self._now(),
                        **_description(document, hashes, current.title),
                    ),
                )
        except BaseException as error:
            await self._give_up(knowledge_base, reservation, error)
            raise
        if copied != current.chunk_count:
            logger.warning("the vector store has lost chunks; the document is taken in again")
            await self._give_up(knowledge_base, reservation, None)
            return None
        return IngestResult(
            external_id=document.external_id, document_id=str(current.id), outcome="changed", chunks=copied
        )

    async def _prepare(
        self,
        knowledge_base: KnowledgeBase,
        current: Document | None,
        document: IncomingDocument,
        content: str | bytes,
        hashes: _Hashes,
        needs: Needs,
    ) -> Prepared:
        try:
            if not content:
                raise DocumentEmpty
            chunked = await cut(self._chunker, knowledge_base, document, content)
        except DocumentEmpty:
            if current is None or current.text_characters is None:
                raise
            self._check_shrink(current, document, hashes, 0)
            return prepared_empty(document, current)
        # Where the chunker read it and has nothing to give, the settings leave everything out.
        if current is not None and chunked.chunks:
            self._check_shrink(current, document, hashes, text_characters(chunked))
        return await prepare(chunked, needs.embed)

    def _check_shrink(self, current: Document, document: IncomingDocument, hashes: _Hashes, now: int) -> None:
        """Raises DocumentShrunk for what looks like a source that was read while it was not there."""
        before = current.text_characters or 0
        if document.allow_shrink or not before:
            return
        little = now < before * self._shrink_share and before >= SHRINK_FROM_CHARACTERS
        # Less text in the same content is for the chunker to answer for: nobody's read has failed.
        if now == 0 or (little and current.content_sha256 != hashes.content):
            raise DocumentShrunk(before=before, now=now)

    async def _replace(
        self,
        knowledge_base: KnowledgeBase,
        document: IncomingDocument,
        prepared: Prepared,
        hashes: _Hashes,
        needs: Needs,
    ) -> IngestResult:
        reservation = await needs.reserve(document.external_id)
        chunked = prepared.chunked
        try:
            points = await asyncio.to_thread(
                build_points, knowledge_base, reservation, document, chunked, prepared.dense, prepared.sparse
            )
            if points:
                await needs.write(points)
            await needs.publish(
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
                    payload_fingerprint=hashes.payload,
                    description_fingerprint=hashes.description,
                    source_fingerprint=hashes.source,
                    generation=reservation.generation,
                    chunk_count=len(points),
                    text_characters=prepared.characters,
                    strategy=chunked.strategy,
                    metadata={**chunked.metadata, **document.metadata},
                    found_metadata=chunked.metadata,
                    given_metadata=document.metadata,
                    tags=document.tags,
                    principals=document.principals,
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

    async def _give_up(
        self, knowledge_base: KnowledgeBase, reservation: Reservation, cause: BaseException | None
    ) -> None:
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


def _description(document: IncomingDocument, hashes: _Hashes, found_title: str) -> dict[str, Any]:
    """What the catalog alone has of a document, as it is now."""
    return {
        "title": document.title or found_title,
        "uri": document.uri,
        "author": document.author,
        "created_at": document.created_at,
        "description_fingerprint": hashes.description,
        "source_fingerprint": hashes.source,
        # What is published now says itself who may read it.
        "narrowed_to": (),
    }
