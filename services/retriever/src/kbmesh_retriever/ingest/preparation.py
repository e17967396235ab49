"""A document cut and embedded: everything that is written of it, but for the generation's number."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from kbmesh_rpc.errors import EmptyText, Reason, error_for
from numpy.typing import NDArray

from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.embedding import TEXTS_A_CALL
from kbmesh_retriever.ingest.points import keyword_vectors
from kbmesh_retriever.mesh.port import Chunk, Chunked, ChunkerPort, Embedded, SourceDocument, Warned
from kbmesh_retriever.stores.port import SparseVector

_MAX_WARNINGS = 16


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The chunks of a document with their vectors."""

    chunked: Chunked
    dense: Sequence[NDArray[np.float32] | None] = field(repr=False)
    """Of each chunk. None where there is nothing for the model to read."""
    sparse: Sequence[SparseVector] = field(repr=False)
    tokens: int = 0
    truncated: int = 0
    warnings: tuple[Warned, ...] = ()

    @property
    def characters(self) -> int:
        """Of the document's text."""
        return text_characters(self.chunked)


def text_characters(chunked: Chunked) -> int:
    """How far the chunks of a document reach into its text."""
    return max((chunk.end for chunk in chunked.chunks), default=0)


async def cut(
    chunker: ChunkerPort, knowledge_base: KnowledgeBase, document: IncomingDocument, content: str | bytes
) -> Chunked:
    """The document's chunks, each once: a place that came twice would be found and cited twice. What the caller says of
    the document is not the chunker's business: it can change without a cut."""
    chunked = await chunker.chunk(
        SourceDocument(
            content=content,
            media_type=document.media_type,
            filename=document.filename,
            source_type=document.source_type,
        ),
        chunking=knowledge_base.chunking,
        embedding_model=knowledge_base.embedding_model,
    )
    # Several statements about one place differ in what is embedded.
    distinct = {(chunk.start, chunk.end, chunk.embedded_text): chunk for chunk in reversed(chunked.chunks)}
    if len(distinct) == len(chunked.chunks):
        return chunked
    return replace(chunked, chunks=tuple(reversed(distinct.values())))


async def prepare(chunked: Chunked, embed: Callable[[Sequence[str]], Awaitable[Embedded]]) -> Prepared:
    """Raises EmptyText where the model can read nothing of the document, and the error of a chunk that could not be
    embedded: a part that nobody can find would be lost in silence."""
    wanted = [chunk for chunk in chunked.chunks if not chunk.embedding_excluded]
    vectors: dict[int, NDArray[np.float32]] = {}
    tokens = truncated = 0
    for start in range(0, len(wanted), TEXTS_A_CALL):
        batch = wanted[start : start + TEXTS_A_CALL]
        embedded = await embed([chunk.embedded_text for chunk in batch])
        _check(embedded, batch)
        # A failed text is one without anything to read: `_check` lets no other pass.
        for chunk, vector, error in zip(batch, embedded.vectors, embedded.errors, strict=True):
            if error is None:
                vectors[chunk.index] = vector
        tokens += sum(embedded.tokens)
        truncated += sum(cut > 0 for cut in embedded.tokens_cut)
    unread = [chunk.index for chunk in wanted if chunk.index not in vectors]
    if wanted and not vectors:
        raise EmptyText("document.document")
    return Prepared(
        chunked=chunked,
        dense=[vectors.get(chunk.index) for chunk in chunked.chunks],
        sparse=await asyncio.to_thread(keyword_vectors, chunked.chunks),
        tokens=tokens,
        truncated=truncated,
        warnings=(*chunked.warnings, *map(_unread, unread[:_MAX_WARNINGS])),
    )


def prepared_empty(document: IncomingDocument, current: Document) -> Prepared:
    """A document of which nothing is left, and stays known."""
    return Prepared(
        chunked=Chunked(
            chunks=(),
            strategy=current.strategy,
            media_type=document.media_type or current.media_type,
            source_type=document.source_type or current.source_type,
            title="",
            metadata={},
            chunking_fingerprint="",
            warnings=(),
        ),
        dense=(),
        sparse=(),
    )


def _check(embedded: Embedded, chunks: Sequence[Chunk]) -> None:
    """A chunk without anything for the model to read has no meaning to lose; any other error is the document's."""
    for chunk, error in zip(chunks, embedded.errors, strict=True):
        if error is not None and error.reason is not Reason.EMPTY_TEXT:
            raise error_for(error.reason, f"chunk {chunk.index}: {error.message}", error.metadata)


def _unread(chunk: int) -> Warned:
    return Warned(
        reason=Reason.EMPTY_TEXT,
        message="a chunk holds nothing that the model can read; it can be found by its words alone",
        metadata={"chunk": str(chunk)},
    )
