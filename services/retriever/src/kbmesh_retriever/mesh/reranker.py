"""The reranker, over gRPC."""

from collections.abc import Sequence
from typing import Literal

import grpc
from kbmesh.reranker.v1 import reranker_pb2 as pb
from kbmesh.reranker.v1.reranker_pb2_grpc import RerankerServiceStub
from kbmesh_rpc.errors import DependencyInvalidResponse
from kbmesh_rpc.metrics import zero_client
from kbmesh_rpc.status import from_item_error

from kbmesh_retriever.mesh.calls import answer
from kbmesh_retriever.mesh.port import Relevance, Reranked

_NAME = "reranker"
_METHODS: dict[int, Literal["cross_encoder", "late_interaction"]] = {
    pb.METHOD_CROSS_ENCODER: "cross_encoder",
    pb.METHOD_LATE_INTERACTION: "late_interaction",
}


class RerankerClient:
    """A `RerankerPort`."""

    def __init__(self, channel: grpc.aio.Channel, *, limit_seconds: float = 30) -> None:
        self._stub = RerankerServiceStub(channel)
        zero_client("kbmesh.reranker.v1.RerankerService", ("Rerank",))
        self._limit_seconds = limit_seconds

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        request = pb.RerankRequest(query=query, documents=documents)
        response = await self._rerank(request)
        method = _METHODS.get(response.method)
        if method is None:
            raise DependencyInvalidResponse(_NAME, f"the reranker scored by method {response.method}")
        if sorted(result.index for result in response.results) != list(range(len(documents))):
            raise DependencyInvalidResponse(
                _NAME, f"the reranker's {len(response.results)} results are not one for each of {len(documents)}"
            )
        return Reranked(
            method=method,
            model=response.model,
            fingerprint=response.model_fingerprint,
            results=tuple(_relevance(result, method) for result in response.results),
        )

    async def _rerank(self, request: pb.RerankRequest) -> pb.RerankResponse:
        return await answer(
            lambda timeout: self._stub.Rerank(request, timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )


def _relevance(result: pb.Result, method: Literal["cross_encoder", "late_interaction"]) -> Relevance:
    relevance = Relevance(
        index=result.index,
        logit=result.logit if result.HasField("logit") else None,
        probability=result.probability if result.HasField("probability") else None,
        max_sim=result.max_sim if result.HasField("max_sim") else None,
        error=from_item_error(result.error, dependency=_NAME) if result.HasField("error") else None,
    )
    score = relevance.probability if method == "cross_encoder" else relevance.max_sim
    if relevance.error is None and score is None:
        raise DependencyInvalidResponse(_NAME, "the reranker gave a result with neither score nor error")
    return relevance
