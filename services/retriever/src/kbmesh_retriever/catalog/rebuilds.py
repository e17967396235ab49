"""Rebuilds: a knowledge base's documents taken in anew beside it, for another model or way of chunking.

A rebuild is a knowledge base of its own, with its own id, collection, documents and generations, that no reader finds.
To finish it is to swap two states in one transaction. Who reads the old one may go on until the grace has passed; then
it goes as any deleted knowledge base does.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import Conflict, KnowledgeBaseNotFound, RebuildIncomplete, RebuildNotFound
from sqlalchemy import Select, and_, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.port import KnowledgeBase, RebuildProgress
from kbmesh_retriever.catalog.rows import knowledge_base_of, retrieval_values
from kbmesh_retriever.catalog.tables import (
    DELETED,
    LIVE,
    MAKING,
    REBUILDING,
    documents,
    generations,
    knowledge_bases,
    rebuild_failures,
)

_MAX_FAILURES = 100


class Rebuilds:
    """Rebuilds of knowledge bases, on behalf of `SqlCatalog`."""

    def __init__(self, database: Database, *, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    async def create(self, rebuild: KnowledgeBase, *, of: KnowledgeBase) -> None:
        try:
            async with self._database.writing() as connection:
                await _take(connection, of)
                made = await connection.execute(
                    update(knowledge_bases)
                    .where(knowledge_bases.c.id == rebuild.id, knowledge_bases.c.state == MAKING)
                    .values(state=REBUILDING, rebuild_of=of.id, owner=None, state_since=self._now())
                )
                if made.rowcount != 1:
                    raise Conflict(f"knowledge_bases/{of.public_id}", "it took so long that it was given up")
        except IntegrityError as error:
            raise Conflict(f"knowledge_bases/{of.public_id}", "a rebuild is under way already") from error

    async def find(self, knowledge_base: KnowledgeBase) -> KnowledgeBase | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(_rebuild_of(knowledge_base.id))).mappings().one_or_none()
            return None if row is None else knowledge_base_of(row)

    async def progress(self, knowledge_base: KnowledgeBase, rebuild: KnowledgeBase) -> RebuildProgress:
        async with self._database.reading() as connection:
            total = await _count(connection, _current(knowledge_base.id))
            outstanding = _outstanding(knowledge_base.id, rebuild.id)
            missing = await _count(connection, outstanding)
            failed = (
                select(rebuild_failures.c.external_id, rebuild_failures.c.reason)
                .where(rebuild_failures.c.knowledge_base_id == rebuild.id)
                .where(rebuild_failures.c.external_id.in_(outstanding))
            )
            rows = await connection.execute(failed.order_by(rebuild_failures.c.external_id).limit(_MAX_FAILURES))
            failures = {str(external_id): str(reason) for external_id, reason in rows}
            return RebuildProgress(
                total=total, done=total - missing, failures=failures, failed=await _count(connection, failed)
            )

    async def note_failure(self, knowledge_base_id: UUID, external_id: str, reason: str) -> None:
        if not external_id or len(external_id) > 1024 or len(external_id.encode()) > 2048 or "\0" in external_id:
            # No document has such a name: none of the old ones can be outstanding for it.
            return
        async with self._database.writing() as connection:
            state = await connection.scalar(
                select(knowledge_bases.c.state).where(knowledge_bases.c.id == knowledge_base_id).with_for_update()
            )
            if state != REBUILDING:
                return
            await _clear_failure(connection, knowledge_base_id, external_id)
            await connection.execute(
                insert(rebuild_failures).values(
                    knowledge_base_id=knowledge_base_id, external_id=external_id, reason=reason
                )
            )

    async def finish(self, knowledge_base: KnowledgeBase, *, drop_outstanding: bool) -> tuple[KnowledgeBase, int]:
        async with self._database.writing() as connection:
            replaced = await _take(connection, knowledge_base)
            row = (await connection.execute(_rebuild_of(knowledge_base.id).with_for_update())).mappings().one_or_none()
            if row is None:
                raise RebuildNotFound(knowledge_base.name)
            rebuild = knowledge_base_of(row)
            missing = await _count(connection, _outstanding(knowledge_base.id, rebuild.id))
            if missing and not drop_outstanding:
                raise RebuildIncomplete(knowledge_base.name, outstanding=missing)
            now = self._now()
            await connection.execute(
                update(knowledge_bases)
                .where(knowledge_bases.c.id == knowledge_base.id)
                .values(state=DELETED, state_since=now)
            )
            rows = await connection.execute(
                update(knowledge_bases)
                .where(knowledge_bases.c.id == rebuild.id)
                .values(
                    state=LIVE,
                    rebuild_of=None,
                    state_since=now,
                    # What was changed while it was under way stays changed.
                    description=replaced.description,
                    readers=list(replaced.readers),
                    **retrieval_values(replaced.retrieval),
                    # Callers see it grow, as with any other change.
                    generation=max(replaced.generation, rebuild.generation) + 1,
                    created_at=replaced.created_at,
                    updated_at=now,
                )
                .returning(*knowledge_bases.c)
            )
            await connection.execute(delete(rebuild_failures).where(rebuild_failures.c.knowledge_base_id == rebuild.id))
            return knowledge_base_of(rows.mappings().one()), missing

    async def cancel(self, knowledge_base: KnowledgeBase) -> None:
        async with self._database.writing() as connection:
            await _take(connection, knowledge_base)
            if not await end_rebuild(connection, knowledge_base.id, self._now()):
                raise RebuildNotFound(knowledge_base.name)


async def end_rebuild(connection: AsyncConnection, knowledge_base_id: UUID, now: datetime) -> bool:
    """Gives up the rebuild of a knowledge base, and tells whether there was one."""
    ended = await connection.execute(
        update(knowledge_bases)
        .where(knowledge_bases.c.rebuild_of == knowledge_base_id, knowledge_bases.c.state == REBUILDING)
        .values(state=DELETED, state_since=now)
    )
    return ended.rowcount == 1


async def rebuild_id(connection: AsyncConnection, knowledge_base_id: UUID) -> UUID | None:
    """The rebuild of a knowledge base, taken until the transaction ends."""
    found: UUID | None = await connection.scalar(
        select(knowledge_bases.c.id)
        .where(knowledge_bases.c.rebuild_of == knowledge_base_id, knowledge_bases.c.state == REBUILDING)
        .with_for_update()
    )
    return found


async def _clear_failure(connection: AsyncConnection, knowledge_base_id: UUID, external_id: str) -> None:
    await connection.execute(
        delete(rebuild_failures).where(
            rebuild_failures.c.knowledge_base_id == knowledge_base_id, rebuild_failures.c.external_id == external_id
        )
    )


async def _take(connection: AsyncConnection, knowledge_base: KnowledgeBase) -> KnowledgeBase:
    """The knowledge base as it is now; nobody else publishes to it until the transaction ends."""
    rows = await connection.execute(
        select(knowledge_bases)
        .where(knowledge_bases.c.id == knowledge_base.id, knowledge_bases.c.state == LIVE)
        .with_for_update()
    )
    row = rows.mappings().one_or_none()
    if row is None:
        raise KnowledgeBaseNotFound(knowledge_base.name)
    return knowledge_base_of(row)


def _rebuild_of(knowledge_base_id: UUID) -> Select[Any]:
    return select(knowledge_bases).where(
        knowledge_bases.c.rebuild_of == knowledge_base_id, knowledge_bases.c.state == REBUILDING
    )


def _current(knowledge_base_id: UUID) -> Select[Any]:
    return select(documents.c.external_id).where(
        documents.c.knowledge_base_id == knowledge_base_id, documents.c.current_generation.is_not(None)
    )


def _outstanding(knowledge_base_id: UUID, rebuild_id: UUID) -> Select[Any]:
    """External ids of what is current in the one and not, or not as it was last sent, in the other."""
    there, there_version = documents.alias(), generations.alias()
    here, here_version = documents, generations
    same_source = and_(
        func.coalesce(here_version.c.source_fingerprint, "") != "",
        here_version.c.source_fingerprint == there_version.c.source_fingerprint,
    )
    # Taken in by a version of kbmesh that did not know the fingerprint: its content has to do.
    same_content = and_(
        func.coalesce(here_version.c.source_fingerprint, "") == "",
        here_version.c.content_sha256 == there_version.c.content_sha256,
    )
    done = (
        exists()
        .where(
            there.c.knowledge_base_id == rebuild_id,
            there.c.external_id == here.c.external_id,
            there_version.c.document_id == there.c.id,
            there_version.c.number == there.c.current_generation,
            same_source | same_content,
        )
        .correlate(here, here_version)
    )
    return (
        select(here.c.external_id)
        .join(
            here_version,
            and_(here_version.c.document_id == here.c.id, here_version.c.number == here.c.current_generation),
        )
        .where(here.c.knowledge_base_id == knowledge_base_id, ~done)
    )


async def _count(connection: AsyncConnection, rows: Select[Any]) -> int:
    counted: int | None = await connection.scalar(select(func.count()).select_from(rows.subquery()))
    return counted or 0
