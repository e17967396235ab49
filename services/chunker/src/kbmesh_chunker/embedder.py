"""The embedder service as a counter of tokens."""

from collections.abc import Sequence

import grpc
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyInvalidResponse
from kbmesh_rpc.status import from_rpc_error

from kbmesh_chunker.token_counter import TokenCount, TokenCounts

EMBEDDER = "embedder"


class EmbedderTokenCounter:
    """Counts tokens by EmbedderService.CountTokens."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = embedder_pb2_grpc.EmbedderServiceStub(channel)

    @classmethod
    def connect(cls, address: str, *, max_message_bytes: int) -> "EmbedderTokenCounter":
        """A counter at `address`. Connects with the first call."""
        return cls(open_channel(address, max_message_bytes=max_message_bytes))

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        """See TokenCounter."""
        request = embedder_pb2.CountTokensRequest(
            model=model,
            texts=texts,
            input_type=embedder_pb2.INPUT_TYPE_DOCUMENT,
            return_offsets=offsets,
        )
        try:
            response = await self._stub.CountTokens(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, dependency=EMBEDDER) from error
        if len(response.counts) != len(texts):
            raise DependencyInvalidResponse(EMBEDDER, f"{len(response.counts)} counts came back for {len(texts)} texts")
        if response.max_tokens == 0:
            raise DependencyInvalidResponse(EMBEDDER, "the model's limit came back as 0 tokens")
        if any(len(count.starts) != len(count.ends) for count in response.counts):
            raise DependencyInvalidResponse(EMBEDDER, "a token came back without its start or its end")
        return TokenCounts(
            counts=[TokenCount(tokens=count.tokens, starts=count.starts, ends=count.ends) for count in response.counts],
            max_tokens=response.max_tokens,
            model_fingerprint=response.model_fingerprint,
        )

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()
