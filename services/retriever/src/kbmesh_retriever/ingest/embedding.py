"""Vectors of the chunks of documents, in the embedder's BULK lane."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kbmesh_rpc.errors import (
    Cancelled,
    DependencyInvalidResponse,
    DependencyUnavailable,
    KbmeshError,
    ModelMismatch,
    ModelNotFound,
    ModelNotReady,
    QueueFull,
    ShuttingDown,
)

from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.mesh.port import Embedded, EmbedderPort

TEXTS_A_CALL = 256
_MAX_RETRY_SECONDS = 10.0
_MAX_QUEUE_RETRIES = 20
_NOBODYS_FAULT = (
    Cancelled,
    DependencyUnavailable,
    ModelMismatch,
    ModelNotFound,
    ModelNotReady,
    QueueFull,
    ShuttingDown,
)
"""Errors that no text can be the cause of: they are everybody's."""


class BulkEmbedding:
    """Embeds texts of several documents in one call, and lets none of them fail for another."""

    def __init__(self, embedder: EmbedderPort, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._embedder = embedder
        self._sleep = sleep

    async def embed(
        self, knowledge_base: KnowledgeBase, documents: Sequence[Sequence[str]]
    ) -> Sequence[Embedded | KbmeshError]:
        """For each document the vectors of its texts, or why it has none. No document is without a text."""
        try:
            together = await self._embed(knowledge_base, [text for texts in documents for text in texts])
        except KbmeshError as error:
            if len(documents) == 1 or isinstance(error, _NOBODYS_FAULT):
                return [error] * len(documents)
            return [answer for texts in documents for answer in await self.embed(knowledge_base, [texts])]
        return _parted(together, [len(texts) for texts in documents])

    async def _embed(self, knowledge_base: KnowledgeBase, texts: list[str]) -> Embedded:
        """A full queue is waited for: bulk work is what fills it."""
        for last in [*[False] * _MAX_QUEUE_RETRIES, True]:
            try:
                embedded = await self._embedder.embed(
                    texts,
                    model=knowledge_base.embedding_model,
                    expected_fingerprint=knowledge_base.model_fingerprint,
                    input_type="document",
                    priority="bulk",
                )
            except QueueFull as error:
                if last:
                    raise
                await self._sleep(min(max(error.retry_after_seconds or 1.0, 0.05), _MAX_RETRY_SECONDS))
                continue
            shape = (len(texts), knowledge_base.dimension)
            if embedded.vectors.shape != shape:
                raise DependencyInvalidResponse(
                    "embedder", f"the embedder gave vectors of shape {embedded.vectors.shape}, expected was {shape}"
                )
            return embedded
        raise AssertionError("the last attempt returns or raises")


def _parted(together: Embedded, counts: Sequence[int]) -> list[Embedded]:
    parts, start = [], 0
    for count in counts:
        part = slice(start, start + count)
        parts.append(
            Embedded(
                # A copy: a view would keep the vectors of all documents for as long as the slowest of them is at work.
                vectors=together.vectors[part].copy() if len(counts) > 1 else together.vectors,
                errors=together.errors[part],
                tokens=together.tokens[part],
                tokens_cut=together.tokens_cut[part],
                model=together.model,
                fingerprint=together.fingerprint,
            )
        )
        start += count
    return parts
