"""The catalog in a SQL database."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from kbmesh_rpc.errors import Conflict, KnowledgeBaseAlreadyExists, KnowledgeBaseNotFound
from sqlalchemy import bindparam, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kbmesh_retriever.catalog.batches import GenerationBatches
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.generations import Generations
from kbmesh_retriever.catalog.jobs import SqlJobs
from kbmesh_retriever.catalog.port import (
    Document,
    KnowledgeBase,
    RebuildProgress,
    Reservation,
    RetrievalDefaults,
    Superseded,
)
from kbmesh_retriever.catalog.profiles import SqlProfiles
from kbmesh_retriever.catalog.rebuilds import Rebuilds, end_rebuild
from kbmesh_retriever.catalog.rows import (
    knowledge_base_of,
    knowledge_base_values,
    retrieval_values,
    uuid_or_none,
)
from kbmesh_retriever.catalog.tables import (
    ABANDONED,
    DELETED,
    LIVE,
    MAKING,
    RESERVED,
    documents,
    generations,
    knowledge_bases,
    rebuild_failures,
)

_RESOLVE = select(knowledge_bases).where(
    knowledge_bases.c.tenant == bindparam("tenant"),
    knowledge_bases.c.state == LIVE,
    or_(
        knowledge_bases.c.name.in_(bindparam("names", expanding=True)),
        knowledge_bases.c.public_id.in_(bindparam("ids", expanding=True)),
    ),
)


def utc_now() -> datetime:
    return datetime.now(UTC)


class SqlCatalog:
    """A `Catalog` in the database that `url` names: "sqlite:///PATH", "postgresql://…".

    `open` first. `owner` names this process: it marks what is half done, so that what a killed process left is found.
    """

    def __init__(
        self,
        url: str,
        *,
        owner: str | None = None,
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], UUID] = uuid.uuid4,
        reservation_timeout_seconds: float = 3600,
        max_job_results: int = 100_000,
        job_retention_seconds: float = 7 * 86_400,
    ) -> None:
        self._database = Database(url)
        self._owner = owner or uuid.uuid4().hex
        self._now = now
        self._reservation_timeout = timedelta(seconds=reservation_timeout_seconds)
        self._batches = GenerationBatches(self._database, owner=self._owner, now=now, new_id=new_id)
        self.jobs = SqlJobs(
            self._database,
            now=now,
            new_id=new_id,
            max_results=max_job_results,
            retention_seconds=job_retention_seconds,
        )
        self.profiles = SqlProfiles(self._database, now=now)
        self._generations = Generations(self._database, owner=self._owner, now=now, new_id=new_id)
        self._rebuilds = Rebuilds(self._database, now=now)

    async def open(self) -> None:
        """Makes or migrates the tables, and gives up what processes that are gone left half done."""
        alone = await self._database.open(self._owner)
        async with self._database.writing() as connection:
            await self._give_up(connection, of_others=alone)

    # Knowledge bases

    async def prepare_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        async with self._database.writing() as connection:
            await connection.execute(
                insert(knowledge_bases).values(
                    **knowledge_base_values(knowledge_base), state=MAKING, owner=self._owner, state_since=self._now()
                )
            )

    async def create_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        values = {**knowledge_base_values(knowledge_base), "state": LIVE, "owner": None, "state_since": self._now()}
        try:
            async with self._database.writing() as connection:
                known = knowledge_bases.c.id == knowledge_base.id
                state = await connection.scalar(select(knowledge_bases.c.state).where(known))
                if state is None:
                    await connection.execute(insert(knowledge_bases).values(**values))
                    return
                made = await connection.execute(
                    update(knowledge_bases).where(known, knowledge_bases.c.state == MAKING).values(**values)
                )
                if made.rowcount != 1:
                    raise Conflict(f"knowledge_bases/{knowledge_base.id}", "it took so long that it was given up")
        except IntegrityError as error:
            raise KnowledgeBaseAlreadyExists(knowledge_base.name) from error

    async def abandon_knowledge_base(self, knowledge_base_id: UUID) -> None:
        async with self._database.writing() as connection:
            await connection.execute(
                update(knowledge_bases)
                .where(knowledge_bases.c.id == knowledge_base_id, knowledge_bases.c.state == MAKING)
                .values(state=DELETED, owner=None, state_since=self._now())
            )

    async def get_knowledge_base(self, tenant: str, name_or_id: str) -> KnowledgeBase:
        found = await self.resolve_knowledge_bases(tenant, [name_or_id])
        if name_or_id not in found:
            raise KnowledgeBaseNotFound(name_or_id)
        return found[name_or_id]

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        ids = {text: parsed for text in names_or_ids if (parsed := uuid_or_none(text)) is not None}
        rows = await self._database.glance(
            _RESOLVE, {"tenant": tenant, "names": list(names_or_ids), "ids": list(ids.values())}
        )
        found = [knowledge_base_of(row) for row in rows]
        by_id = {kb.public_id: kb for kb in found}
        by_name = {kb.name: kb for kb in found}
        answer: dict[str, KnowledgeBase] = {}
        for text in names_or_ids:
            knowledge_base = by_name.get(text) or (by_id.get(ids[text]) if text in ids else None)
            if knowledge_base is not None:
                answer[text] = knowledge_base
        return answer

    async def vector_stores(self) -> Collection[str]:
        async with self._database.reading() as connection:
            return set(await connection.scalars(select(knowledge_bases.c.vector_store).distinct()))

    async def list_knowledge_bases(self, tenant: str, *, limit: int, after: str) -> Sequence[KnowledgeBase]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(knowledge_bases)
                .where(
                    knowledge_bases.c.tenant == tenant,
                    knowledge_bases.c.state == LIVE,
                    knowledge_bases.c.name > after,
                )
                .order_by(knowledge_bases.c.name)
                .limit(limit)
            )
            return [knowledge_base_of(row) for row in rows.mappings()]

    async def update_knowledge_base(
        self,
        tenant: str,
        name_or_id: str,
        *,
        description: str | None,
        retrieval: RetrievalDefaults | None,
        readers: Sequence[str] | None = None,
    ) -> KnowledgeBase:
        knowledge_base = await self.get_knowledge_base(tenant, name_or_id)
        values: dict[str, object] = {"updated_at": self._now()}
        if description is not None:
            values["description"] = description
        if retrieval is not None:
            values.update(retrieval_values(retrieval))
        if readers is not None:
            values.update(readers=list(readers), generation=knowledge_bases.c.generation + 1)
        async with self._database.writing() as connection:
            rows = await connection.execute(
                update(knowledge_bases)
                .where(knowledge_bases.c.id == knowledge_base.id, knowledge_bases.c.state == LIVE)
                .values(**values)
                .returning(*knowledge_bases.c)
            )
            row = rows.mappings().one_or_none()
            if row is None:
                raise KnowledgeBaseNotFound(name_or_id)
            return knowledge_base_of(row)

    async def delete_knowledge_base(self, tenant: str, name_or_id: str) -> tuple[KnowledgeBase, int]:
        knowledge_base = await self.get_knowledge_base(tenant, name_or_id)
        async with self._database.writing() as connection:
            rows = await connection.execute(
                update(knowledge_bases)
                .where(knowledge_bases.c.id == knowledge_base.id, knowledge_bases.c.state == LIVE)
                .values(state=DELETED, state_since=self._now())
                .returning(*knowledge_bases.c)
            )
            row = rows.mappings().one_or_none()
            if row is None:
                raise KnowledgeBaseNotFound(name_or_id)
            deleted = knowledge_base_of(row)
            await end_rebuild(connection, deleted.id, self._now())
            return deleted, deleted.document_count

    async def deleted_knowledge_bases(self, *, older_than_seconds: float, limit: int) -> Sequence[KnowledgeBase]:
        async with self._database.writing() as connection:
            await self._give_up(connection)
            at_work = exists().where(
                generations.c.knowledge_base_id == knowledge_bases.c.id, generations.c.state == RESERVED
            )
            rows = await connection.execute(
                select(knowledge_bases)
                .where(
                    knowledge_bases.c.state == DELETED,
                    knowledge_bases.c.state_since <= self._now() - timedelta(seconds=older_than_seconds),
                    ~at_work,
                )
                .order_by(knowledge_bases.c.state_since)
                .limit(limit)
            )
            return [knowledge_base_of(row) for row in rows.mappings()]

    async def forget_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        async with self._database.writing() as connection:
            of_it = knowledge_bases.c.id == knowledge_base.id
            if await connection.scalar(select(knowledge_bases.c.state).where(of_it).with_for_update()) != DELETED:
                return
            await connection.execute(delete(generations).where(generations.c.knowledge_base_id == knowledge_base.id))
            await connection.execute(delete(documents).where(documents.c.knowledge_base_id == knowledge_base.id))
            await connection.execute(
                delete(rebuild_failures).where(rebuild_failures.c.knowledge_base_id == knowledge_base.id)
            )
            await connection.execute(delete(knowledge_bases).where(of_it))

    # Rebuilds

    async def create_rebuild(self, rebuild: KnowledgeBase, *, of: KnowledgeBase) -> None:
        await self._rebuilds.create(rebuild, of=of)

    async def find_rebuild(self, knowledge_base: KnowledgeBase) -> KnowledgeBase | None:
        return await self._rebuilds.find(knowledge_base)

    async def rebuild_progress(self, knowledge_base: KnowledgeBase, rebuild: KnowledgeBase) -> RebuildProgress:
        return await self._rebuilds.progress(knowledge_base, rebuild)

    async def note_rebuild_failure(self, knowledge_base_id: UUID, external_id: str, reason: str) -> None:
        await self._rebuilds.note_failure(knowledge_base_id, external_id, reason)

    async def finish_rebuild(
        self, knowledge_base: KnowledgeBase, *, drop_outstanding: bool
    ) -> tuple[KnowledgeBase, int]:
        return await self._rebuilds.finish(knowledge_base, drop_outstanding=drop_outstanding)

    async def cancel_rebuild(self, knowledge_base: KnowledgeBase) -> None:
        await self._rebuilds.cancel(knowledge_base)

    # Documents

    async def find_document(self, knowledge_base_id: UUID, external_id: str) -> Document | None:
        return await self._generations.find(knowledge_base_id, external_id)

    async def find_documents(self, knowledge_base_id: UUID, external_ids: Collection[str]) -> Mapping[str, Document]:
        return await self._generations.find_many(knowledge_base_id, external_ids)

    async def get_document(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        return await self._generations.get(knowledge_base_id, id_or_external_id)

    async def list_documents(self, knowledge_base_id: UUID, *, limit: int, after: str) -> Sequence[Document]:
        return await self._generations.list(knowledge_base_id, limit=limit, after=after)

    async def reserve_generation(self, knowledge_base_id: UUID, external_id: str) -> Reservation:
        return await self._generations.reserve(knowledge_base_id, external_id)

    async def reserve_generations(self, knowledge_base_id: UUID, external_ids: Sequence[str]) -> Sequence[Reservation]:
        reserved = await self._batches.reserve(knowledge_base_id, external_ids)
        if reserved is not None:
            return reserved
        return [await self.reserve_generation(knowledge_base_id, external_id) for external_id in external_ids]

    async def publish_together(
        self, knowledge_base_id: UUID, published: Sequence[tuple[Reservation, Document]]
    ) -> Sequence[Conflict | None]:
        outcomes = await self._batches.publish(knowledge_base_id, published)
        if outcomes is not None:
            return outcomes
        alone: list[Conflict | None] = []
        for reservation, document in published:
            try:
                await self.publish(reservation, document)
                alone.append(None)
            except Conflict as error:
                alone.append(error)
        return alone

    async def publish(self, reservation: Reservation, document: Document) -> None:
        await self._generations.publish(reservation, document)

    async def redescribe(self, document: Document) -> None:
        await self._generations.redescribe(document)

    async def narrow(self, document: Document, principals: Sequence[str], *, source_fingerprint: str) -> None:
        await self._generations.narrow(document, principals, source_fingerprint=source_fingerprint)

    async def abandon(self, reservation: Reservation) -> None:
        await self._generations.abandon(reservation)

    async def delete_document(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        return await self._generations.delete(knowledge_base_id, id_or_external_id)

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        return await self._generations.valid(as_of, hits)

    async def due_for_deletion(self, *, older_than_seconds: float, limit: int) -> Sequence[Superseded]:
        async with self._database.writing() as connection:
            await self._give_up(connection)
        return await self._generations.due(older_than_seconds=older_than_seconds, limit=limit)

    async def forget(self, superseded: Superseded) -> None:
        await self._generations.forget(superseded)

    # The database itself

    async def health(self) -> None:
        """Raises DependencyUnavailable where the database does not answer."""
        async with self._database.reading() as connection:
            await connection.execute(
                select(func.count()).select_from(knowledge_bases).where(knowledge_bases.c.id.is_(None))
            )

    async def close(self) -> None:
        await self._database.close()

    async def _give_up(self, connection: AsyncConnection, *, of_others: bool = False) -> None:
        """Ends what was begun too long ago, by somebody who is gone, or, where no other process is there, by anybody
        else."""
        now = self._now()
        begun = ((generations, RESERVED, ABANDONED), (knowledge_bases, MAKING, DELETED))
        owners: set[str] = set()
        for table, state, _ in begun:
            rows = await connection.scalars(select(table.c.owner).where(table.c.state == state).distinct())
            owners |= {owner for owner in rows if owner is not None}
        gone = owners - {self._owner} if of_others else await self._database.lost(connection, owners)
        for table, state, ended in begun:
            late = table.c.state_since <= now - self._reservation_timeout
            await connection.execute(
                update(table)
                .where(table.c.state == state, or_(late, table.c.owner.in_(gone)))
                .values(state=ended, state_since=now)
            )
