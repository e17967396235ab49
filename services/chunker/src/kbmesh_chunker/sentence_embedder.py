"""Vectors of sentences, wherever the embedding model is, and how alike two of them are."""

import asyncio
import math
import sys
from array import array
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import mul
from typing import Protocol

from kbmesh_rpc.errors import DependencyInvalidResponse

EMBEDDER = "embedder"
MAX_TEXTS = 128
"""Texts a call at most."""
MAX_CHARACTERS = 65_536
"""Characters a call at most; a longer text is a call of its own."""
MAX_CALLS = 4
"""Calls of one document that are in flight at the same time."""

Vector = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """The vectors of several texts, in their order."""

    vectors: Sequence[Vector]
    model_fingerprint: str


class SentenceEmbedder(Protocol):
    """Embeds as a model does."""

    async def embed(self, texts: Sequence[str], *, model: str) -> SentenceVectors:
        """Embeds texts as documents, with what is over the model's limit cut off. The model's default when empty.

        Raises ModelNotFound, ModelNotReady, QueueFull, DependencyUnavailable, DependencyInvalidResponse or
        DeadlineExceeded.
        """


async def embed_each(
    embedder: SentenceEmbedder,
    texts: Sequence[str],
    *,
    model: str,
    checkpoint: Callable[[], None],
    take: Callable[[SentenceVectors], Awaitable[None]],
) -> None:
    """Embeds each text once and hands the vectors to `take`, call by call, in the order of the texts.

    At most MAX_CALLS calls are in flight, and as many answers are held: a long document's vectors are never all in
    memory. No call is begun once the caller has gone or one has failed. Raises what SentenceEmbedder raises;
    DependencyInvalidResponse also where vectors are missing, too many, of different length, zero or not finite, or
    where the model changed between two calls.
    """
    known: SentenceVectors | None = None

    async def call(batch: Sequence[str]) -> SentenceVectors:
        answer = await embedder.embed(batch, model=model)
        _check(answer, batch)
        return answer

    async def accept(answer: SentenceVectors) -> None:
        nonlocal known
        known = known or answer
        if answer.model_fingerprint != known.model_fingerprint:
            raise DependencyInvalidResponse(EMBEDDER, "the embedder's model changed between two calls for one document")
        if len(answer.vectors[0]) != len(known.vectors[0]):
            raise DependencyInvalidResponse(EMBEDDER, "the embedder's dimension changed between two calls")
        await take(answer)

    async with _group() as group:
        running: deque[asyncio.Task[SentenceVectors]] = deque()
        for batch in _batches(texts):
            if len(running) == MAX_CALLS:
                await accept(await running.popleft())
            checkpoint()
            running.append(group.create_task(call(batch)))
        while running:
            await accept(await running.popleft())


def cosine(left: Vector, right: Vector) -> float:
    """Cosine of the angle between two vectors; 0 where one of them is zero."""
    lengths = math.hypot(*left) * math.hypot(*right)
    if not lengths:
        return 0.0
    product: float = sum(map(mul, left, right))
    return max(-1.0, min(1.0, product / lengths))


def direction(vector: Vector) -> Vector:
    """A vector of unit length."""
    length = math.hypot(*vector)
    return [number / length for number in vector]


def to_floats(data: bytes) -> "array[float]":
    """Little-endian numbers of 32 bits."""
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _check(answer: SentenceVectors, texts: Sequence[str]) -> None:
    vectors = answer.vectors
    if len(vectors) != len(texts):
        raise DependencyInvalidResponse(EMBEDDER, f"{len(vectors)} vectors came back for {len(texts)} sentences")
    dimension = len(vectors[0])
    for vector in vectors:
        if len(vector) != dimension or dimension == 0:
            raise DependencyInvalidResponse(
                EMBEDDER, f"vectors of {dimension} and of {len(vector)} numbers came back in one answer"
            )
        length = math.hypot(*vector)
        if not (math.isfinite(length) and length > 0):
            raise DependencyInvalidResponse(EMBEDDER, "a vector came back that is zero or not finite")


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start = characters = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == MAX_TEXTS or characters + len(text) > MAX_CHARACTERS):
            yield texts[start:place]
            start, characters = place, 0
        characters += len(text)
    if start < len(texts):
        yield texts[start:]


@asynccontextmanager
async def _group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that raises the first error itself, as callers know errors by their class."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
