"""What every model owes its callers: limits, blank texts, equal texts, unusable vectors, shorter vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from kbmesh_rpc.errors import EmptyText, InferenceFailed, InvalidField, KbmeshError, ModelMismatch, RequestTooLarge
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import (
    EmbeddingBackend,
    Embeddings,
    InputType,
    ModelDescription,
    Priority,
    TextReceipt,
    Truncation,
)


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What one call may bring."""

    texts: int
    text_characters: int
    answer_bytes: int = 2**31 - 1
    """Largest answer that can be sent."""

    def check_answer(self, size: int) -> None:
        """Raises RequestTooLarge where an answer of so many bytes could not be sent."""
        if size > self.answer_bytes:
            raise RequestTooLarge(field="texts", limit=self.answer_bytes, actual=size)


@dataclass(frozen=True, kw_only=True)
class EmbedOrder:
    """What a caller wants of a model."""

    texts: Sequence[str]
    input_type: InputType
    truncation: Truncation = Truncation.END
    dimensions: int | None = None
    """Size to shorten vectors to. None leaves them whole."""
    priority: Priority = Priority.INTERACTIVE
    expected_fingerprint: str = ""
    """Not checked when empty."""


def check_texts(texts: Sequence[str], limits: CallLimits) -> None:
    """Raises InvalidField where there is no text, and RequestTooLarge where there are too many."""
    if not texts:
        raise InvalidField("texts", "at least one text is needed")
    if len(texts) > limits.texts:
        raise RequestTooLarge(field="texts", limit=limits.texts, actual=len(texts))


def oversized(texts: Sequence[str], limits: CallLimits) -> dict[int, RequestTooLarge]:
    """What is to be said of the texts that are too long, by their index."""
    return {
        index: RequestTooLarge(field=f"texts[{index}]", limit=limits.text_characters, actual=len(text))
        for index, text in enumerate(texts)
        if len(text) > limits.text_characters
    }


async def embed(
    backend: EmbeddingBackend, order: EmbedOrder, *, limits: CallLimits, deadline: float | None
) -> Embeddings:
    """Vectors and receipts of the order's texts, in their order.

    A blank text, one that is too long, and one for which the model gave no usable vector, fails alone. Equal texts are
    embedded once, and so have the very same vector. Raises InvalidField (no text, dimensions), RequestTooLarge (too
    many texts), ModelMismatch, and what the backend raises.
    """
    check_texts(order.texts, limits)
    too_large = oversized(order.texts, limits)
    model = backend.description
    if order.expected_fingerprint and order.expected_fingerprint != model.fingerprint:
        raise ModelMismatch(model.name, expected=order.expected_fingerprint, actual=model.fingerprint)
    dimension = _dimension(model, order.dimensions)
    wanted = dict.fromkeys(text for index, text in enumerate(order.texts) if index not in too_large and text.strip())
    places = {text: place for place, text in enumerate(wanted)}
    embedded = await backend.embed(
        list(places),
        input_type=order.input_type,
        truncation=order.truncation,
        priority=order.priority,
        deadline=deadline,
    )
    distinct, errors = _usable(embedded.vectors, dimension, model)
    vectors = np.zeros((len(order.texts), dimension), dtype=np.float32)
    receipts = []
    for index, text in enumerate(order.texts):
        place = places.get(text)
        if place is None:
            receipts.append(TextReceipt(error=too_large.get(index) or EmptyText(f"texts[{index}]")))
            continue
        receipt = embedded.receipts[place]
        if isinstance(receipt.error, EmptyText):
            receipt = TextReceipt(error=EmptyText(f"texts[{index}]"))
        elif receipt.error is None and place in errors:
            receipt = replace(receipt, error=errors[place])
        if receipt.error is None:
            vectors[index] = distinct[place]
        receipts.append(receipt)
    return Embeddings(vectors=vectors, receipts=tuple(receipts), timings=embedded.timings)


def _dimension(model: ModelDescription, asked: int | None) -> int:
    if asked is None or asked == model.dimension:
        return model.dimension
    if asked not in model.matryoshka_dimensions:
        sizes = ", ".join(map(str, (model.dimension, *model.matryoshka_dimensions)))
        raise InvalidField("dimensions", f"{model.name} has vectors of {sizes} numbers, not of {asked}")
    return asked


def _usable(
    vectors: NDArray[np.float32], dimension: int, model: ModelDescription
) -> tuple[NDArray[np.float32], dict[int, KbmeshError]]:
    """Vectors of the wanted size, and why rows that are not finite or zero cannot be used."""
    shortened = vectors[:, :dimension]
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1))
    lengths = np.linalg.norm(np.where(finite[:, np.newaxis], shortened, np.float32(0)), axis=1)
    errors: dict[int, KbmeshError] = {}
    for row in np.flatnonzero(lengths == 0).tolist():
        why = "a vector of zeros" if finite[row] else "numbers that are not finite"
        errors[row] = InferenceFailed(model.name, f"the model gave {why}")
    if dimension < vectors.shape[1]:
        shortened = np.divide(shortened, np.where(lengths == 0, 1, lengths)[:, np.newaxis], dtype=np.float32)
    return shortened, errors
