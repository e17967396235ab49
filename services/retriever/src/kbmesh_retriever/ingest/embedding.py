"""Vectors of the chunks of documents, in the embedder's BULK lane."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from kbmesh_rpc.errors import (
    Cancelled,
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    KbmeshError,
    ModelMismatch,
    ModelNotFound,
    ModelNotReady,
    QueueFull,
    ShuttingDown,
)
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.embedding_pace import EmbeddingPace
from kbmesh_retriever.mesh.port import Embedded, EmbedderPort

logger = get_logger(__name__)

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
_HUNG_AFTER = 2
"""Single texts, of several documents, that took too long one after the other: it is no text's fault then."""


@dataclass(kw_only=True)
class _Work:
    """What is known of one document so far."""

    start: int
    end: int
    """Its texts among those of all documents."""
    parts: list[Embedded] = field(default_factory=list)
    done: int = 0
    """Its texts that have vectors."""
    error: KbmeshError | None = None


class BulkEmbedding:
    """Embeds texts of several documents together, in calls that end well within their deadline however slow the model
    is, and lets no document fail for another. What a call brought is kept when a later one fails."""

    def __init__(
        self,
        embedder: EmbedderPort,
        *,
        call_seconds: float = 120.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`call_seconds` is the longest that a call may take."""
        self._embedder = embedder
        self._call_seconds = call_seconds
        self._sleep = sleep
        self._paces: dict[str, EmbeddingPace] = {}

    async def embed(
        self, knowledge_base: KnowledgeBase, documents: Sequence[Sequence[str]]
    ) -> Sequence[Embedded | KbmeshError]:
        """For each document the vectors of its texts, or why it has none. No document is without a text."""
        texts = [text for document in documents for text in document]
        works = _works(documents)
        pace = self._pace(knowledge_base)
        together, hung = True, 0
        for work in works:
            while work.error is None and work.start + work.done < work.end:
                first = work.start + work.done
                count = pace.count(texts[first : (len(texts) if together else work.end)])
                called = texts[first : first + count]
                try:
                    embedded = await self._timed(knowledge_base, called, pace)
                except _NOBODYS_FAULT as error:
                    _fail_all(works, error)
                except DeadlineExceeded as error:
                    pace.gave_up()
                    if count == 1:
                        work.error = error
                        hung += 1
                        if hung == _HUNG_AFTER:
                            _fail_all(works, error)
                except KbmeshError as error:
                    if first + count <= work.end:
                        work.error = error
                    together = False
                else:
                    hung = 0
                    _share(embedded, works, first)
                    if count < len(texts):
                        self._tell(knowledge_base, done=first + count, texts=len(texts), pace=pace)
        return [work.error or _joined(work.parts) for work in works]

    def _pace(self, knowledge_base: KnowledgeBase) -> EmbeddingPace:
        pace = self._paces.get(knowledge_base.model_fingerprint)
        if pace is None:
            pace = EmbeddingPace(most_texts=TEXTS_A_CALL, most_seconds=self._call_seconds)
            self._paces[knowledge_base.model_fingerprint] = pace
        return pace

    def _tell(self, knowledge_base: KnowledgeBase, *, done: int, texts: int, pace: EmbeddingPace) -> None:
        logger.debug(
            "embedded",
            knowledge_base=str(knowledge_base.id),
            done=done,
            texts=texts,
            tokens_a_second=round(pace.tokens_a_second, 1),
        )

    async def _timed(self, knowledge_base: KnowledgeBase, texts: list[str], pace: EmbeddingPace) -> Embedded:
        """A full queue is waited for: bulk work is what fills it."""
        clock = asyncio.get_running_loop().time
        for last in [*[False] * _MAX_QUEUE_RETRIES, True]:
            started = clock()
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
            pace.took(clock() - started, queue_seconds=embedded.queue_seconds, texts=texts, tokens=embedded.tokens)
            return embedded
        raise AssertionError("the last attempt returns or raises")


def _works(documents: Sequence[Sequence[str]]) -> list[_Work]:
    works: list[_Work] = []
    start = 0
    for texts in documents:
        works.append(_Work(start=start, end=start + len(texts)))
        start += len(texts)
    return works


def _fail_all(works: Sequence[_Work], error: KbmeshError) -> None:
    """All that have not all of their vectors."""
    for work in works:
        if work.error is None and work.start + work.done < work.end:
            work.error = error


def _share(embedded: Embedded, works: Sequence[_Work], first: int) -> None:
    """Gives each document what a call from the text `first` on brought for it."""
    end = first + len(embedded.tokens)
    for work in works:
        if (start := max(first, work.start + work.done)) < (stop := min(end, work.end)):
            work.parts.append(_part(embedded, slice(start - first, stop - first)))
            work.done = stop - work.start


def _part(embedded: Embedded, part: slice) -> Embedded:
    return Embedded(
        # A copy: a view would keep the vectors of all documents for as long as the slowest of them is at work.
        vectors=embedded.vectors[part].copy() if part != slice(0, len(embedded.tokens)) else embedded.vectors,
        errors=embedded.errors[part],
        tokens=embedded.tokens[part],
        tokens_cut=embedded.tokens_cut[part],
        model=embedded.model,
        fingerprint=embedded.fingerprint,
    )


def _joined(parts: Sequence[Embedded]) -> Embedded:
    if len(parts) == 1:
        return parts[0]
    return Embedded(
        vectors=np.concatenate([part.vectors for part in parts]),
        errors=tuple(error for part in parts for error in part.errors),
        tokens=tuple(tokens for part in parts for tokens in part.tokens),
        tokens_cut=tuple(cut for part in parts for cut in part.tokens_cut),
        model=parts[0].model,
        fingerprint=parts[0].fingerprint,
    )
