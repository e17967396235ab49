"""The embedder, over gRPC."""

from collections.abc import Iterator, Sequence
from typing import Literal

import grpc
import numpy as np
from kbmesh.embedder.v1 import embedder_pb2 as pb
from kbmesh.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from kbmesh_rpc.errors import DependencyInvalidResponse, KbmeshError, ModelMismatch, ModelNotFound
from kbmesh_rpc.metrics import zero_client
from kbmesh_rpc.status import from_item_error
from numpy.typing import NDArray

from kbmesh_retriever.mesh.calls import Remembered, answer
from kbmesh_retriever.mesh.port import Embedded, ModelInfo

_NAME = "embedder"
_MODELS_SECONDS = 30.0
_MAX_TEXTS = 256
_MAX_CHARACTERS = 4_000_000
"""In one request: at most 16 MB of UTF-8, well below what a message may have."""


class EmbedderClient:
    """An `EmbedderPort`. Large requests are sent in parts, one after the other, so that others get their turn."""

    def __init__(self, channel: grpc.aio.Channel, *, limit_seconds: float = 120) -> None:
        self._stub = EmbedderServiceStub(channel)
        zero_client("kbmesh.embedder.v1.EmbedderService", ("Embed", "CountTokens", "ListModels"))
        self._limit_seconds = limit_seconds
        self._models = Remembered(self._list_models, seconds=_MODELS_SECONDS)

    async def find_model(self, name: str) -> ModelInfo:
        # A name that is not remembered may have come since.
        for fresh in (False, True):
            models = (await self._models.get(fresh=fresh)).models
            for model in models:
                if model.name == name or (not name and model.is_default):
                    return ModelInfo(
                        name=model.name,
                        fingerprint=model.fingerprint,
                        dimension=model.dimension,
                        max_tokens=model.max_tokens,
                        provider=model.backend or "onnx",
                    )
        raise ModelNotFound(name, [model.name for model in models])

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        """Texts over the model's limit lose their end; `tokens_cut` tells. `texts` is not empty."""
        parts: list[Embedded] = []
        for part in _parts(texts):
            request = pb.EmbedRequest(
                model=model,
                texts=part,
                input_type=pb.INPUT_TYPE_QUERY if input_type == "query" else pb.INPUT_TYPE_DOCUMENT,
                truncation=pb.TRUNCATION_END,
                priority=pb.PRIORITY_INTERACTIVE if priority == "interactive" else pb.PRIORITY_BULK,
                encoding=pb.ENCODING_FLOAT32,
                expected_fingerprint=expected_fingerprint,
            )
            response = await self._embed(request)
            parts.append(_embedded(response, part, expected_fingerprint))
        return _joined(parts)

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        counts: list[int] = []
        for part in _parts(texts):
            request = pb.CountTokensRequest(model=model, texts=part, input_type=pb.INPUT_TYPE_DOCUMENT)
            response = await self._count_tokens(request)
            if len(response.counts) != len(part):
                raise DependencyInvalidResponse(
                    _NAME, f"the embedder gave {len(response.counts)} counts for {len(part)} texts"
                )
            for count in response.counts:
                if count.HasField("error"):
                    raise from_item_error(count.error, dependency=_NAME)
            counts.extend(count.tokens for count in response.counts)
        return counts

    async def _list_models(self) -> pb.ListModelsResponse:
        return await answer(
            lambda timeout: self._stub.ListModels(pb.ListModelsRequest(), timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )

    async def _embed(self, request: pb.EmbedRequest) -> pb.EmbedResponse:
        return await answer(
            lambda timeout: self._stub.Embed(request, timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )

    async def _count_tokens(self, request: pb.CountTokensRequest) -> pb.CountTokensResponse:
        return await answer(
            lambda timeout: self._stub.CountTokens(request, timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    characters = 0
    for text in texts:
        if part and (len(part) == _MAX_TEXTS or characters + len(text) > _MAX_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    if part:
        yield part


def _embedded(response: pb.EmbedResponse, texts: Sequence[str], expected_fingerprint: str) -> Embedded:
    """What the response holds, once it is known to be about these texts and this model."""
    if expected_fingerprint and response.model_fingerprint != expected_fingerprint:
        raise ModelMismatch(response.model, expected=expected_fingerprint, actual=response.model_fingerprint)
    if len(response.receipts) != len(texts):
        raise DependencyInvalidResponse(
            _NAME, f"the embedder gave {len(response.receipts)} receipts for {len(texts)} texts"
        )
    errors = tuple(
        from_item_error(receipt.error, dependency=_NAME) if receipt.HasField("error") else None
        for receipt in response.receipts
    )
    return Embedded(
        vectors=_vectors(response.vectors, errors),
        errors=errors,
        tokens=tuple(receipt.tokens for receipt in response.receipts),
        tokens_cut=tuple(receipt.tokens_cut for receipt in response.receipts),
        model=response.model,
        fingerprint=response.model_fingerprint,
        queue_seconds=max(0.0, response.timings.queue_ms / 1000),
    )


def _vectors(batch: pb.VectorBatch, errors: Sequence[KbmeshError | None]) -> NDArray[np.float32]:
    if batch.encoding not in (pb.ENCODING_UNSPECIFIED, pb.ENCODING_FLOAT32):
        raise DependencyInvalidResponse(_NAME, "the embedder gave vectors of an encoding that was not asked for")
    if batch.count != len(errors) or len(batch.data) != 4 * batch.count * batch.dimension or not batch.dimension:
        raise DependencyInvalidResponse(
            _NAME,
            f"the embedder gave {batch.count} vectors of {batch.dimension} numbers in {len(batch.data)} bytes "
            f"for {len(errors)} texts",
        )
    vectors = np.frombuffer(batch.data, dtype="<f4").reshape(batch.count, batch.dimension)
    embedded = np.array([error is None for error in errors])
    usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    if not usable[embedded].all():
        raise DependencyInvalidResponse(_NAME, "the embedder gave a vector that is zero or not finite")
    return vectors


def _joined(parts: Sequence[Embedded]) -> Embedded:
    first = parts[0]
    if any(part.fingerprint != first.fingerprint for part in parts):
        raise DependencyInvalidResponse(_NAME, "the embedder's model changed between two parts of a request")
    if any(part.vectors.shape[1] != first.vectors.shape[1] for part in parts):
        raise DependencyInvalidResponse(_NAME, "the embedder's dimension changed between two parts of a request")
    return Embedded(
        vectors=np.concatenate([part.vectors for part in parts]),
        errors=tuple(error for part in parts for error in part.errors),
        tokens=tuple(tokens for part in parts for tokens in part.tokens),
        tokens_cut=tuple(cut for part in parts for cut in part.tokens_cut),
        model=first.model,
        fingerprint=first.fingerprint,
        queue_seconds=sum(part.queue_seconds for part in parts),
    )
