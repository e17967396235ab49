"""Takes one document in: cut, embed, write, publish."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kbmesh_rpc.errors import (
    Conflict,
    DocumentEmpty,
    DocumentShrunk,
    KbmeshError,
    KnowledgeBaseNotFound,
)
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, Document, KnowledgeBase, Reservation, narrows
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult, wrong_external_id, wrong_principals
from kbmesh_retriever.ingest.embedding import BulkEmbedding
from kbmesh_retriever.ingest.fingerprint import (
    content_sha256,
    description_fingerprint,
    payload_fingerprint,
    points_fingerprint,
    source_fingerprint,
)
from kbmesh_retriever.ingest.needs import Needs, needs_alone, needs_together
from kbmesh_retriever.ingest.points import build_points, copy_points
from kbmesh_retriever.ingest.preparation import Prepared, cut, prepare, prepared_empty, text_characters
from kbmesh_retriever.ingest.turns import Turns
from kbmesh_retriever.keywords.analyser import ANALYSER_FINGERPRINT
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort
from kbmesh_retriever.stores.port import Scope, VectorStore

logger = get_logger(__name__)

_MAX_ATTEMPTS = 10
_MAX_PUBLICATIONS = 100
"""Of one version. Each that fails is one of somebody else's that went through."""
_OF_NO_DOCUMENT = "refused"
"""In place of the fingerprint of what was sent, where it can never go in: a rebuild waits for another."""
SHRINK_FROM_CHARACTERS = 500
"""A shorter text may lose any part: it is less than the least chunk."""


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
        embed_seconds: float = 120.0,
        analyser_fingerprint: str = ANALYSER_FINGERPRINT,
        now: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`shrink_share`: a document that has less than this share of its characters left counts as a failed read.
        `embed_seconds`: the longest that one call to the embedder may take."""
        self._catalog = catalog
        self._store = store
        self._chunker = chunker
        self._embedding = BulkEmbedding(embedder, call_seconds=embed_seconds, sleep=sleep)
        self._max_document_bytes = max_document_bytes
        self._shrink_share = shrink_share
        self._analyser_fingerprint = analyser_fingerprint
        self._now = now
        self._turns = Turns()

    def needs_together(self, knowledge_base: KnowledgeBase, group: asyncio.TaskGroup) -> Needs:
        """One call for what several documents need at the same time. Ends with `group`."""
        return needs_together(self._catalog, self._store, self._embedding, knowledge_base, group)

    async def ingest(
        self, knowledge_base: KnowledgeBase, document: IncomingDocument, needs: Needs | None = None
    ) -> IngestResult:
        """Raises `KbmeshError`; whatever it raises, and whenever it is cancelled, readers see what they saw before, but
        for those who may not any more."""
        needs = needs or needs_alone(self._catalog, self._store, self._embedding, knowledge_base)
        try:
            content = document.checked_content(max_bytes=self._max_document_bytes)
        except KbmeshError:
            await self._revoke_of_refused(knowledge_base, document, needs)
            raise
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
                await self._revoke(current, document, hashes.source)
            try:
                if current is not None and current.fingerprint == hashes.points:
                    if current.payload_fingerprint == hashes.payload:
                        return await self._keep(current, document, hashes)
                    copied = await self._copy(knowledge_base, current, document, hashes, needs)
                    if copied is not None:
                        return copied
                if prepared is None:
                    prepared = await self._prepare(knowledge_base, current, document, content, hashes, needs)
                else:
                    self._may_replace(current, document, prepared, hashes)
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

    async def _revoke(self, current: Document, document: IncomingDocument, source: str) -> None:
        """Who may not read it any more loses it now: whatever becomes of the rest, and before the store is asked."""
        already = set(current.narrowed_to) == set(document.principals)
        if not already and narrows(current.principals, document.principals):
            await self._catalog.narrow(current, document.principals, source_fingerprint=source)

    async def _revoke_of_refused(self, knowledge_base: KnowledgeBase, document: IncomingDocument, needs: Needs) -> None:
        """The same for a document that is not even looked into, where it says whose it is and who may read it."""
        if not document.principals or wrong_external_id(document.external_id) or wrong_principals(document.principals):
            return
        async with self._turns.take((knowledge_base.id, document.external_id)):
            current = await needs.find(document.external_id)
            if current is not None:
                await self._revoke(current, document, _OF_NO_DOCUMENT)

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
                await self._publish(
                    needs,
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
                    over=lambda now: (
                        now is not None
                        and now.fingerprint == hashes.points
                        and now.payload_fingerprint != hashes.payload
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

    def _may_replace(
        self, current: Document | None, document: IncomingDocument, prepared: Prepared, hashes: _Hashes
    ) -> bool:
        """Whether what was prepared is to take the place of what is there now. Raises DocumentShrunk."""
        if current is None:
            return True
        if prepared.chunked.chunks:
            self._check_shrink(current, document, hashes, prepared.characters)
        return current.fingerprint != hashes.points

    async def _publish(
        self,
        needs: Needs,
        reservation: Reservation,
        published: Document,
        *,
        over: Callable[[Document | None], bool],
    ) -> Reservation:
        """Publishes what is written. Where another version has become current meanwhile it goes on top of that one, if
        `over` lets it: nothing is written again, so that a slow writer is not overtaken for ever by fast ones. Gives
        the reservation with what it has replaced. Raises Conflict where it must begin anew."""
        conflict: Conflict | None = None
        for _ in range(_MAX_PUBLICATIONS):
            try:
                await needs.publish(reservation, published)
                return reservation
            except Conflict as error:
                conflict = error
            current = await needs.find(published.external_id)
            now = None if current is None else current.generation
            # Where nothing else has become current the reservation was given up, and its points may be gone.
            if now == reservation.replaces or not over(current):
                break
            reservation = replace(reservation, replaces=now)
        assert conflict is not None
        raise conflict

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
            reservation = await self._publish(
                needs,
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
                over=lambda now: self._may_replace(now, document, prepared, hashes),
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
