"""The generations of documents: how they come, are seen, and go.

A generation is reserved before its chunks are written, becomes current in one transaction that counts up the knowledge
base's counter, and ends at a later value of that counter. A reader who took the counter before it began sees a
generation where `published_counter <= counter < superseded_counter`. No clock is asked.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import Conflict, DependencyUnavailable, DocumentNotFound, KnowledgeBaseNotFound
from sqlalchemy import RowMapping, Select, and_, delete, exists, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.port import Document, Reservation, Superseded, narrows
from kbmesh_retriever.catalog.rebuilds import rebuild_id
from kbmesh_retriever.catalog.rows import (
    DOCUMENT_COLUMNS,
    description_values,
    document_of,
    document_values,
    knowledge_base_of,
    uuid_or_none,
)
from kbmesh_retriever.catalog.tables import (
    ABANDONED,
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

_MAX_PARAMETERS = 10_000
"""A statement may have some 32,000, in SQLite as in PostgreSQL."""

_OPEN = knowledge_bases.c.state.in_((LIVE, REBUILDING))
"""What documents may be taken into. Readers find LIVE ones alone, but look their documents up by id."""


class Generations:
    """Documents and their generations, on behalf of `SqlCatalog`."""

    def __init__(
        self, database: Database, *, owner: str, now: Callable[[], datetime], new_id: Callable[[], UUID]
    ) -> None:
        self._database = database
        self._owner = owner
        self._now = now
        self._new_id = new_id
        self._to_abandon: deque[tuple[Reservation, datetime]] = deque()
        """What could not be given up while the database was away, and since when it was to be."""

    async def find(self, knowledge_base_id: UUID, external_id: str) -> Document | None:
        return (await self.find_many(knowledge_base_id, [external_id])).get(external_id)

    async def find_many(self, knowledge_base_id: UUID, external_ids: Collection[str]) -> Mapping[str, Document]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                _current(knowledge_base_id)
                .join(knowledge_bases, knowledge_bases.c.id == documents.c.knowledge_base_id)
                .where(documents.c.external_id.in_(external_ids), _OPEN)
            )
            return {row["external_id"]: document_of(row) for row in rows.mappings()}

    async def get(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        async with self._database.reading() as connection:
            return await _get(connection, knowledge_base_id, id_or_external_id)

    async def list(self, knowledge_base_id: UUID, *, limit: int, after: str) -> Sequence[Document]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                _current(knowledge_base_id)
                .where(documents.c.external_id > after)
                .order_by(documents.c.external_id)
                .limit(limit)
            )
            return [document_of(row) for row in rows.mappings()]

    async def reserve(self, knowledge_base_id: UUID, external_id: str) -> Reservation:
        async with self._database.writing() as connection:
            # Shared with other writers. Whoever deletes the knowledge base waits, and then sees this reservation.
            live = (
                select(knowledge_bases.c.id)
                .where(knowledge_bases.c.id == knowledge_base_id, _OPEN)
                .with_for_update(read=True)
            )
            if await connection.scalar(live) is None:
                raise KnowledgeBaseNotFound(str(knowledge_base_id))
            document_id, number, current = await self._next_number(connection, knowledge_base_id, external_id)
            await connection.execute(
                insert(generations).values(
                    document_id=document_id,
                    number=number,
                    knowledge_base_id=knowledge_base_id,
                    state=RESERVED,
                    owner=self._owner,
                    state_since=self._now(),
                )
            )
            return Reservation(
                document_id=document_id, knowledge_base_id=knowledge_base_id, generation=number, replaces=current
            )

    async def publish(self, reservation: Reservation, document: Document) -> None:
        async with self._database.writing() as connection:
            counter = await _next_counter(connection, reservation.knowledge_base_id)
            replaced = await connection.execute(
                update(documents)
                .where(
                    documents.c.id == reservation.document_id,
                    documents.c.current_generation.is_not_distinct_from(reservation.replaces),
                )
                .values(current_generation=reservation.generation)
            )
            if replaced.rowcount != 1:
                raise Conflict(f"documents/{reservation.document_id}", "another version was published meanwhile")
            published = await connection.execute(
                update(generations)
                .where(_numbered(reservation.document_id, reservation.generation), generations.c.state == RESERVED)
                .values(**document_values(document), state=CURRENT, published_counter=counter, state_since=self._now())
            )
            if published.rowcount != 1:
                raise Conflict(f"documents/{reservation.document_id}", "it took so long that it was given up")
            chunks = document.chunk_count
            if reservation.replaces is not None:
                chunks -= await self._end(connection, reservation.document_id, reservation.replaces, counter)
            await self._count(
                connection,
                reservation.knowledge_base_id,
                counter,
                documents=1 if reservation.replaces is None else 0,
                chunks=chunks,
            )
            await connection.execute(
                delete(rebuild_failures).where(
                    rebuild_failures.c.knowledge_base_id == reservation.knowledge_base_id,
                    rebuild_failures.c.external_id == document.external_id,
                )
            )

    async def redescribe(self, document: Document) -> None:
        async with self._database.writing() as connection:
            counter = await _next_counter(connection, document.knowledge_base_id)
            described = await connection.execute(
                update(generations)
                .where(_numbered(document.id, document.generation), generations.c.state == CURRENT)
                .values(**description_values(document))
            )
            if described.rowcount != 1:
                raise Conflict(f"documents/{document.id}", "another version was published meanwhile")
            await self._count(connection, document.knowledge_base_id, counter, documents=0, chunks=0)

    async def narrow(self, document: Document, principals: Sequence[str], *, source_fingerprint: str) -> None:
        async with self._database.writing() as connection:
            counter = await _next_counter(connection, document.knowledge_base_id)
            await _narrow(connection, document.id, principals)
            # Only what the caller sends now may take its place in a rebuild.
            await connection.execute(
                update(generations)
                .where(_numbered(document.id, document.generation), generations.c.state == CURRENT)
                .values(source_fingerprint=source_fingerprint)
            )
            await self._count(connection, document.knowledge_base_id, counter, documents=0, chunks=0)
            # Nor may a rebuild give it back to whom it was taken from.
            if (rebuild := await rebuild_id(connection, document.knowledge_base_id)) is not None:
                there = _current(rebuild).where(documents.c.external_id == document.external_id)
                row = (await connection.execute(there)).mappings().one_or_none()
                if row is not None and narrows(document_of(row).principals, principals):
                    await _narrow(connection, row["document_id"], principals)

    async def abandon(self, reservation: Reservation) -> None:
        now = self._now()
        try:
            await self._abandon(reservation, now)
        except DependencyUnavailable:
            # This process lives on, so nobody else would take it for given up before its time is over.
            self._to_abandon.append((reservation, now))
            raise

    async def _abandon(self, reservation: Reservation, since: datetime) -> None:
        async with self._database.writing() as connection:
            await connection.execute(
                update(generations)
                .where(_numbered(reservation.document_id, reservation.generation), generations.c.state == RESERVED)
                .values(state=ABANDONED, state_since=since)
            )

    async def delete(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        async with self._database.writing() as connection:
            counter = await _next_counter(connection, knowledge_base_id)
            document = await _get(connection, knowledge_base_id, id_or_external_id)
            await self._delete(connection, document, counter)
            # A rebuild must not bring it back.
            if (rebuild := await rebuild_id(connection, knowledge_base_id)) is not None:
                there = _current(rebuild).where(documents.c.external_id == document.external_id)
                row = (await connection.execute(there)).mappings().one_or_none()
                if row is not None:
                    await self._delete(connection, document_of(row), await _next_counter(connection, rebuild))
            return document

    async def _delete(self, connection: AsyncConnection, document: Document, counter: int) -> None:
        await connection.execute(update(documents).where(documents.c.id == document.id).values(current_generation=None))
        chunks = await self._end(connection, document.id, document.generation, counter)
        await self._count(connection, document.knowledge_base_id, counter, documents=-1, chunks=-chunks)

    async def valid(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        wanted = set(hits)
        ids = sorted({document_id for document_id, _ in wanted})
        numbers = sorted({number for _, number in wanted})
        answer: dict[tuple[UUID, int], Document] = {}
        if not wanted or not as_of:
            return answer
        async with self._database.reading() as connection:
            for start in range(0, len(ids), _MAX_PARAMETERS):
                rows = await connection.execute(
                    select(*DOCUMENT_COLUMNS)
                    .join_from(generations, documents, generations.c.document_id == documents.c.id)
                    .where(
                        generations.c.document_id.in_(ids[start : start + _MAX_PARAMETERS]),
                        # Together these may name more than was asked for; a document taken in often has many.
                        generations.c.number.in_(numbers),
                        generations.c.published_counter.is_not(None),
                    )
                )
                for row in rows.mappings():
                    pair = (row["document_id"], row["number"])
                    counter = as_of.get(row["knowledge_base_id"])
                    if pair in wanted and counter is not None and _was_current(row, counter):
                        answer[pair] = document_of(row)
        return answer

    async def due(self, *, older_than_seconds: float, limit: int) -> Sequence[Superseded]:
        while self._to_abandon:
            given_up = self._to_abandon.popleft()
            try:
                await self._abandon(*given_up)
            except DependencyUnavailable:
                self._to_abandon.append(given_up)
                raise
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(
                    generations.c.document_id,
                    generations.c.number,
                    *(column for column in knowledge_bases.c),
                )
                .join_from(generations, knowledge_bases, generations.c.knowledge_base_id == knowledge_bases.c.id)
                .where(
                    generations.c.state.in_((SUPERSEDED, ABANDONED)),
                    generations.c.state_since <= self._now() - timedelta(seconds=older_than_seconds),
                    # A deleted knowledge base goes as a whole.
                    _OPEN,
                )
                .order_by(generations.c.state_since, generations.c.document_id, generations.c.number)
                .limit(limit)
            )
            return [
                Superseded(
                    knowledge_base=knowledge_base_of(row), document_id=row["document_id"], generation=row["number"]
                )
                for row in rows.mappings()
            ]

    async def forget(self, superseded: Superseded) -> None:
        document_id = superseded.document_id
        async with self._database.writing() as connection:
            await connection.execute(
                delete(generations).where(
                    _numbered(document_id, superseded.generation), generations.c.state.in_((SUPERSEDED, ABANDONED))
                )
            )
            # `last_generation` in the condition: a reservation made meanwhile has counted it up.
            last = await connection.scalar(select(documents.c.last_generation).where(documents.c.id == document_id))
            await connection.execute(
                delete(documents).where(
                    documents.c.id == document_id,
                    documents.c.last_generation == last,
                    documents.c.current_generation.is_(None),
                    ~exists().where(generations.c.document_id == document_id),
                )
            )

    async def _next_number(
        self, connection: AsyncConnection, knowledge_base_id: UUID, external_id: str
    ) -> tuple[UUID, int, int | None]:
        """The document's id, its next generation, and its current one."""
        while True:
            document_id = await self._document_id(connection, knowledge_base_id, external_id)
            rows = await connection.execute(
                update(documents)
                .where(documents.c.id == document_id)
                .values(last_generation=documents.c.last_generation + 1)
                .returning(documents.c.last_generation, documents.c.current_generation)
            )
            # None where the sweeper of another process has forgotten it since: then it is made anew.
            if (row := rows.one_or_none()) is not None:
                number, current = row
                return document_id, number, current

    async def _document_id(self, connection: AsyncConnection, knowledge_base_id: UUID, external_id: str) -> UUID:
        known = select(documents.c.id).where(
            documents.c.knowledge_base_id == knowledge_base_id, documents.c.external_id == external_id
        )
        document_id: UUID | None = await connection.scalar(known)
        if document_id is not None:
            return document_id
        try:
            async with connection.begin_nested():
                document_id = self._new_id()
                await connection.execute(
                    insert(documents).values(
                        id=document_id,
                        knowledge_base_id=knowledge_base_id,
                        external_id=external_id,
                        current_generation=None,
                        last_generation=0,
                    )
                )
                return document_id
        except IntegrityError:
            # Another process made it in this moment.
            made: UUID | None = (await connection.execute(known)).scalar_one_or_none()
            return made or self._new_id()

    async def _end(self, connection: AsyncConnection, document_id: UUID, number: int, counter: int) -> int:
        """Ends the current generation, and tells how many chunks it had."""
        rows = await connection.execute(
            update(generations)
            .where(_numbered(document_id, number))
            .values(state=SUPERSEDED, superseded_counter=counter, state_since=self._now())
            .returning(generations.c.chunk_count)
        )
        chunks: int = rows.scalar_one()
        return chunks

    # `documents` and `chunks` are changes.
    async def _count(
        self, connection: AsyncConnection, knowledge_base_id: UUID, counter: int, *, documents: int, chunks: int
    ) -> None:
        await connection.execute(
            update(knowledge_bases)
            .where(knowledge_bases.c.id == knowledge_base_id)
            .values(
                generation=counter,
                document_count=knowledge_bases.c.document_count + documents,
                chunk_count=knowledge_bases.c.chunk_count + chunks,
                updated_at=self._now(),
            )
        )


