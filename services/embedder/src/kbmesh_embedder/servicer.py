"""Between the contract's messages and the domain."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TypeVar

import grpc
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh.embedder.v1 import embedder_pb2_grpc
from kbmesh_rpc.answer_stream import answer_as_done
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import InvalidField, KbmeshError
from kbmesh_rpc.status import to_item_error

from kbmesh_embedder.backends.port import InputType, Priority, TextReceipt, TokenCount, Truncation
from kbmesh_embedder.embedding import CallLimits, EmbedOrder, check_texts, embed, oversized
from kbmesh_embedder.encoding import Encoding, encode
from kbmesh_embedder.metrics import count_receipts
from kbmesh_embedder.models import ModelRegistry, ModelState

T = TypeVar("T")
WireT = TypeVar("WireT", bound=int)

INPUT_TYPES = {pb2.INPUT_TYPE_QUERY: InputType.QUERY, pb2.INPUT_TYPE_DOCUMENT: InputType.DOCUMENT}
TRUNCATIONS = {
    pb2.TRUNCATION_UNSPECIFIED: Truncation.END,
    pb2.TRUNCATION_END: Truncation.END,
    pb2.TRUNCATION_START: Truncation.START,
    pb2.TRUNCATION_NONE: Truncation.NONE,
}
PRIORITIES = {
    pb2.PRIORITY_UNSPECIFIED: Priority.INTERACTIVE,
    pb2.PRIORITY_INTERACTIVE: Priority.INTERACTIVE,
    pb2.PRIORITY_BULK: Priority.BULK,
}
ENCODINGS = {
    pb2.ENCODING_UNSPECIFIED: Encoding.FLOAT32,
    pb2.ENCODING_FLOAT32: Encoding.FLOAT32,
    pb2.ENCODING_FLOAT16: Encoding.FLOAT16,
    pb2.ENCODING_INT8: Encoding.INT8,
}
SPARE_BYTES = 64
"""For what a stream's answer has besides."""
FRAME_BYTES = 8
"""For a message within another."""
LONG_COUNT = 1000
"""Places of tokens in one text that are many."""
WIRE_ENCODINGS = {
    Encoding.FLOAT32: pb2.ENCODING_FLOAT32,
    Encoding.FLOAT16: pb2.ENCODING_FLOAT16,
    Encoding.INT8: pb2.ENCODING_INT8,
}


