"""Ingestion jobs: what became of the documents that were sent under a name, so that a caller can go on later."""

import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import JobNotFound
from sqlalchemy import RowMapping, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.job_port import Job, JobResult
from kbmesh_retriever.catalog.tables import DELETED, job_results, jobs, knowledge_bases

_OUTCOMES = ("new", "changed", "unchanged", "failed")


class SqlJobs:
    """A `JobCatalog` on behalf of `SqlCatalog`."""

    def __init__(
        self,
        database: Database,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], UUID] = uuid.uuid4,
        max_results: int,
        retention_seconds: float,
    ) -> None:
        """Of each job at most `max_results` are kept, for `retention_seconds` after the last."""
        self._database = database
        self._now = now
        self._new_id = new_id
        self._max_results = max_results
        self._retention = timedelta(seconds=retention_seconds)

    async def begin(self, knowledge_base_id: UUID, name: str) -> UUID:
        named = and_(jobs.c.knowledge_base_id == knowledge_base_id, jobs.c.name == name)
        async with self._database.writing() as connection:
            now = self._now()
            await self._forget(connection, now)
            again = update(jobs).where(named).values(updated_at=now, finished_at=None).returning(jobs.c.id)
            job_id: UUID | None = await connection.scalar(again)
            if job_id is not None:
                return job_id
            try:
                async with connection.begin_nested():
                    job_id = self._new_id()
                    await connection.execute(
                        insert(jobs).values(
                            id=job_id,
                            knowledge_base_id=knowledge_base_id,
                            name=name,
                            created_at=now,
                            updated_at=now,
                            finished_at=None,
                            results_kept=0,
                            results_not_kept=0,
                        )
                    )
                    return job_id
            except IntegrityError:
                # Another process began it in this moment.
                begun: UUID = (await connection.execute(again)).scalar_one()
                return begun

    async def keep(self, job_id: UUID, results: Sequence[JobResult]) -> None:
        last = {result.key: result for result in results}
        if not last:
            return
        async with self._database.writing() as connection:
            # Takes the job's row, so that two streams of one job count one after the other.
            kept = await connection.scalar(select(jobs.c.results_kept).where(jobs.c.id == job_id).with_for_update())
            if kept is None:
                return
            replaced = await connection.execute(
                delete(job_results).where(job_results.c.job_id == job_id, job_results.c.key.in_(last))
            )
            kept -= replaced.rowcount
            rows = [_values(job_id, key, result) for key, result in last.items()][: max(self._max_results - kept, 0)]
            if rows:
                await connection.execute(insert(job_results), rows)
            await connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id)
                .values(
                    updated_at=self._now(),
                    results_kept=kept + len(rows),
                    results_not_kept=jobs.c.results_not_kept + len(last) - len(rows),
                )
            )

    async def finish(self, job_id: UUID) -> None:
        async with self._database.writing() as connection:
            now = self._now()
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(updated_at=now, finished_at=now))

    async def get(self, knowledge_base_id: UUID, name: str) -> Job:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(jobs).where(jobs.c.knowledge_base_id == knowledge_base_id, jobs.c.name == name)
            )
            found = await _counted(connection, rows.mappings().all())
        if not found:
            raise JobNotFound(knowledge_base=str(knowledge_base_id), job=name)
        return found[0]

    async def list(self, knowledge_base_id: UUID, *, limit: int, after: str) -> Sequence[Job]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(jobs)
                .where(jobs.c.knowledge_base_id == knowledge_base_id, jobs.c.name > after)
                .order_by(jobs.c.name)
                .limit(limit)
            )
            return await _counted(connection, rows.mappings().all())

    async def results(self, job_id: UUID, *, limit: int, after: str) -> Sequence[JobResult]:
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(job_results)
                .where(job_results.c.job_id == job_id, job_results.c.key > after)
                .order_by(job_results.c.key)
                .limit(limit)
            )
            return [_result(row) for row in rows.mappings()]

    async def _forget(self, connection: AsyncConnection, now: datetime) -> None:
        living = select(knowledge_bases.c.public_id).where(knowledge_bases.c.state != DELETED)
        gone = select(jobs.c.id).where(
            or_(jobs.c.updated_at < now - self._retention, jobs.c.knowledge_base_id.not_in(living))
        )
        if ids := (await connection.scalars(gone)).all():
            await connection.execute(delete(jobs).where(jobs.c.id.in_(ids)))  # and their results, by the foreign key


async def _counted(connection: AsyncConnection, rows: Collection[RowMapping]) -> Sequence[Job]:
    """The jobs of `rows` with what their results come to, in one query."""
    sums = await connection.execute(
        select(
            job_results.c.job_id,
            *(func.sum(case((job_results.c.outcome == outcome, 1), else_=0)).label(outcome) for outcome in _OUTCOMES),
            func.sum(job_results.c.chunks).label("chunks"),
            func.sum(job_results.c.tokens).label("tokens"),
        )
        .where(job_results.c.job_id.in_([row["id"] for row in rows]))
        .group_by(job_results.c.job_id)
    )
    by_job = {row["job_id"]: row for row in sums.mappings()}
    return [_job(row, by_job.get(row["id"])) for row in rows]


def _job(row: RowMapping, sums: RowMapping | None) -> Job:
    return Job(
        id=row["id"],
        name=row["name"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
        counts={outcome: 0 if sums is None else int(sums[outcome]) for outcome in _OUTCOMES},
        chunks=0 if sums is None else int(sums["chunks"]),
        tokens=0 if sums is None else int(sums["tokens"]),
        results_not_kept=row["results_not_kept"],
    )


def _values(job_id: UUID, key: str, result: JobResult) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "key": key,
        "external_id": result.external_id,
        "document_id": result.document_id,
        "outcome": result.outcome,
        "content_sha256": result.content_sha256,
        "chunks": result.chunks,
        "embedded": result.embedded,
        "tokens": result.tokens,
        "truncated": result.truncated,
        "error_reason": result.error_reason,
        "error_message": result.error_message,
        "error_metadata": dict(result.error_metadata),
    }


def _result(row: RowMapping) -> JobResult:
    return JobResult(
        external_id=row["external_id"],
        document_id=row["document_id"],
        outcome=row["outcome"],
        content_sha256=row["content_sha256"],
        chunks=row["chunks"],
        embedded=row["embedded"],
        tokens=row["tokens"],
        truncated=row["truncated"],
        error_reason=row["error_reason"],
        error_message=row["error_message"],
        error_metadata=row["error_metadata"],
    )
