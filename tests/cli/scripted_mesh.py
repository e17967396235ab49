# ruff: noqa: N802 - method names are the contract's.
"""A mesh that answers what a test tells it to, behind kbmesh's real server."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import (
    ingestion_pb2,
    ingestion_pb2_grpc,
    knowledge_base_pb2,
    knowledge_base_pb2_grpc,
    retriever_pb2,
    retriever_pb2_grpc,
)
from kbmesh_rpc.call import CallContext, current_call
from kbmesh_rpc.errors import DocumentNotFound, JobNotFound, KnowledgeBaseNotFound, ShuttingDown
from kbmesh_rpc.server import Registration

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(kw_only=True)
class Script:
    """What to answer, and what was asked."""

    error: Exception | None = None
    """Raised by every call, or by the first `failing_calls`."""
    failing_calls: int | None = None
    retrieval: retriever_pb2.RetrieveResponse = field(default_factory=retriever_pb2.RetrieveResponse)
    fused: retriever_pb2.RetrieveResponse | None = None
    """What a stream gives before `retrieval`, where that is something else."""
    answer: Callable[[retriever_pb2.RetrieveRequest], retriever_pb2.RetrieveResponse] | None = None
    """Answers in place of `retrieval`."""
    is_empty: bool = False
    """Only knowledge bases that a test made are there."""
    made: dict[str, knowledge_base_pb2.KnowledgeBase] = field(default_factory=dict)
    chunks: chunker_pb2.ChunkResponse = field(default_factory=chunker_pb2.ChunkResponse)
    knowledge_bases: list[str] = field(default_factory=lambda: ["handbook"])
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    """Documents are read once it is set."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first call."""
    requests: list[Any] = field(default_factory=list)
    calls: list[CallContext] = field(default_factory=list)
    ingested: list[str] = field(default_factory=list)
    documents: dict[str, ingestion_pb2.IngestDocument] = field(default_factory=dict)
    """What was taken in and not deleted."""
    jobs: dict[str, dict[str, ingestion_pb2.JobResult]] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)
    """Of each ingestion in turn: the documents after which it ends as a server that shuts down. One it took in last has
    no result."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason for which a document fails, by its name."""

    def __post_init__(self) -> None:
        self.reading.set()

    def note(self, request: Any) -> None:
        self.requests.append(request)
        self.asked.set()
        self.calls.append(current_call())
        if self.error is not None and (self.failing_calls is None or len(self.requests) <= self.failing_calls):
            raise self.error


