"""Chunks and their vectors as points of the vector store."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbmesh_retriever.catalog.port import KnowledgeBase, Reservation
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.fingerprint import chunk_id
from kbmesh_retriever.keywords.analyser import encode_document
from kbmesh_retriever.mesh.port import Chunk, Chunked
from kbmesh_retriever.stores.conditions import PRINCIPALS
from kbmesh_retriever.stores.port import Point, SparseVector

METADATA = "metadata"
BLANK_BEFORE = "blank_before"
SHADOWED = "shadowed_metadata"
"""Payload key of what was found and is hidden by what the caller gave under the same name."""
_SAID = frozenset({METADATA, SHADOWED, PRINCIPALS, "tags", "author", "time"})
"""Payload keys of what the caller says of a document, and may say otherwise while its chunks stay."""


def keyword_vectors(chunks: Sequence[Chunk]) -> list[SparseVector]:
    """BM25 vectors of context and text: the words of the source can be found, whatever was embedded instead."""
    return [encode_document(f"{chunk.context}\n\n{chunk.text}" if chunk.context else chunk.text) for chunk in chunks]


def build_points(
    knowledge_base: KnowledgeBase,
    reservation: Reservation,
    document: IncomingDocument,
    chunked: Chunked,
    dense: Sequence[NDArray[np.float32] | None],
    sparse: Sequence[SparseVector],
) -> list[Point]:
    """One point for each chunk. `dense` and `sparse` are the chunks' vectors, in their order."""
    points = []
    for chunk, vector, keywords in zip(chunked.chunks, dense, sparse, strict=True):
        payload: dict[str, Any] = {
            "tenant": knowledge_base.tenant,
            "knowledge_base_id": str(knowledge_base.id),
            "document_id": str(reservation.document_id),
            "external_id": document.external_id,
            "generation": reservation.generation,
            "index": chunk.index,
            "text": chunk.text,
            "context": chunk.context,
            "start": chunk.start,
            "end": chunk.end,
            "start_byte": chunk.start_byte,
            "end_byte": chunk.end_byte,
            "chunk_type": chunk.type,
            "heading_path": list(chunk.heading_path),
            "pages": list(chunk.pages),
            "source_type": chunked.source_type or document.source_type,
            "media_type": chunked.media_type or document.media_type,
            "strategy": chunked.strategy,
            "token_count": chunk.token_count,
            **({BLANK_BEFORE: chunk.blank_before} if chunk.blank_before else {}),
            **described_payload(document),
            **metadata_payload(_found(chunked, chunk), document.metadata),
        }
        points.append(
            Point(
                id=chunk_id(
                    tenant=knowledge_base.tenant,
                    knowledge_base_id=knowledge_base.id,
                    document_id=reservation.document_id,
                    generation=reservation.generation,
                    index=chunk.index,
                ),
                dense=vector,
                sparse=keywords,
                payload=payload,
            )
        )
    return points


def copy_points(
    points: Sequence[Point],
    *,
    reservation: Reservation,
    knowledge_base: KnowledgeBase,
    given_before: Mapping[str, str],
    document: IncomingDocument,
) -> list[Point]:
    """The same chunks with the same vectors as another generation, with what the caller says of them now.
    `given_before` is the metadata that the caller gave when they were written."""
    return [
        Point(
            id=chunk_id(
                tenant=knowledge_base.tenant,
                knowledge_base_id=knowledge_base.id,
                document_id=reservation.document_id,
                generation=reservation.generation,
                index=point.payload["index"],
            ),
            dense=point.dense,
            sparse=point.sparse,
            payload={
                **{name: value for name, value in point.payload.items() if name not in _SAID},
                "generation": reservation.generation,
                **described_payload(document),
                **metadata_payload(_found_of(point.payload, given_before), document.metadata),
            },
        )
        for point in points
    ]


def described_payload(document: IncomingDocument) -> dict[str, Any]:
    """What the caller says of who may read it, who wrote it, when, and its tags. What was not said is not there."""
    said = {
        PRINCIPALS: list(document.principals),
        "tags": list(document.tags),
        "author": document.author,
        "time": None if document.created_at is None else document.created_at.timestamp(),
    }
    return {name: value for name, value in said.items() if value not in ([], "", None)}


def metadata_payload(found: Mapping[str, str], given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What the caller says wins over what was found. What it hides is kept apart: the caller may take it back."""
    payload = {METADATA: {**found, **given}}
    if shadowed := {name: value for name, value in found.items() if name in given}:
        payload[SHADOWED] = shadowed
    return payload


def _found_of(payload: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in payload[METADATA].items() if name not in given}
    return {**found, **payload.get(SHADOWED, {})}


def _found(chunked: Chunked, chunk: Chunk) -> dict[str, str]:
    """What is known of a chunk without the caller: its own is nearer than what was found in the document.

    A chunk of a mail that was forwarded has an empty value for what that mail does not say of itself: what was found
    in the document is not true of it.
    """
    unknown = {name for name, value in chunk.metadata.items() if not value}
    found = {name: value for name, value in chunked.metadata.items() if name not in unknown}
    return {**found, **{name: value for name, value in chunk.metadata.items() if value}}
