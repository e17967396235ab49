"""Many documents at once, for one caller."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from kbmesh_rpc.errors import InternalError, KbmeshError, KnowledgeBaseNotFound, ModelMismatch
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.spans import span

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase
from kbmesh_retriever.ingest import metrics
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.ingest.job import JobRecord
from kbmesh_retriever.ingest.needs import Needs

logger = get_logger(__name__)

BYTES_IN_WORK = 64 * 1024 * 1024
"""Content of the documents that one stream has in work. One document may be larger."""


async def ingest_stream(
    ingester: Ingester,
    catalog: Catalog,
    knowledge_base: KnowledgeBase,
    documents: AsyncIterator[IncomingDocument],
    *,
    concurrency: int,
    request_id: str,
    record: JobRecord | None = None,
    into_rebuild: bool = False,
) -> AsyncGenerator[IngestResult, None]:
    """A result for each document, in the order in which they are done; a document that fails fails alone. Versions of
    one document keep their order.

    The next document is read only when fewer than `concurrency` are in work or wait for the caller to take their
    result, and none too many bytes: a slow reader slows the sender down. What several documents need at the same time
    is asked together. Results are kept in `record` as well, and failures on the way into a rebuild in the catalog.
    Where a rebuild takes the knowledge base's place meanwhile, documents go there. Raises KnowledgeBaseNotFound or
    ModelMismatch, where no further document could be taken in, and what `documents` raises. Close it (`aclosing`): that
    ends all work.
    """
    stream = _Stream(
        ingester,
        catalog,
        knowledge_base,
        concurrency=concurrency,
        request_id=request_id,
        record=record,
        into_rebuild=into_rebuild,
    )
    work = asyncio.create_task(stream.work(documents))
    work.add_done_callback(lambda _: stream.results.put_nowait(None))
    try:
        while (result := await stream.results.get()) is not None:
            yield result
            stream.slots.release()
        if stream.fatal is not None:
            raise stream.fatal
        await work
    finally:
        work.cancel()
        await asyncio.wait([work])


class _Stream:
    def __init__(
        self,
        ingester: Ingester,
        catalog: Catalog,
        knowledge_base: KnowledgeBase,
        *,
        concurrency: int,
        request_id: str,
        record: JobRecord | None,
        into_rebuild: bool,
    ) -> None:
        self._ingester = ingester
        self._catalog = catalog
        self._knowledge_base = knowledge_base
        self._first_id = knowledge_base.id
        self._request_id = request_id
        self._record = record
        self._into_rebuild = into_rebuild
        self._bytes = _Room(BYTES_IN_WORK)
        self.slots = asyncio.Semaphore(concurrency)
        # Bounded by the slots; None is the end.
        self.results: asyncio.Queue[IngestResult | None] = asyncio.Queue()
        self.fatal: KbmeshError | None = None

    async def work(self, documents: AsyncIterator[IncomingDocument]) -> None:
        finished = False
        try:
            async with asyncio.TaskGroup() as group:
                needs = self._ingester.needs_together(self._knowledge_base, group)
                while True:
                    await self.slots.acquire()
                    try:
                        document = await anext(documents, None)
                    except KbmeshError as error:
                        # What came before it is in work, and its results are given first.
                        self.fatal = error
                        break
                    if document is None:
                        break
                    size = len(document.content or b"")
                    await self._bytes.take(size)
                    group.create_task(self._one(document, size, needs))
            finished = self.fatal is None
        finally:
            # A caller who left has not come to the end.
            if self._record is not None:
                await self._record.close(finished=finished)

    async def _one(self, document: IncomingDocument, size: int, needs: Needs) -> None:
        with metrics.working(size) as count, span("ingest document", kbmesh__document__bytes=size) as made:
            result, ends_all = await self._result(document, size, needs)
            count(result)
            made.set_attribute("kbmesh.document.outcome", result.outcome)
            if result.error is not None:
                made.set_attribute("error.type", result.error.reason.name)
        if self._record is not None:
            await self._record.add(result)
        self.results.put_nowait(result)
        if ends_all:
            self.results.put_nowait(None)

    async def _result(self, document: IncomingDocument, size: int, needs: Needs) -> tuple[IngestResult, bool]:
        """What became of a document, and whether no further one can be taken in."""
        ends_all = False
        try:
            result = await self._ingest(document, needs)
        except (KnowledgeBaseNotFound, ModelMismatch) as caught:
            gone = isinstance(caught, KnowledgeBaseNotFound)
            # By the name that the caller knows; what failed may know it by its id only.
            error = KnowledgeBaseNotFound(self._knowledge_base.name) if gone else caught
            self.fatal = error
            ends_all = True
            result = await self._failed(document, error)
        except KbmeshError as error:
            result = await self._failed(document, error)
        except Exception:
            logger.exception("unknown exception while a document was taken in", request_id=self._request_id)
            result = await self._failed(document, InternalError(self._request_id))
        finally:
            self._bytes.give(size)
        return result, ends_all

    async def _ingest(self, document: IncomingDocument, needs: Needs) -> IngestResult:
        begun_with = self._knowledge_base
        try:
            if begun_with.id == self._first_id:
                return await self._ingester.ingest(begun_with, document, needs)
            # What documents need together was about another one. The few that are left of this stream go alone.
            return await self._ingester.ingest(begun_with, document)
        except KnowledgeBaseNotFound as error:
            await self._follow(begun_with, error)
            return await self._ingester.ingest(self._knowledge_base, document)

    async def _follow(self, gone: KnowledgeBase, error: KnowledgeBaseNotFound) -> None:
        """Goes over to what a rebuild has put in the place of the one that is gone. Raises `error` where nothing is."""
        if self._into_rebuild:
            raise error
        found = await self._catalog.resolve_knowledge_bases(gone.tenant, [str(gone.public_id)])
        for knowledge_base in found.values():
            if knowledge_base.id != gone.id:
                self._knowledge_base = knowledge_base
                return
        raise error

    async def _failed(self, document: IncomingDocument, error: KbmeshError) -> IngestResult:
        try:
            if self._into_rebuild:
                await self._catalog.note_rebuild_failure(
                    self._knowledge_base.id, document.external_id, error.reason.value
                )
            current = await self._catalog.find_document(self._knowledge_base.id, document.external_id)
        except KbmeshError:
            current = None
        return IngestResult(
            external_id=document.external_id,
            outcome="failed",
            error=error,
            document_id="" if current is None else str(current.id),
            chunks=0 if current is None else current.chunk_count,
        )


class _Room:
    """So many bytes, and always one document."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._given = asyncio.Event()

    async def take(self, size: int) -> None:
        while self._taken and self._taken + size > self._size:
            self._given.clear()
            await self._given.wait()
        self._taken += size

    def give(self, size: int) -> None:
        self._taken -= size
        self._given.set()