class EmbedderServicer(embedder_pb2_grpc.EmbedderServiceServicer):
    """Serves the models of a registry. What it raises, the server turns into a status."""

    def __init__(self, models: ModelRegistry, *, limits: CallLimits, stream_concurrency: int) -> None:
        self._models = models
        self._limits = limits
        self._stream_concurrency = stream_concurrency

    async def Embed(self, request: pb2.EmbedRequest, context: grpc.ServicerContext) -> pb2.EmbedResponse:
        """Embeds the texts of one request."""
        return await self._embed(request)

    async def EmbedStream(
        self, request_iterator: AsyncIterator[pb2.EmbedStreamRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.EmbedStreamResponse]:
        """Embeds the texts of many requests, several at once."""
        answers = answer_as_done(request_iterator, self._embed_one, concurrency=self._stream_concurrency)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def ListModels(self, request: pb2.ListModelsRequest, context: grpc.ServicerContext) -> pb2.ListModelsResponse:
        """Tells of every configured model, loaded or not."""
        return pb2.ListModelsResponse(models=[_model(state) for state in self._models.states()])

    async def CountTokens(
        self, request: pb2.CountTokensRequest, context: grpc.ServicerContext
    ) -> pb2.CountTokensResponse:
        """Counts tokens without running the model."""
        backend = self._models.find(request.model)
        input_type = (
            InputType.DOCUMENT if request.input_type == pb2.INPUT_TYPE_UNSPECIFIED else _input_type(request.input_type)
        )
        check_texts(request.texts, self._limits)
        too_large = oversized(request.texts, self._limits)
        fitting = [text for index, text in enumerate(request.texts) if index not in too_large]
        counted = iter(await backend.count_tokens(fitting, input_type=input_type, with_offsets=request.return_offsets))
        response = pb2.CountTokensResponse(
            max_tokens=backend.description.max_tokens, model_fingerprint=backend.description.fingerprint
        )
        size = response.ByteSize() + SPARE_BYTES
        for index in range(len(request.texts)):
            if index in too_large:
                response.counts.add(error=to_item_error(too_large[index]))
                continue
            count = next(counted)
            response.counts.append(_count(count))
            size += response.counts[-1].ByteSize() + FRAME_BYTES
            self._limits.check_answer(size)
            if len(count.starts) > LONG_COUNT:
                # Others have their turn: there may be millions of places.
                await asyncio.sleep(0)
        return response

    async def _embed_one(self, request: pb2.EmbedStreamRequest) -> pb2.EmbedStreamResponse:
        try:
            response = await self._embed(request.request)
        except KbmeshError as error:
            return pb2.EmbedStreamResponse(sequence=request.sequence, error=to_item_error(error))
        return pb2.EmbedStreamResponse(sequence=request.sequence, response=response)

    async def _embed(self, request: pb2.EmbedRequest) -> pb2.EmbedResponse:
        backend = self._models.find(request.model)
        order = _order(request)
        encoding = _choice(ENCODINGS, request.encoding, "encoding")
        model = backend.description
        embeddings = await embed(backend, order, limits=self._limits, deadline=_deadline())
        count_receipts(model.name, embeddings)
        encoded = encode(embeddings.vectors, encoding)
        count, dimension = embeddings.vectors.shape
        timings = embeddings.timings
        response = pb2.EmbedResponse(
            vectors=pb2.VectorBatch(
                data=encoded.data,
                encoding=WIRE_ENCODINGS[encoding],
                count=count,
                dimension=dimension,
                scales=encoded.scales,
            ),
            receipts=[_receipt(receipt) for receipt in embeddings.receipts],
            model=model.name,
            model_fingerprint=model.fingerprint,
            timings=pb2.Timings(
                queue_ms=timings.queue_seconds * 1000,
                tokenize_ms=timings.tokenize_seconds * 1000,
                infer_ms=timings.infer_seconds * 1000,
            ),
        )
        # gRPC would end the call without a reason, and a stream with all that is in work.
        self._limits.check_answer(response.ByteSize() + SPARE_BYTES)
        return response


def _order(request: pb2.EmbedRequest) -> EmbedOrder:
    return EmbedOrder(
        texts=list(request.texts),
        input_type=_input_type(request.input_type),
        truncation=_choice(TRUNCATIONS, request.truncation, "truncation"),
        dimensions=request.dimensions if request.HasField("dimensions") else None,
        priority=_choice(PRIORITIES, request.priority, "priority"),
        expected_fingerprint=request.expected_fingerprint,
    )


def _choice(choices: Mapping[WireT, T], value: WireT, field: str) -> T:
    choice = choices.get(value)
    if choice is None:
        raise InvalidField(field, f"{value} is not one of its values")
    return choice


def _input_type(value: pb2.InputType.ValueType) -> InputType:
    return _choice(INPUT_TYPES, value, "input_type")


def _deadline() -> float | None:
    call = optional_call()
    if call is None or call.deadline is None:
        return None
    return time.monotonic() + call.deadline.remaining()


def _count(count: TokenCount) -> pb2.TokenCount:
    return pb2.TokenCount(tokens=count.tokens, starts=count.starts, ends=count.ends, estimated=count.estimated)


def _receipt(receipt: TextReceipt) -> pb2.Receipt:
    return pb2.Receipt(
        tokens=receipt.tokens,
        tokens_cut=receipt.tokens_cut,
        tokens_estimated=receipt.tokens_estimated,
        error=to_item_error(receipt.error) if receipt.error is not None else None,
    )


def _model(state: ModelState) -> pb2.Model:
    if state.backend is None:
        return pb2.Model(name=state.name, not_ready_reason=state.not_ready_reason, is_default=state.is_default)
    model = state.backend.description
    return pb2.Model(
        name=state.name,
        fingerprint=model.fingerprint,
        dimension=model.dimension,
        max_tokens=model.max_tokens,
        pooling=model.pooling,
        normalized=model.normalized,
        matryoshka_dimensions=model.matryoshka_dimensions,
        query_prefix=model.query_prefix,
        document_prefix=model.document_prefix,
        device=model.device,
        precision=model.precision,
        backend=model.backend,
        ready=True,
        is_default=state.is_default,
    )
