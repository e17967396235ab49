"""The port to the vector store."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """A BM25 vector. `indices` are distinct, ascending; both have the same length."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose points: put on every read and delete, in one place."""

    tenant: str
    knowledge_base_id: UUID


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A test of one payload field: one of `any_of`, or a number between `gte` and `lte`."""

    field: str
    any_of: tuple[str, ...] = ()
    gte: float | None = None
    lte: float | None = None


@dataclass(frozen=True, kw_only=True)
class PointFilter:
    """All of `all`, at least one of `any` (where there are some), none of `none`."""

    all: tuple[Condition, ...] = ()
    any: tuple[Condition, ...] = ()
    none: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Point:
    """A chunk as it is stored.

    Payload keys: tenant, knowledge_base_id, document_id (UUIDs as text), external_id, generation (int), index (int),
    text, context, start, end, start_byte, end_byte, chunk_type, heading_path (list), pages (list), source_type,
    media_type, strategy, token_count, metadata (map of text to text).
    """

    id: UUID
    dense: NDArray[np.float32] | None
    """(dimension,), unit length. None where there is nothing for the model to read: only words find such a point."""
    sparse: SparseVector
    payload: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A point that was found, with the score of the list it is in."""

    id: UUID
    score: float
    payload: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    """Both lists of one knowledge base in one call. A list whose vector is None is not searched."""

    collection: str
    scope: Scope
    dense: NDArray[np.float32] | None
    sparse: SparseVector | None
    limit: int
    """Hits a list."""
    min_dense_score: float | None = None
    filter: PointFilter | None = None


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Hits best first; scores above zero in the keyword list."""

    dense: tuple[Hit, ...]
    keyword: tuple[Hit, ...]


class VectorStore(Protocol):
    """Keeps points. Writes are waited for. Raises DependencyUnavailable, DeadlineExceeded or
    DependencyInvalidResponse of `kbmesh_rpc.errors`."""

    async def ensure_collection(self, collection: str, *, dimension: int) -> None:
        """Makes the collection with its dense (cosine) and sparse (IDF) vectors and its payload indexes where it does
        not exist; checks all of these where it does."""
        ...

    async def upsert(self, collection: str, points: Sequence[Point]) -> None: ...

    async def search(self, query: SearchQuery) -> SearchResult:
        """A collection that does not exist holds nothing: both lists are empty."""
        ...

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None: ...

    async def delete_knowledge_base(self, collection: str, scope: Scope, *, drop_collection: bool) -> None: ...

    async def count(self, collection: str, scope: Scope, *, document_id: UUID | None = None) -> int: ...

    async def health(self) -> None: ...

    async def close(self) -> None: ...