def _current(knowledge_base_id: UUID) -> Select[Any]:
    return (
        select(*DOCUMENT_COLUMNS)
        .select_from(documents)
        .join(
            generations,
            and_(generations.c.document_id == documents.c.id, generations.c.number == documents.c.current_generation),
        )
        .where(documents.c.knowledge_base_id == knowledge_base_id)
    )


async def _narrow(connection: AsyncConnection, document_id: UUID, principals: Sequence[str]) -> None:
    """In every version that somebody may be reading."""
    await connection.execute(
        update(generations)
        .where(generations.c.document_id == document_id, generations.c.published_counter.is_not(None))
        .values(narrowed_to=list(principals))
    )


def _numbered(document_id: UUID, number: int) -> Any:
    return and_(generations.c.document_id == document_id, generations.c.number == number)


async def _get(connection: AsyncConnection, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
    """By id, or else by external id: who names an id got it from kbmesh, and must not reach another document that
    somebody named like it. That holds of a deleted document too, until it is forgotten: a delete may be repeated."""
    named = documents.c.external_id == id_or_external_id
    if (document_id := uuid_or_none(id_or_external_id)) is not None:
        by_id = documents.c.id == document_id
        if await connection.scalar(exists().where(by_id, documents.c.knowledge_base_id == knowledge_base_id).select()):
            named = by_id
    rows = await connection.execute(_current(knowledge_base_id).where(named))
    row = rows.mappings().one_or_none()
    if row is None:
        raise DocumentNotFound(knowledge_base=str(knowledge_base_id), document=id_or_external_id)
    return document_of(row)


async def _next_counter(connection: AsyncConnection, knowledge_base_id: UUID) -> int:
    """Takes the knowledge base's row until the transaction ends: counters become visible in their order."""
    counter: int | None = await connection.scalar(
        select(knowledge_bases.c.generation).where(knowledge_bases.c.id == knowledge_base_id, _OPEN).with_for_update()
    )
    if counter is None:
        raise KnowledgeBaseNotFound(str(knowledge_base_id))
    return counter + 1


def _was_current(row: RowMapping, counter: int) -> bool:
    superseded = row["superseded_counter"]
    return row["published_counter"] <= counter and (superseded is None or superseded > counter)
