"""Calling a reranker, and reading its answers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest
from kbmesh.errors.v1 import errors_pb2
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh.reranker.v1.reranker_pb2_grpc import RerankerServiceStub
from kbmesh_reranker.application import make_application
from kbmesh_reranker.settings import RerankerSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error


class Reranker:
    """A client that says what it asks in one line."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = RerankerServiceStub(channel)

    async def rerank(self, query: str, documents: Sequence[str], **options: object) -> pb2.RerankResponse:
        return await self.stub.Rerank(pb2.RerankRequest(query=query, documents=documents, **options))

    async def refusal(self, query: str, documents: Sequence[str], **options: object) -> KbmeshError:
        """The error of a call that must fail."""
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await self.rerank(query, documents, **options)
        return from_rpc_error(failure.value, dependency="reranker")

    async def models(self) -> Sequence[pb2.Model]:
        return (await self.stub.ListModels(pb2.ListModelsRequest())).models


@asynccontextmanager
async def serving(**settings: object) -> AsyncIterator[Reranker]:
    """A reranker with these settings."""
    chosen = RerankerSettings(port=0, metrics_port=0, device="cpu", **settings)
    async with running(await make_application(chosen), chosen) as target, open_channel(target) as channel:
        yield Reranker(channel)


def order(response: pb2.RerankResponse) -> list[int]:
    return [result.index for result in response.results]


def reason(error: errors_pb2.ItemError) -> Reason:
    return Reason(errors_pb2.ErrorReason.Name(error.reason))
