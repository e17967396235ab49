"""Between `tei.v1`, the contract of text-embeddings-inference, and the domain."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial

import grpc
from kbmesh_rpc.answer_stream import answer_in_order
from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.tei.answer import cuts_start, deadline, metadata, patiently, tei_codes
from kbmesh_rpc.tei.info_servicer import ServedModel
from kbmesh_rpc.tei.registrations import refuse_stream
from tei.v1 import tei_pb2 as pb2
from tei.v1 import tei_pb2_grpc

from kbmesh_embedder.backends.port import Truncation
from kbmesh_embedder.metrics import count_text
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_embedder.tei import TeiModel, TextEmbedding, TextOrder

SPARSE_VECTORS = "sparse vectors, which need a SPLADE model"
TOKENIZING_THREADS = 1
"""Interactive texts have one."""


def served_model(model: TeiModel, settings: EmbedderSettings) -> ServedModel:
    """What `tei.v1.Info` tells. Raises ModelNotReady."""
    description = model.description
    return ServedModel(
        name=description.name,
        fingerprint=description.fingerprint,
        precision=description.precision,
        kind="embedding",
        max_tokens=description.max_tokens,
        batch_tokens=settings.batch_tokens,
        queue_tokens=settings.queue_tokens,
        max_texts=settings.max_texts,
        tokenizing_threads=TOKENIZING_THREADS,
    )


class TeiEmbedServicer(tei_pb2_grpc.EmbedServicer):
    """Serves the default model."""

    def __init__(self, model: TeiModel, *, stream_concurrency: int) -> None:
        self._model = model
        self._stream_concurrency = stream_concurrency

    async def Embed(self, request: pb2.EmbedRequest, context: grpc.ServicerContext) -> pb2.EmbedResponse:
        """One text, one vector."""
        async with tei_codes(context):
            return await self._embed(request)

    async def EmbedStream(
        self, request_iterator: AsyncIterator[pb2.EmbedRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.EmbedResponse]:
        """Many texts, in their order. The first that fails ends the stream, as it does in that server."""

        async def one(request: pb2.EmbedRequest) -> pb2.EmbedResponse:
            return await patiently(partial(self._embed, request))

        async with tei_codes(context):
            answers = answer_in_order(request_iterator, one, concurrency=self._stream_concurrency)
            async with aclosing(answers):
                async for answer in answers:
                    yield answer

    async def EmbedSparse(
        self, request: pb2.EmbedSparseRequest, context: grpc.ServicerContext
    ) -> pb2.EmbedSparseResponse:
        """Refused: sparse vectors are a model's of another kind."""
        raise FeatureUnsupported(SPARSE_VECTORS)

    async def EmbedSparseStream(
        self, request_iterator: AsyncIterator[pb2.EmbedSparseRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.EmbedSparseResponse]:
        """Refused likewise."""
        await refuse_stream(request_iterator, SPARSE_VECTORS)
        yield pb2.EmbedSparseResponse()  # an asynchronous generator, as a stream of answers has to be

    async def EmbedAll(self, request: pb2.EmbedAllRequest, context: grpc.ServicerContext) -> pb2.EmbedAllResponse:
        """One text, a vector for each of its tokens."""
        async with tei_codes(context):
            return await self._embed_all(request)

    async def EmbedAllStream(
        self, request_iterator: AsyncIterator[pb2.EmbedAllRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.EmbedAllResponse]:
        """Many texts, likewise."""

        async def one(request: pb2.EmbedAllRequest) -> pb2.EmbedAllResponse:
            return await patiently(partial(self._embed_all, request))

        async with tei_codes(context):
            answers = answer_in_order(request_iterator, one, concurrency=self._stream_concurrency)
            async with aclosing(answers):
                async for answer in answers:
                    yield answer

    async def _embed(self, request: pb2.EmbedRequest) -> pb2.EmbedResponse:
        started = time.monotonic()
        order = TextOrder(
            text=request.inputs,
            truncation=_truncation(request),
            prompt_name=_prompt_name(request),
            normalize=request.normalize,
            dimensions=request.dimensions if request.HasField("dimensions") else None,
        )
        embedding = await self._model.embed(order, deadline=deadline())
        return pb2.EmbedResponse(
            embeddings=embedding.vectors.tolist(), metadata=self._metadata(started, order, embedding)
        )

    async def _embed_all(self, request: pb2.EmbedAllRequest) -> pb2.EmbedAllResponse:
        started = time.monotonic()
        order = TextOrder(text=request.inputs, truncation=_truncation(request), prompt_name=_prompt_name(request))
        embedding = await self._model.embed_tokens(order, deadline=deadline())
        return pb2.EmbedAllResponse(
            token_embeddings=[pb2.TokenEmbedding(embeddings=row) for row in embedding.vectors.tolist()],
            metadata=self._metadata(started, order, embedding),
        )

    def _metadata(self, started: float, order: TextOrder, embedding: TextEmbedding) -> pb2.Metadata:
        count_text(self._model.description.name, embedding.receipt)
        timings = embedding.timings
        return metadata(
            started=started,
            characters=len(order.text),
            tokens=embedding.receipt.tokens,
            queue_seconds=timings.queue_seconds,
            tokenize_seconds=timings.tokenize_seconds,
            infer_seconds=timings.infer_seconds,
        )


def _truncation(request: pb2.EmbedRequest | pb2.EmbedAllRequest) -> Truncation:
    start = cuts_start(request.truncation_direction)
    if not request.truncate:
        return Truncation.NONE
    return Truncation.START if start else Truncation.END


def _prompt_name(request: pb2.EmbedRequest | pb2.EmbedAllRequest) -> str | None:
    return request.prompt_name if request.HasField("prompt_name") else None
