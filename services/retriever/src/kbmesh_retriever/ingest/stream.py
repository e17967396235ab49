"""Many documents at once, for one caller."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from kbmesh_rpc.errors import InternalError, KbmeshError, KnowledgeBaseNotFound, ModelMismatch
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.ingester import Ingester

logger = get_logger(__name__)


async def ingest_stream(
    ingester: Ingester,
    catalog: Catalog,
    knowledge_base: KnowledgeBase,
    documents: AsyncIterator[IncomingDocument],
    *,
    concurrency: int,
    request_id: str,
) -> AsyncGenerator[IngestResult, None]:
    """A result for each document, in the order in which they are done; a document that fails fails alone. Versions of
    one document keep their order.

    The next document is read only when fewer than `concurrency` are in work or wait for the caller to take their
    result, so that a slow reader slows the sender down. Raises KnowledgeBaseNotFound or ModelMismatch, where no
    further document could be taken in, and what `documents` raises. Close it (`aclosing`): that ends all work.
    """
    stream = _Stream(ingester, catalog, knowledge_base, concurrency=concurrency, request_id=request_id)
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
        self, ingester: Ingester, catalog: Catalog, knowledge_base: KnowledgeBase, *, concurrency: int, request_id: str
    ) -> None:
        self._ingester = ingester
        self._catalog = catalog
        self._knowledge_base = knowledge_base
        self._request_id = request_id
        self.slots = asyncio.Semaphore(concurrency)
        # Bounded by the slots; None is the end.
        self.results: asyncio.Queue[IngestResult | None] = asyncio.Queue()
        self.fatal: KbmeshError | None = None

    async def work(self, documents: AsyncIterator[IncomingDocument]) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self.slots.acquire()
                try:
                    document = await anext(documents, None)
                except KbmeshError as error:
                    # What came before it is in work, and its results are given first.
                    self.fatal = error
                    return
                if document is None:
                    return
                group.create_task(self._one(document))

    async def _one(self, document: IncomingDocument) -> None:
        ends_all = False
        try:
            result = await self._ingester.ingest(self._knowledge_base, document)
        except (KnowledgeBaseNotFound, ModelMismatch) as error:
            self.fatal = error
            ends_all = True
            result = await self._failed(document, error)
        except KbmeshError as error:
            result = await self._failed(document, error)
        except Exception:
            logger.exception("unknown exception while a document was taken in", request_id=self._request_id)
            result = await self._failed(document, InternalError(self._request_id))
        self.results.put_nowait(result)
        if ends_all:
            self.results.put_nowait(None)

    async def _failed(self, document: IncomingDocument, error: KbmeshError) -> IngestResult:
        try:
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