class KnowledgeBases(knowledge_base_pb2_grpc.KnowledgeBaseServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def CreateKnowledgeBase(
        self, request: knowledge_base_pb2.CreateKnowledgeBaseRequest, context: Context
    ) -> knowledge_base_pb2.CreateKnowledgeBaseResponse:
        self._script.note(request)
        self._script.made[request.knowledge_base.name] = request.knowledge_base
        return knowledge_base_pb2.CreateKnowledgeBaseResponse(knowledge_base=request.knowledge_base)

    async def GetKnowledgeBase(
        self, request: knowledge_base_pb2.GetKnowledgeBaseRequest, context: Context
    ) -> knowledge_base_pb2.GetKnowledgeBaseResponse:
        self._script.note(request)
        if self._script.is_empty:
            if request.knowledge_base not in self._script.made:
                raise KnowledgeBaseNotFound(request.knowledge_base)
            made = self._script.made[request.knowledge_base]
            made.document_count = len(self._script.documents)
            return knowledge_base_pb2.GetKnowledgeBaseResponse(knowledge_base=made)
        return knowledge_base_pb2.GetKnowledgeBaseResponse(
            knowledge_base=knowledge_base_pb2.KnowledgeBase(name=request.knowledge_base, document_count=3)
        )

    async def ListKnowledgeBases(
        self, request: knowledge_base_pb2.ListKnowledgeBasesRequest, context: Context
    ) -> knowledge_base_pb2.ListKnowledgeBasesResponse:
        self._script.note(request)
        start = int(request.page_token or 0)
        end = start + request.page_size
        names = self._script.knowledge_bases
        return knowledge_base_pb2.ListKnowledgeBasesResponse(
            knowledge_bases=[knowledge_base_pb2.KnowledgeBase(name=name) for name in names[start:end]],
            next_page_token=str(end) if end < len(names) else "",
        )

    async def UpdateKnowledgeBase(
        self, request: knowledge_base_pb2.UpdateKnowledgeBaseRequest, context: Context
    ) -> knowledge_base_pb2.UpdateKnowledgeBaseResponse:
        self._script.note(request)
        return knowledge_base_pb2.UpdateKnowledgeBaseResponse(knowledge_base=request.knowledge_base)

    async def DeleteKnowledgeBase(
        self, request: knowledge_base_pb2.DeleteKnowledgeBaseRequest, context: Context
    ) -> knowledge_base_pb2.DeleteKnowledgeBaseResponse:
        self._script.note(request)
        self._script.made.pop(request.knowledge_base, None)
        return knowledge_base_pb2.DeleteKnowledgeBaseResponse(documents_deleted=3)


class Ingestion(ingestion_pb2_grpc.IngestionServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def Ingest(
        self, request_iterator: AsyncIterator[ingestion_pb2.IngestRequest], context: Context
    ) -> AsyncIterator[ingestion_pb2.IngestResponse]:
        first = await anext(request_iterator)
        self._script.note(first)
        job = self._script.jobs.setdefault(first.options.job_id, {}) if first.options.job_id else {}
        await self._script.reading.wait()
        left = self._script.breaks_after.pop(0) if self._script.breaks_after else -1
        async for request in request_iterator:
            if left == 0:
                self._take(request.document)
                raise ShuttingDown
            left -= 1
            response = self._take(request.document)
            content = request.document.document.text.encode() or request.document.document.data
            job[request.document.external_id] = ingestion_pb2.JobResult(
                result=response, content_sha256=hashlib.sha256(content).digest()
            )
            yield response

    def _take(self, document: ingestion_pb2.IngestDocument) -> ingestion_pb2.IngestResponse:
        self._script.ingested.append(document.external_id)
        has_content = bool(document.document.text or document.document.data)
        reason = self._script.refused.get(document.external_id, "" if has_content else "DOCUMENT_EMPTY")
        if reason:
            return ingestion_pb2.IngestResponse(
                external_id=document.external_id,
                outcome=ingestion_pb2.INGEST_OUTCOME_FAILED,
                error=errors_pb2.ItemError(
                    reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}"), message="refused"
                ),
            )
        self._script.documents[document.external_id] = document
        return ingestion_pb2.IngestResponse(
            external_id=document.external_id,
            document_id=f"id of {document.external_id}",
            outcome=ingestion_pb2.INGEST_OUTCOME_NEW,
            chunks=2,
            embedded=2,
            tokens=20,
        )

    async def ListDocuments(
        self, request: ingestion_pb2.ListDocumentsRequest, context: Context
    ) -> ingestion_pb2.ListDocumentsResponse:
        self._script.note(request)
        return ingestion_pb2.ListDocumentsResponse(
            documents=[
                ingestion_pb2.Document(external_id=name, uri=document.uri)
                for name, document in sorted(self._script.documents.items())
            ]
        )

    async def DeleteDocument(
        self, request: ingestion_pb2.DeleteDocumentRequest, context: Context
    ) -> ingestion_pb2.DeleteDocumentResponse:
        self._script.note(request)
        if self._script.documents.pop(request.document, None) is None:
            raise DocumentNotFound(knowledge_base=request.knowledge_base, document=request.document)
        return ingestion_pb2.DeleteDocumentResponse(chunks_deleted=2)

    async def ListJobResults(
        self, request: ingestion_pb2.ListJobResultsRequest, context: Context
    ) -> ingestion_pb2.ListJobResultsResponse:
        self._script.note(request)
        if request.job_id not in self._script.jobs:
            raise JobNotFound(knowledge_base=request.knowledge_base, job=request.job_id)
        return ingestion_pb2.ListJobResultsResponse(results=self._script.jobs[request.job_id].values())


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def Retrieve(
        self, request: retriever_pb2.RetrieveRequest, context: Context
    ) -> retriever_pb2.RetrieveResponse:
        self._script.note(request)
        return self._script.answer(request) if self._script.answer else self._script.retrieval

    async def RetrieveStream(
        self, request: retriever_pb2.RetrieveStreamRequest, context: Context
    ) -> AsyncIterator[retriever_pb2.RetrieveStreamResponse]:
        self._script.note(request)
        yield retriever_pb2.RetrieveStreamResponse(fused=self._script.fused or self._script.retrieval)
        yield retriever_pb2.RetrieveStreamResponse(final=self._script.retrieval)


class Chunker(chunker_pb2_grpc.ChunkerServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def Chunk(self, request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        self._script.note(request)
        return self._script.chunks


class ScriptedMesh:
    """An application of all services that clients call."""

    def __init__(self, script: Script) -> None:
        self.registrations: Sequence[Registration] = (
            Registration(
                name="kbmesh.retriever.v1.KnowledgeBaseService",
                add=lambda server: knowledge_base_pb2_grpc.add_KnowledgeBaseServiceServicer_to_server(
                    KnowledgeBases(script), server
                ),
            ),
            Registration(
                name="kbmesh.retriever.v1.IngestionService",
                add=lambda server: ingestion_pb2_grpc.add_IngestionServiceServicer_to_server(Ingestion(script), server),
            ),
            Registration(
                name="kbmesh.retriever.v1.RetrieverService",
                add=lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(Retriever(script), server),
            ),
            Registration(
                name="kbmesh.chunker.v1.ChunkerService",
                add=lambda server: chunker_pb2_grpc.add_ChunkerServiceServicer_to_server(Chunker(script), server),
            ),
        )

    async def warm_up(self) -> None:
        """Has nothing to load."""

    async def close(self) -> None:
        """Holds nothing."""
