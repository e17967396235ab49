"""Somebody who calls a retriever: for a tenant, as a user and their groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import ingestion_pb2, knowledge_base_pb2, retriever_pb2
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceStub
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub

HYBRID = retriever_pb2.RETRIEVAL_STRATEGY_HYBRID


@dataclass(frozen=True)
class Caller:
    """Its calls, with what goes with each of them."""

    channel: grpc.aio.Channel
    tenant: str = "default"
    principals: Sequence[str] = ()

    def known_as(self, *principals: str) -> "Caller":
        """The same tenant, as somebody else; without names an anonymous caller."""
        return Caller(self.channel, self.tenant, principals)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        named = (("kbmesh-principals", ",".join(self.principals)),) if self.principals else ()
        return (("kbmesh-tenant", self.tenant), *named)

    async def create(self, name: str, **fields: Any) -> knowledge_base_pb2.KnowledgeBase:
        wanted = knowledge_base_pb2.KnowledgeBase(name=name, **fields)
        request = knowledge_base_pb2.CreateKnowledgeBaseRequest(knowledge_base=wanted)
        stub = KnowledgeBaseServiceStub(self.channel)
        return (await stub.CreateKnowledgeBase(request, metadata=self.metadata)).knowledge_base

    async def show(self, name: str) -> knowledge_base_pb2.KnowledgeBase:
        request = knowledge_base_pb2.GetKnowledgeBaseRequest(knowledge_base=name)
        stub = KnowledgeBaseServiceStub(self.channel)
        return (await stub.GetKnowledgeBase(request, metadata=self.metadata)).knowledge_base

    async def update(
        self, name: str, *paths: str, rebuild: bool = False, **fields: Any
    ) -> knowledge_base_pb2.KnowledgeBase:
        request = knowledge_base_pb2.UpdateKnowledgeBaseRequest(
            knowledge_base=knowledge_base_pb2.KnowledgeBase(name=name, **fields), rebuild=rebuild
        )
        request.update_mask.paths.extend(paths)
        stub = KnowledgeBaseServiceStub(self.channel)
        return (await stub.UpdateKnowledgeBase(request, metadata=self.metadata)).knowledge_base

    async def finish_rebuild(self, name: str, *, drop_outstanding: bool = False) -> None:
        request = knowledge_base_pb2.FinishRebuildRequest(knowledge_base=name, drop_outstanding=drop_outstanding)
        await KnowledgeBaseServiceStub(self.channel).FinishRebuild(request, metadata=self.metadata)

    async def send(
        self, name: str, *documents: ingestion_pb2.IngestDocument, **options: Any
    ) -> Mapping[str, ingestion_pb2.IngestResponse]:
        """What became of each document, by external id."""
        opening = ingestion_pb2.IngestOptions(knowledge_base=name, **options)
        requests = [ingestion_pb2.IngestRequest(options=opening)]
        requests += [ingestion_pb2.IngestRequest(document=document) for document in documents]
        call = IngestionServiceStub(self.channel).Ingest(iter(requests), metadata=self.metadata)
        return {result.external_id: result async for result in call}

    async def document(self, name: str, external_id: str) -> ingestion_pb2.Document:
        request = ingestion_pb2.GetDocumentRequest(knowledge_base=name, document=external_id)
        return (await IngestionServiceStub(self.channel).GetDocument(request, metadata=self.metadata)).document

    async def retrieve(
        self, query: str, *names: str, strategy: Any = HYBRID, top_k: int = 20, **fields: Any
    ) -> retriever_pb2.RetrieveResponse:
        request = _question(query, names, strategy=strategy, top_k=top_k, **fields)
        return await RetrieverServiceStub(self.channel).Retrieve(request, metadata=self.metadata)

    async def streamed(self, query: str, *names: str, **fields: Any) -> Sequence[retriever_pb2.RetrieveResponse]:
        """All answers of a stream."""
        request = retriever_pb2.RetrieveStreamRequest(request=_question(query, names, **fields))
        call = RetrieverServiceStub(self.channel).RetrieveStream(request, metadata=self.metadata)
        return [getattr(answer, answer.WhichOneof("answer")) async for answer in call]

    async def sees(self, query: str, *names: str, **fields: Any) -> set[str]:
        """External ids of the documents that an answer speaks of, in its results or beside them."""
        return documents_of(await self.retrieve(query, *names, **fields))


def documents_of(answer: retriever_pb2.RetrieveResponse) -> set[str]:
    """External ids of the documents that an answer speaks of, in its results or beside them."""
    return {
        document.external_id
        for result in answer.results
        for document in (result.document, *(duplicate.document for duplicate in result.duplicates))
    }


def statuses_of(answer: retriever_pb2.RetrieveResponse) -> Mapping[str, str]:
    """OK, DENIED and so on, by what the request called a knowledge base."""
    prefix = "KNOWLEDGE_BASE_STATUS_"
    return {
        report.knowledge_base: retriever_pb2.KnowledgeBaseStatus.Name(report.status).removeprefix(prefix)
        for report in answer.knowledge_bases
    }


def text(external_id: str, content: str, *, metadata: Mapping[str, str] | None = None, **said: Any) -> Any:
    """A document of plain text, and what is said of it."""
    document = chunker_pb2.Document(text=content, metadata=metadata or {})
    return ingestion_pb2.IngestDocument(external_id=external_id, document=document, **said)


def _question(query: str, names: Sequence[str], **fields: Any) -> retriever_pb2.RetrieveRequest:
    selectors = [retriever_pb2.KnowledgeBaseSelector(knowledge_base=name) for name in names]
    return retriever_pb2.RetrieveRequest(query=query, knowledge_bases=selectors, **fields)
