"""`kbmesh.retriever.v1.RetrieverService`: Protobuf in, Protobuf out."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1 import retriever_pb2_grpc
from kbmesh_rpc.call import current_call

from kbmesh_retriever.catalog.port import Catalog
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort, RerankerPort
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retriever_messages import read_request, write_answer
from kbmesh_retriever.stores.port import VectorStore


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """Serves retrieval. `reranker` and `rephraser` are None where none is configured: answers then say so."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: VectorStore,
        embedder: EmbedderPort,
        reranker: RerankerPort | None = None,
        rephraser: Rephraser | None = None,
        limits: RetrievalLimits | None = None,
    ) -> None:
        self._retrieval = Retrieval(
            catalog=catalog,
            store=store,
            embedder=embedder,
            reranker=reranker,
            rephraser=rephraser,
            limits=limits or RetrievalLimits(),
        )

    async def Retrieve(
        self, request: pb.RetrieveRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RetrieveResponse:
        call = current_call()
        answer = await self._retrieval.answer(
            read_request(request), tenant=call.tenant, principals=call.principals, deadline=call.deadline
        )
        return write_answer(answer, request_id=call.request_id)

    async def RetrieveStream(
        self, request: pb.RetrieveStreamRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.RetrieveStreamResponse]:
        call = current_call()
        answers = self._retrieval.answers(
            read_request(request.request), tenant=call.tenant, principals=call.principals, deadline=call.deadline
        )
        async with aclosing(answers):
            async for answer in answers:
                message = write_answer(answer, request_id=call.request_id)
                if answer.is_final:
                    yield pb.RetrieveStreamResponse(final=message)
                else:
                    yield pb.RetrieveStreamResponse(fused=message)
