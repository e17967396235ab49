"""`kbmesh.retriever.v1.RetrieverService`: Protobuf in, Protobuf out."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1 import retriever_pb2_grpc
from kbmesh_rpc.call import CallContext, current_call
from kbmesh_rpc.deadline import Deadline

from kbmesh_retriever.answer_bytes import encode_answer, write_served
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.attribution.links import S3Links
from kbmesh_retriever.cache.answers import Answers, Served
from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.catalog.port import CatalogReader
from kbmesh_retriever.link_messages import sign_links
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort, RerankerPort
from kbmesh_retriever.profile_defaults import UnderProfile, apply_profile
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retriever_messages import read_request
from kbmesh_retriever.stores.port import StoreReader


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """Serves retrieval. `reranker` and `rephraser` are None where none is configured: answers then say so."""

    def __init__(
        self,
        *,
        catalog: CatalogReader,
        store: StoreReader,
        embedder: EmbedderPort,
        reranker: RerankerPort | None = None,
        rephraser: Rephraser | None = None,
        limits: RetrievalLimits | None = None,
        answers: Answers | None = None,
        tokenizers: ContextTokenizers | None = None,
        links: S3Links | None = None,
    ) -> None:
        """Without `answers`, none are kept; without `links`, none are presigned."""
        limits = limits or RetrievalLimits()
        self._answers = answers or Answers(None, catalog, CacheMetrics("answers"), limits=limits, encode=encode_answer)
        self._catalog = catalog
        self._retrieval = Retrieval(
            catalog=catalog,
            store=store,
            embedder=embedder,
            reranker=reranker,
            rephraser=rephraser,
            limits=limits,
            tokenizers=tokenizers,
        )
        self._links = links

    async def Retrieve(
        self, request: pb.RetrieveRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RetrieveResponse:
        call = current_call()
        under = await self._under_profile(request, call)
        asked = read_request(under.request)

        async def compute(deadline: Deadline) -> Answer:
            return await self._retrieval.answer(
                asked, tenant=call.tenant, principals=call.principals, deadline=deadline
            )

        served = await self._answers.answer(asked, call=call, skip=request.skip_cache, compute=compute)
        return await self._write(served, call, under)

    async def RetrieveStream(
        self, request: pb.RetrieveStreamRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.RetrieveStreamResponse]:
        call = current_call()
        under = await self._under_profile(request.request, call)
        asked = read_request(under.request)
        found = await self._answers.look_up(asked, call=call, skip=request.request.skip_cache)
        if found.served is not None:
            yield pb.RetrieveStreamResponse(final=await self._write(found.served, call, under))
            return
        answers = self._retrieval.answers(asked, tenant=call.tenant, principals=call.principals, deadline=call.deadline)
        async with aclosing(answers):
            async for answer in answers:
                served = Served(answer=answer, origin=found.origin, timings=answer.timings)
                message = await self._write(served, call, under)
                if answer.is_final:
                    yield pb.RetrieveStreamResponse(final=message)
                    await found.keep(answer)
                else:
                    yield pb.RetrieveStreamResponse(fused=message)

    async def _write(self, served: Served, call: CallContext, under: UnderProfile) -> pb.RetrieveResponse:
        message = write_served(served, request_id=call.request_id)
        # Of this request under its profile: another that comes to the same question shares the answer and not this.
        message.not_applied.extend(pb.NotApplied(field=one.field, message=one.description) for one in under.left_out)
        await sign_links(message, self._links, tenant=call.tenant)
        return message

    async def _under_profile(self, request: pb.RetrieveRequest, call: CallContext) -> UnderProfile:
        if not request.profile:
            return UnderProfile(request=request)
        return await apply_profile(request, self._catalog.profiles, tenant=call.tenant, deadline=call.deadline)
