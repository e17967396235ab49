"""Calling an embedder, and reading its answers."""

from collections.abc import AsyncIterator, Sequence

import grpc
import numpy as np
import pytest
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from kbmesh.errors.v1 import errors_pb2
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from numpy.typing import NDArray


class Embedder:
    """A client that says what it asks in one line."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = EmbedderServiceStub(channel)

    async def embed(
        self, texts: Sequence[str], *, input_type: int = pb2.INPUT_TYPE_DOCUMENT, **options: object
    ) -> pb2.EmbedResponse:
        return await self.stub.Embed(pb2.EmbedRequest(texts=texts, input_type=input_type, **options))

    async def vectors(self, texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        return matrix(await self.embed(texts, **options))

    async def refusal(self, texts: Sequence[str], **options: object) -> KbmeshError:
        """The error of a call that must fail."""
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await self.embed(texts, **options)
        return from_rpc_error(failure.value, dependency="embedder")

    async def stream(self, requests: Sequence[pb2.EmbedStreamRequest]) -> dict[int, pb2.EmbedStreamResponse]:
        async def send() -> AsyncIterator[pb2.EmbedStreamRequest]:
            for request in requests:
                yield request

        return {answer.sequence: answer async for answer in self.stub.EmbedStream(send())}


def matrix(response: pb2.EmbedResponse) -> NDArray[np.float32]:
    """The response's vectors as numbers, (count, dimension) float32."""
    vectors = response.vectors
    form = {pb2.ENCODING_FLOAT32: "<f4", pb2.ENCODING_FLOAT16: "<f2", pb2.ENCODING_INT8: "i1"}[vectors.encoding]
    numbers = np.frombuffer(vectors.data, dtype=form).astype(np.float32).reshape(vectors.count, vectors.dimension)
    return numbers * np.array(vectors.scales, dtype=np.float32)[:, np.newaxis] if vectors.scales else numbers


def reason(error: errors_pb2.ItemError) -> Reason:
    return Reason(errors_pb2.ErrorReason.Name(error.reason))
