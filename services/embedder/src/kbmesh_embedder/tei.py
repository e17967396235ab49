"""What `tei.v1` asks of an embedding model, and what differs there from kbmesh's own contract.

No prompt is put before a text unless the caller names one, a blank text is embedded, a text that fails fails its call,
and vectors have unit length only where the caller asks for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from kbmesh_onnx.token_reader import Token, UnknownTokenError
from kbmesh_rpc.errors import EmptyText, FeatureUnsupported, InferenceFailed, InvalidField, RequestTooLarge
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import (
    EmbeddingBackend,
    InputType,
    ModelDescription,
    Priority,
    TextReceipt,
    Timings,
    Truncation,
)
from kbmesh_embedder.backends.queued import queue_errors
from kbmesh_embedder.backends.raw import RawBackend, RawEmbedding
from kbmesh_embedder.models import ModelRegistry

Floats = NDArray[np.float32]
BackendT = TypeVar("BackendT")

PROMPTS = {"query": InputType.QUERY, "document": InputType.DOCUMENT, "passage": InputType.DOCUMENT}
"""Names under which sentence-transformers' models keep their prompts, and whose prompt of kbmesh's it is."""


@dataclass(frozen=True, kw_only=True)
class TextOrder:
    """One text to embed."""

    text: str
    truncation: Truncation
    prompt_name: str | None
    normalize: bool = False
    dimensions: int | None = None
    """Numbers to keep. None keeps all."""


@dataclass(frozen=True, kw_only=True)
class TextEmbedding:
    """What became of one text."""

    vectors: Floats
    """(dimension,), or (tokens, dimension) where the tokens' vectors were asked for."""
    receipt: TextReceipt
    timings: Timings


