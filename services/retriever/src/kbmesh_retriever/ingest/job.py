"""The record of a job's results, written in batches: it must cost no transaction for each document."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from kbmesh_rpc.errors import KbmeshError
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.job_port import JobCatalog, JobResult
from kbmesh_retriever.ingest.document import IngestResult

logger = get_logger(__name__)

_RESULTS_A_WRITE = 200
_SECONDS_BETWEEN_WRITES = 2.0


class JobRecord:
    """Keeps what became of the documents of one stream.

    Results are written when there are many or the last write is a while ago, and at the end. Those that a killed
    process had not written yet are of documents that are sent again when the job is resumed, and are unchanged then.
    A catalog that cannot be reached costs the record, never the documents.
    """

    def __init__(self, catalog: JobCatalog, job_id: UUID, *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._catalog = catalog
        self._job_id = job_id
        self._clock = clock
        self._waiting: list[JobResult] = []
        self._written_at = clock()
        self._writing = asyncio.Lock()

    async def add(self, result: IngestResult) -> None:
        """May write what has gathered."""
        error = result.error
        self._waiting.append(
            JobResult(
                external_id=result.external_id,
                document_id=result.document_id,
                outcome=result.outcome,
                content_sha256=result.content_sha256,
                chunks=result.chunks,
                embedded=result.embedded,
                tokens=result.tokens,
                truncated=result.truncated,
                error_reason="" if error is None else error.reason.value,
                error_message="" if error is None else error.message,
                error_metadata={} if error is None else error.metadata,
            )
        )
        is_due = self._clock() - self._written_at >= _SECONDS_BETWEEN_WRITES
        if (is_due or len(self._waiting) >= _RESULTS_A_WRITE) and not self._writing.locked():
            await self._write()

    async def close(self, *, finished: bool) -> None:
        """Writes the rest, and whether the stream came to its end."""
        await self._write()
        if finished:
            try:
                await self._catalog.finish(self._job_id)
            except KbmeshError:
                logger.warning("the end of a job could not be kept", exc_info=True)

    async def _write(self) -> None:
        async with self._writing:
            self._written_at = self._clock()
            while self._waiting:
                written = self._waiting[:_RESULTS_A_WRITE]
                try:
                    await self._catalog.keep(self._job_id, written)
                except KbmeshError:
                    logger.warning(
                        "results of a job could not be kept; their documents will be sent again if it is resumed",
                        results=len(written),
                        exc_info=True,
                    )
                del self._waiting[: len(written)]
