"""The embedder service as a counter of tokens, and as what embeds sentences."""

from collections.abc import Sequence

import grpc
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh_rpc.certificates import Certificates
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyInvalidResponse
from kbmesh_rpc.metrics import zero_client
from kbmesh_rpc.status import from_item_error, from_rpc_error

from kbmesh_chunker.sentence_embedder import EMBEDDER, SentenceVectors, to_floats
from kbmesh_chunker.token_counter import TokenCount, TokenCounts

_FLOAT32 = (embedder_pb2.ENCODING_UNSPECIFIED, embedder_pb2.ENCODING_FLOAT32)


class EmbedderClient:
    """Counts tokens by EmbedderService.CountTokens, and embeds sentences by EmbedderService.Embed."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        zero_client("kbmesh.embedder.v1.EmbedderService", ("Embed", "CountTokens"))
        self._stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = embedder_pb2_grpc.EmbedderServiceStub(channel)

    @classmethod
    def connect(
        cls, address: str, *, max_message_bytes: int, certificates: Certificates | None = None
    ) -> "EmbedderClient":
        """A client of the embedder at `address`, by TLS where there are certificates. Connects with the first call."""
        return cls(open_channel(address, max_message_bytes=max_message_bytes, certificates=certificates))

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
        for count in response.counts:
            if count.HasField("error"):
                raise from_item_error(count.error, dependency=EMBEDDER)
        if response.max_tokens == 0:
            raise DependencyInvalidResponse(EMBEDDER, "the model's limit came back as 0 tokens")
        if any(len(count.starts) != len(count.ends) for count in response.counts):
            raise DependencyInvalidResponse(EMBEDDER, "a token came back without its start or its end")
        return TokenCounts(
            counts=[TokenCount(tokens=count.tokens, starts=count.starts, ends=count.ends) for count in response.counts],
            max_tokens=response.max_tokens,
            model_fingerprint=response.model_fingerprint,
        )

    async def embed(self, texts: Sequence[str], *, model: str) -> SentenceVectors:
        """See SentenceEmbedder. Waits in the lane of bulk work."""
        request = embedder_pb2.EmbedRequest(
            model=model,
            texts=texts,
            input_type=embedder_pb2.INPUT_TYPE_DOCUMENT,
            truncation=embedder_pb2.TRUNCATION_END,
            priority=embedder_pb2.PRIORITY_BULK,
            encoding=embedder_pb2.ENCODING_FLOAT32,
        )
        try:
            response = await self._stub.Embed(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, dependency=EMBEDDER) from error
        for receipt in response.receipts:
            if receipt.HasField("error"):
                raise from_item_error(receipt.error, dependency=EMBEDDER)
        batch = response.vectors
        if batch.count != len(texts):
            raise DependencyInvalidResponse(EMBEDDER, f"{batch.count} vectors came back for {len(texts)} sentences")
        if batch.encoding not in _FLOAT32 or len(batch.data) != 4 * batch.count * batch.dimension:
            raise DependencyInvalidResponse(
                EMBEDDER,
                f"{batch.count} vectors of {batch.dimension} numbers came back in {len(batch.data)} bytes,"
                f" in the form {batch.encoding}",
            )
        numbers, width = to_floats(batch.data), batch.dimension
        return SentenceVectors(
            vectors=[numbers[place * width : (place + 1) * width] for place in range(batch.count)],
            model_fingerprint=response.model_fingerprint,
        )

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()
