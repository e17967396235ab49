"""IngestionService: Protobuf to domain and back."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2 as pb
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceServicer
from kbmesh_rpc.call import current_call
from kbmesh_rpc.errors import DocumentNotFound, InvalidField, JobNotFound, RebuildNotFound
from kbmesh_rpc.status import to_item_error

from kbmesh_retriever.catalog.job_port import Job
from kbmesh_retriever.catalog.port import Catalog, Document, KnowledgeBase
from kbmesh_retriever.enum_names import source_type_name, source_type_of, strategy_of
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.ingest.job import JobRecord
from kbmesh_retriever.ingest.stream import ingest_stream
from kbmesh_retriever.job_messages import OUTCOMES, job_message, job_result_message
from kbmesh_retriever.page_token import cut_page, page_limit, read_page_token

_Context = grpc.aio.ServicerContext[Any, Any]

MAX_CONCURRENCY = 256
_LIST = "documents"
_LIST_OF_JOBS = "jobs"
_LIST_OF_RESULTS = "job_results"
_JOB_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class IngestionServicer(IngestionServiceServicer):
    """Serves the tenant of the call."""

    def __init__(self, catalog: Catalog, ingester: Ingester, *, default_concurrency: int) -> None:
        self._catalog = catalog
        self._ingester = ingester
        self._default_concurrency = default_concurrency

    async def Ingest(
        self, request_iterator: AsyncIterator[pb.IngestRequest], context: _Context
    ) -> AsyncIterator[pb.IngestResponse]:
        call = current_call()
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("message") != "options":
            raise InvalidField("options", "must be the first message")
        options = first.options
        if options.concurrency > MAX_CONCURRENCY:
            raise InvalidField("options.concurrency", f"must be at most {MAX_CONCURRENCY}")
        if options.job_id and not _JOB_ID.fullmatch(options.job_id):
            raise InvalidField("options.job_id", 'must have at most 128 letters, digits, "-", "_", "." and ":"')
        knowledge_base = await self._knowledge_base(options.knowledge_base, "options.knowledge_base")
        if options.into_rebuild:
            knowledge_base = await self._rebuild(knowledge_base)
        record: JobRecord | None = None
        if options.job_id:
            job_id = await self._catalog.jobs.begin(knowledge_base.public_id, options.job_id)
            record = JobRecord(self._catalog.jobs, job_id, clock=time.monotonic)
        results = ingest_stream(
            self._ingester,
            self._catalog,
            knowledge_base,
            _documents(request_iterator, allow_shrink=options.allow_shrink),
            concurrency=options.concurrency or self._default_concurrency,
            request_id=call.request_id,
            record=record,
            into_rebuild=options.into_rebuild,
        )
        async with aclosing(results):
            async for result in results:
                yield _response(result)

    async def DeleteDocument(self, request: pb.DeleteDocumentRequest, context: _Context) -> pb.DeleteDocumentResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        _check_document_named(request.document)
        try:
            deleted = await self._catalog.delete_document(knowledge_base.id, request.document)
        except DocumentNotFound:
            raise DocumentNotFound(knowledge_base=request.knowledge_base, document=request.document) from None
        return pb.DeleteDocumentResponse(chunks_deleted=deleted.chunk_count)

    async def GetDocument(self, request: pb.GetDocumentRequest, context: _Context) -> pb.GetDocumentResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        _check_document_named(request.document)
        try:
            found = await self._catalog.get_document(knowledge_base.id, request.document)
        except DocumentNotFound:
            raise DocumentNotFound(knowledge_base=request.knowledge_base, document=request.document) from None
        return pb.GetDocumentResponse(document=_message(found))

    async def ListDocuments(self, request: pb.ListDocumentsRequest, context: _Context) -> pb.ListDocumentsResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        limit, scope = page_limit(request.page_size), str(knowledge_base.id)
        after = read_page_token(request.page_token, _LIST, scope)
        found = await self._catalog.list_documents(knowledge_base.id, limit=limit + 1, after=after)
        page, token = cut_page(found, limit, lambda document: document.external_id, _LIST, scope)
        return pb.ListDocumentsResponse(documents=map(_message, page), next_page_token=token)

    async def GetJob(self, request: pb.GetJobRequest, context: _Context) -> pb.GetJobResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        job = await self._job(knowledge_base, request.knowledge_base, request.job_id)
        return pb.GetJobResponse(job=job_message(job))

    async def ListJobs(self, request: pb.ListJobsRequest, context: _Context) -> pb.ListJobsResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        limit, scope = page_limit(request.page_size), str(knowledge_base.public_id)
        after = read_page_token(request.page_token, _LIST_OF_JOBS, scope)
        found = await self._catalog.jobs.list(knowledge_base.public_id, limit=limit + 1, after=after)
        page, token = cut_page(found, limit, lambda job: job.name, _LIST_OF_JOBS, scope)
        return pb.ListJobsResponse(jobs=map(job_message, page), next_page_token=token)

    async def ListJobResults(self, request: pb.ListJobResultsRequest, context: _Context) -> pb.ListJobResultsResponse:
        knowledge_base = await self._knowledge_base(request.knowledge_base, "knowledge_base")
        job = await self._job(knowledge_base, request.knowledge_base, request.job_id)
        target = await self._rebuild(knowledge_base) if request.into_rebuild else knowledge_base
        limit, scope = page_limit(request.page_size), str(job.id)
        after = read_page_token(request.page_token, _LIST_OF_RESULTS, scope)
        found = await self._catalog.jobs.results(job.id, limit=limit + 1, after=after)
        page, token = cut_page(found, limit, lambda result: result.key, _LIST_OF_RESULTS, scope)
        there = await self._catalog.find_documents(target.id, {result.external_id for result in page})
        results = [job_result_message(result, there.get(result.external_id)) for result in page]
        return pb.ListJobResultsResponse(results=results, next_page_token=token)

    async def _job(self, knowledge_base: KnowledgeBase, named: str, name: str) -> Job:
        if not name:
            raise InvalidField("job_id", "must name a job")
        try:
            return await self._catalog.jobs.get(knowledge_base.public_id, name)
        except JobNotFound:
            raise JobNotFound(knowledge_base=named, job=name) from None

    async def _rebuild(self, knowledge_base: KnowledgeBase) -> KnowledgeBase:
        rebuild = await self._catalog.find_rebuild(knowledge_base)
        if rebuild is None:
            raise RebuildNotFound(knowledge_base.name)
        return rebuild

    async def _knowledge_base(self, name_or_id: str, field: str) -> KnowledgeBase:
        if not name_or_id:
            raise InvalidField(field, "must name a knowledge base")
        return await self._catalog.get_knowledge_base(current_call().tenant, name_or_id)


def _check_document_named(id_or_external_id: str) -> None:
    if not id_or_external_id:
        raise InvalidField("document", "must name a document")


async def _documents(
    requests: AsyncIterator[pb.IngestRequest], *, allow_shrink: bool
) -> AsyncIterator[IncomingDocument]:
    async for request in requests:
        if request.WhichOneof("message") != "document":
            raise InvalidField("document", "must be what every message after the first holds")
        yield _incoming(request.document, allow_shrink=allow_shrink)


def _incoming(message: pb.IngestDocument, *, allow_shrink: bool) -> IncomingDocument:
    document = message.document
    content: str | bytes | None = None
    match document.WhichOneof("content"):
        case "text":
            content = document.text
        case "data":
            content = document.data
    created_at, refused = None, None
    if message.HasField("created_at"):
        try:
            created_at = message.created_at.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            refused = InvalidField("document.created_at", "is no time of the calendar")
    if document.source_type not in chunker_pb2.SourceType.values():
        refused = InvalidField("document.document.source_type", "is none of the contract's")
    return IncomingDocument(
        external_id=message.external_id,
        content=content,
        media_type=document.media_type,
        filename=document.filename,
        source_type=source_type_name(document.source_type),
        metadata=dict(document.metadata),
        title=message.title,
        uri=message.uri,
        author=message.author,
        created_at=created_at,
        principals=tuple(dict.fromkeys(message.principals)),
        tags=tuple(dict.fromkeys(message.tags)),
        allow_shrink=allow_shrink or message.allow_shrink,
        refused=refused,
    )


def _response(result: IngestResult) -> pb.IngestResponse:
    return pb.IngestResponse(
        external_id=result.external_id,
        document_id=result.document_id,
        outcome=OUTCOMES[result.outcome],
        error=None if result.error is None else to_item_error(result.error),
        chunks=result.chunks,
        embedded=result.embedded,
        tokens=result.tokens,
        truncated=result.truncated,
        warnings=[
            chunker_pb2.Warning(
                reason=errors_pb2.ErrorReason.Value(warning.reason), message=warning.message, metadata=warning.metadata
            )
            for warning in result.warnings
        ],
    )


def _message(document: Document) -> pb.Document:
    ingested_at = Timestamp()
    ingested_at.FromDatetime(document.ingested_at)
    message = pb.Document(
        id=str(document.id),
        external_id=document.external_id,
        title=document.title,
        uri=document.uri,
        source_type=source_type_of(document.source_type),
        media_type=document.media_type,
        author=document.author,
        ingested_at=ingested_at,
        content_sha256=document.content_sha256,
        chunk_count=document.chunk_count,
        generation=document.generation,
        strategy=strategy_of(document.strategy),
        metadata=document.metadata,
        # Where the points lag behind, the fewer is what counts.
        principals=document.narrowed_to or document.principals,
        tags=document.tags,
    )
    if document.created_at is not None:
        message.created_at.FromDatetime(document.created_at)
    return message