class TeiModel:
    """The default model of a registry, as `tei.v1` sees it."""

    def __init__(self, models: ModelRegistry, *, text_characters: int) -> None:
        self._models = models
        self._text_characters = text_characters

    @property
    def description(self) -> ModelDescription:
        """The model. Raises ModelNotReady."""
        return self._models.find("").description

    async def embed(self, order: TextOrder, *, deadline: float | None) -> TextEmbedding:
        """One vector. Raises EmptyText, RequestTooLarge, TextTooLong, InvalidField (prompt_name, dimensions),
        FeatureUnsupported, ModelNotReady, InferenceFailed, and what the backend raises."""
        self._check(order.text)
        backend = self._models.find("")
        model = backend.description
        dimension = _dimension(model, order.dimensions)
        if isinstance(backend, RawBackend):
            pools = model.normalized and not order.normalize
            if pools and model.pooling not in {"mean", "cls"}:
                raise FeatureUnsupported(f"vectors without unit length of a model with {model.pooling} pooling")
            raw = await self._raw(backend, order, token_vectors=pools, deadline=deadline)
            vector = pool(raw.token_vectors, model.pooling) if pools else raw.vector
            receipt, timings = raw.receipt, raw.timings
        else:
            vector, receipt, timings = await _embed_plainly(backend, order, deadline=deadline)
        vector = vector[:dimension]
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if not np.isfinite(length):
            raise InferenceFailed(model.name, "the model gave numbers that are not finite")
        if order.normalize:
            if length == 0:
                raise InferenceFailed(model.name, "the model gave a vector of zeros")
            vector = (vector / length).astype(np.float32)
        return TextEmbedding(vectors=vector, receipt=receipt, timings=timings)

    async def embed_tokens(self, order: TextOrder, *, deadline: float | None) -> TextEmbedding:
        """A vector for each token that the model read, special ones included, as the last layer has them.

        Raises what `embed` raises."""
        self._check(order.text)
        backend = self._models.find("")
        raw = await self._raw(_capable(backend, "vectors of tokens"), order, token_vectors=True, deadline=deadline)
        if not np.isfinite(raw.token_vectors).all():
            raise InferenceFailed(backend.description.name, "the model gave numbers that are not finite")
        return TextEmbedding(vectors=raw.token_vectors, receipt=raw.receipt, timings=raw.timings)

    async def tokens(self, text: str, *, prompt_name: str | None, special_tokens: bool) -> Sequence[Token]:
        """The tokens of a text with its prompt, nothing cut."""
        self._check(text)
        backend = self._models.find("")
        prompt = _prompt(backend.description, prompt_name)
        with queue_errors():
            return await _capable(backend, "tokens").token_reader.tokens(prompt + text, special_tokens=special_tokens)

    async def text(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of tokens. Raises EmptyText where there is none, and InvalidField for one that does not exist."""
        if not ids:
            raise EmptyText("ids")
        if len(ids) > self._text_characters:
            raise RequestTooLarge(field="ids", limit=self._text_characters, actual=len(ids))
        reader = _capable(self._models.find(""), "tokens").token_reader
        try:
            with queue_errors():
                return await reader.text(ids, skip_special_tokens=skip_special_tokens)
        except UnknownTokenError as error:
            raise InvalidField(
                f"ids[{error.position}]", f"the vocabulary has the tokens below {error.vocabulary}"
            ) from error

    def _check(self, text: str) -> None:
        if not text:
            raise EmptyText("inputs")
        if len(text) > self._text_characters:
            raise RequestTooLarge(field="inputs", limit=self._text_characters, actual=len(text))

    async def _raw(
        self, backend: RawBackend, order: TextOrder, *, token_vectors: bool, deadline: float | None
    ) -> RawEmbedding:
        return await backend.embed_raw(
            order.text,
            prompt=_prompt(self.description, order.prompt_name),
            truncation=order.truncation,
            token_vectors=token_vectors,
            deadline=deadline,
        )


def pool(token_vectors: Floats, pooling: str) -> Floats:
    """The (dimension,) vector of (tokens, dimension) ones, not of unit length: their mean, or the first."""
    pooled: Floats = token_vectors.mean(axis=0, dtype=np.float32) if pooling == "mean" else token_vectors[0]
    return pooled


async def _embed_plainly(
    backend: EmbeddingBackend, order: TextOrder, *, deadline: float | None
) -> tuple[Floats, TextReceipt, Timings]:
    """The vector of a backend that knows queries and documents only, as the backend gives it."""
    embeddings = await backend.embed(
        [order.text],
        input_type=_input_type(backend.description, order.prompt_name),
        truncation=order.truncation,
        priority=Priority.INTERACTIVE,
        deadline=deadline,
    )
    receipt = embeddings.receipts[0]
    if isinstance(receipt.error, EmptyText):
        raise EmptyText("inputs")
    if receipt.error is not None:
        raise receipt.error
    return embeddings.vectors[0], receipt, embeddings.timings


def _input_type(model: ModelDescription, prompt_name: str | None) -> InputType:
    if prompt_name is not None:
        return _role(prompt_name)
    if not model.document_prefix:
        return InputType.DOCUMENT
    if not model.query_prefix:
        return InputType.QUERY
    raise FeatureUnsupported(f"texts without a prompt for {model.name}; name one in prompt_name")


def _prompt(model: ModelDescription, prompt_name: str | None) -> str:
    if prompt_name is None:
        return ""
    return model.query_prefix if _role(prompt_name) is InputType.QUERY else model.document_prefix


def _role(prompt_name: str) -> InputType:
    role = PROMPTS.get(prompt_name)
    if role is None:
        raise InvalidField("prompt_name", f"there is no such prompt; there are {', '.join(PROMPTS)}")
    return role


def _dimension(model: ModelDescription, asked: int | None) -> int:
    if asked is None:
        return model.dimension
    if not 1 <= asked <= model.dimension:
        raise InvalidField("dimensions", f"must be 1 to {model.dimension}, is {asked}")
    return asked


def _capable(backend: EmbeddingBackend, feature: str) -> RawBackend:
    if not isinstance(backend, RawBackend):
        raise FeatureUnsupported(f"{feature} with the backend {backend.description.backend}")
    return backend
