"""Generations of many documents of one knowledge base in one transaction: as `generations` does it for one.

A transaction has its price, on SQLite that of a disk's sync, whatever it holds. All that is published together has one
value of the knowledge base's counter: a reader sees all of it or nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import Conflict, KnowledgeBaseNotFound
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.port import Document, Reservation
from kbmesh_retriever.catalog.rows import document_values
from kbmesh_retriever.catalog.tables import (
    CURRENT,
    LIVE,
    REBUILDING,
    RESERVED,
    SUPERSEDED,
    documents,
    generations,
    knowledge_bases,
    rebuild_failures,
)

_OPEN = knowledge_bases.c.state.in_((LIVE, REBUILDING))


class _Changed(Exception):
    """Something that was read is no longer so: the transaction is given up."""


class GenerationBatches:
    """On behalf of `SqlCatalog`. What cannot be done together is left to be done one by one: None."""

    def __init__(
        self, database: Database, *, owner: str, now: Callable[[], datetime], new_id: Callable[[], UUID]
    ) -> None:
        self._database = database
        self._owner = owner
        self._now = now
        self._new_id = new_id

    async def reserve(self, knowledge_base_id: UUID, external_ids: Sequence[str]) -> Sequence[Reservation] | None:
        """A generation for each of these documents, all different. Raises KnowledgeBaseNotFound."""
        try:
            async with self._database.writing() as connection:
                return await self._reserve(connection, knowledge_base_id, external_ids)
        except (IntegrityError, _Changed):
            # Another process made or forgot one of the documents in this moment.
            return None

    async def publish(
        self, knowledge_base_id: UUID, published: Sequence[tuple[Reservation, Document]]
    ) -> Sequence[Conflict | None] | None:
        """Makes them current, each document at most once, but for those where another version has become current.
        Raises KnowledgeBaseNotFound."""
        try:
            async with self._database.writing() as connection:
                return await self._publish(connection, knowledge_base_id, published)
        except _Changed:
            return None

    async def _reserve(
        self, connection: AsyncConnection, knowledge_base_id: UUID, external_ids: Sequence[str]
    ) -> Sequence[Reservation]:
        # Shared with other writers. Whoever deletes the knowledge base waits, and then sees these reservations.
        live = select(knowledge_bases.c.id).where(knowledge_bases.c.id == knowledge_base_id, _OPEN)
        if await connection.scalar(live.with_for_update(read=True)) is None:
            raise KnowledgeBaseNotFound(str(knowledge_base_id))
        named = documents.c.external_id.in_(external_ids)
        ours = documents.c.knowledge_base_id == knowledge_base_id
        known = set(await connection.scalars(select(documents.c.external_id).where(ours, named)))
        if new := sorted(set(external_ids) - known):
            await connection.execute(
                insert(documents),
                [
                    {
                        "id": self._new_id(),
                        "knowledge_base_id": knowledge_base_id,
                        "external_id": external_id,
                        "current_generation": None,
                        "last_generation": 0,
                    }
                    for external_id in new
                ],
            )
        rows = await connection.execute(
            select(
                documents.c.external_id,
                documents.c.id,
                documents.c.last_generation,
                documents.c.current_generation,
            )
            .where(ours, named)
            # In one order, so that two processes never wait for each other.
            .order_by(documents.c.id)
            .with_for_update()
        )
        reservations = {
            external_id: Reservation(
                document_id=document_id,
                knowledge_base_id=knowledge_base_id,
                generation=last + 1,
                replaces=current,
            )
            for external_id, document_id, last, current in rows
        }
        if len(reservations) != len(external_ids):
            # The sweeper of another process has forgotten one of them since.
            raise _Changed
        await connection.execute(
            update(documents)
            .where(documents.c.id.in_([reservation.document_id for reservation in reservations.values()]))
            .values(last_generation=documents.c.last_generation + 1)
        )
        now = self._now()
        await connection.execute(
            insert(generations),
            [
                {
                    "document_id": reservation.document_id,
                    "number": reservation.generation,
                    "knowledge_base_id": knowledge_base_id,
                    "state": RESERVED,
                    "owner": self._owner,
                    "state_since": now,
                }
                for reservation in reservations.values()
            ],
        )
        return [reservations[external_id] for external_id in external_ids]

    async def _publish(
        self,
        connection: AsyncConnection,
        knowledge_base_id: UUID,
        published: Sequence[tuple[Reservation, Document]],
    ) -> Sequence[Conflict | None]:
        # Takes the knowledge base's row: until the end nobody else publishes or deletes in it.
        counter: int | None = await connection.scalar(
            select(knowledge_bases.c.generation)
            .where(knowledge_bases.c.id == knowledge_base_id, _OPEN)
            .with_for_update()
        )
        if counter is None:
            raise KnowledgeBaseNotFound(str(knowledge_base_id))
        counter += 1
        ids = [reservation.document_id for reservation, _ in published]
        rows = await connection.execute(
            select(documents.c.id, documents.c.current_generation).where(documents.c.id.in_(ids))
        )
        current = {row.id: row.current_generation for row in rows}
        won = [
            (reservation, document)
            for reservation, document in published
            if reservation.document_id in current and current[reservation.document_id] == reservation.replaces
        ]
        if won:
            chunks = await self._flip(connection, won, counter)
            await self._count(connection, knowledge_base_id, counter, won, chunks)
        winners = {reservation.document_id for reservation, _ in won}
        return [
            None
            if document_id in winners
            else Conflict(f"documents/{document_id}", "another version was published meanwhile")
            for document_id in ids
        ]

    async def _flip(
        self, connection: AsyncConnection, won: Sequence[tuple[Reservation, Document]], counter: int
    ) -> int:
        """Gives the change in the number of chunks. Raises _Changed where a reservation was given up."""
        now = self._now()
        described: list[dict[str, Any]] = [
            {**document_values(document), "published_counter": counter, "state": CURRENT, "state_since": now}
            for _, document in won
        ]
        numbered = (generations.c.document_id == bindparam("document"), generations.c.number == bindparam("generation"))
        await connection.execute(
            update(generations)
            .where(*numbered, generations.c.state == bindparam("reserved"))
            .values({column: bindparam(f"new_{column}") for column in described[0]}),
            [
                {
                    **{f"new_{column}": value for column, value in values.items()},
                    "document": reservation.document_id,
                    "generation": reservation.generation,
                    "reserved": RESERVED,
                }
                for (reservation, _), values in zip(won, described, strict=True)
            ],
        )
        ids = [reservation.document_id for reservation, _ in won]
        mine = generations.c.document_id.in_(ids)
        rows = await connection.execute(
            select(generations.c.document_id).where(mine, generations.c.published_counter == counter)
        )
        if len(rows.all()) != len(won):
            raise _Changed
        await connection.execute(
            update(documents)
            .where(documents.c.id == bindparam("document"))
            .values(current_generation=bindparam("generation")),
            [{"document": one.document_id, "generation": one.generation} for one, _ in won],
        )
        replaced = [one for one, _ in won if one.replaces is not None]
        chunks = sum(document.chunk_count for _, document in won)
        if not replaced:
            return chunks
        await connection.execute(
            update(generations).where(*numbered).values(state=SUPERSEDED, superseded_counter=counter, state_since=now),
            [{"document": one.document_id, "generation": one.replaces} for one in replaced],
        )
        counts = await connection.scalars(
            select(generations.c.chunk_count).where(mine, generations.c.superseded_counter == counter)
        )
        return chunks - sum(count or 0 for count in counts)

    async def _count(
        self,
        connection: AsyncConnection,
        knowledge_base_id: UUID,
        counter: int,
        won: Sequence[tuple[Reservation, Document]],
        chunks: int,
    ) -> None:
        await connection.execute(
            update(knowledge_bases)
            .where(knowledge_bases.c.id == knowledge_base_id)
            .values(
                generation=counter,
                document_count=knowledge_bases.c.document_count + sum(one.replaces is None for one, _ in won),
                chunk_count=knowledge_bases.c.chunk_count + chunks,
                updated_at=self._now(),
            )
        )
        await connection.execute(
            delete(rebuild_failures).where(
                rebuild_failures.c.knowledge_base_id == knowledge_base_id,
                rebuild_failures.c.external_id.in_([document.external_id for _, document in won]),
            )
        )
