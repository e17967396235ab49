"""Points as kbmesh stores them, for tests of the vector store."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

import numpy as np
from kbmesh_retriever.stores.port import Point, Scope, SparseVector
from numpy.typing import NDArray

DIMENSION = 8
NAMESPACE = UUID("6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10")


def scope(tenant: str, knowledge_base: str) -> Scope:
    """The scope of the tenant's knowledge base of that name."""
    return Scope(tenant=tenant, knowledge_base_id=uuid5(NAMESPACE, f"{tenant}/{knowledge_base}"))


def document(name: str) -> UUID:
    """The id of the document of that name."""
    return uuid5(NAMESPACE, name)


def direction(*weights: float) -> NDArray[np.float32]:
    """(DIMENSION,) float32, unit length, along `weights`."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(weights)] = weights
    return vector / np.linalg.norm(vector)


def words(text: str) -> SparseVector:
    """Each word of `text` once."""
    indices = sorted({uuid5(NAMESPACE, word).int % 2**32 for word in text.split()})
    return SparseVector(indices=tuple(indices), values=(1.0,) * len(indices))


def chunk(
    of: Scope,
    name: str,
    text: str,
    *,
    dense: NDArray[np.float32] | None = None,
    generation: int = 1,
    index: int = 0,
    metadata: Mapping[str, str] | None = None,
    **payload: object,
) -> Point:
    """A chunk of the document `name`, with every payload key that the port lists."""
    return Point(
        id=uuid5(NAMESPACE, f"{of}/{name}/{generation}/{index}"),
        dense=direction(1.0) if dense is None else dense,
        sparse=words(text),
        payload={
            "tenant": of.tenant,
            "knowledge_base_id": str(of.knowledge_base_id),
            "document_id": str(document(name)),
            "external_id": name,
            "generation": generation,
            "index": index,
            "text": text,
            "context": "",
            "start": 0,
            "end": len(text),
            "start_byte": 0,
            "end_byte": len(text.encode()),
            "chunk_type": "paragraph",
            "heading_path": ["Top", "Below"],
            "pages": [1, 2],
            "source_type": "file",
            "media_type": "text/plain",
            "strategy": "semantic",
            "token_count": len(text.split()),
            "metadata": dict(metadata or {}),
            **payload,
        },
    )


def names(hits: Sequence[object]) -> list[str]:
    """The documents of the hits, in their order."""
    return [hit.payload["external_id"] for hit in hits]
