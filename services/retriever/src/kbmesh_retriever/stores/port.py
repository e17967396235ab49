"""The port to the vector store."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray


class Distance(StrEnum):
    """How two dense vectors are compared. Whichever it is, a score is the higher the nearer they are."""

    COSINE = "cosine"
    """The score is the cosine, -1 to 1."""
    EUCLIDEAN = "euclidean"
    """The score is 1 - d²/2 of the distance d: the cosine, where both are of unit length."""
    DOT = "dot"
    """The score is the dot product."""


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

    @cached_property
    def knowledge_base_text(self) -> str:
        """The id as payloads have it."""
        return str(self.knowledge_base_id)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A test of one payload field: one of `any_of`, or a number between `gte` and `lte`, both included.

    `field` is one of `TEXT_FIELDS` or `NUMBER_FIELDS` of `stores.conditions`, or metadata.NAME. A field that holds
    several texts passes `any_of` if one of them does; a field that is not there passes nothing.
    """

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
    media_type, strategy, token_count, metadata (map of text to text). May be absent: author (text), time (seconds since
    1970 UTC, a number), tags (list of texts), principals (list of texts: who may read it; absent or empty, everybody),
    blank_before (text: the white space that parts it from the chunks before it).
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
    principals: Collection[str] | None = None
    """Who asks: points that name principals are left out unless they name one of these. None asks for no such check."""
    distance: Distance = Distance.COSINE
    """The collection's own."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Hits best first, equal scores by id; scores above zero in the keyword list."""

    dense: tuple[Hit, ...]
    keyword: tuple[Hit, ...]
    keyword_served: bool = True
    """False where words were asked for and the collection cannot be searched by them."""


@dataclass(frozen=True, kw_only=True)
class ChunkRange:
    """Chunks of one version of a document that stand one after the other."""

    document_id: UUID
    generation: int
    first: int
    """Index of the first, from 0."""
    last: int
    """Index of the last; there need not be so many."""


@dataclass(frozen=True, kw_only=True)
class StoredChunk:
    """A chunk that was read by its place."""

    id: UUID
    payload: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class CollectionInfo:
    """What a collection is and holds."""

    dimension: int
    distance: Distance
    points: int
    """Of all who share it; may lag behind or be an estimate."""
    keywords: bool
    """Whether it can be searched by words."""


class StoreReader(Protocol):
    """What retrieval asks of a store; errors as of `VectorStore`."""

    async def read_chunks(
        self,
        collection: str,
        scope: Scope,
        ranges: Sequence[ChunkRange],
        *,
        principals: Collection[str] | None = None,
    ) -> Sequence[StoredChunk]:
        """Those of these chunks that there are, each once, in no order. One call to the store, or a page after the
        other where its answers are bounded. `principals` as in `SearchQuery`. A collection that does not exist holds
        nothing."""
        ...

    async def search(self, query: SearchQuery) -> SearchResult:
        """A collection that does not exist holds nothing: both lists are empty."""
        ...


class VectorStore(StoreReader, Protocol):
    """Keeps points. Once a write returns, searches see it. Every call can be repeated. Raises DependencyUnavailable,
    DeadlineExceeded or DependencyInvalidResponse of `kbmesh_rpc.errors`, which name the store, and InvalidField for a
    filter that cannot be kept."""

    async def ensure_collection(
        self,
        collection: str,
        *,
        dimension: int,
        distance: Distance = Distance.COSINE,
        shared: bool = False,
        expected_points: int | None = None,
    ) -> None:
        """Makes the collection, with dense and sparse vectors and what its filters need, where it does not exist; where
        it does, checks it and raises Conflict for one of another shape.

        `shared`: for many knowledge bases. `expected_points`: how many it will come to hold, for tuning; None takes the
        store's own setting. Neither changes a collection that is there.
        """
        ...

    async def exists(self, collection: str) -> bool: ...

    async def info(self, collection: str) -> CollectionInfo | None:
        """None where it does not exist."""
        ...

    async def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Writes points by id, in batches. Raises RequestTooLarge for a point that the store cannot hold."""
        ...

    def read_generation(
        self, collection: str, scope: Scope, document_id: UUID, generation: int
    ) -> AsyncIterator[Sequence[Point]]:
        """The points of that version of the document, page by page, with vectors and the whole payload as they were
        written."""
        ...

    async def update_payload(
        self,
        collection: str,
        scope: Scope,
        document_id: UUID,
        generation: int,
        values: Mapping[str, Any],
        *,
        indexes: Collection[int] | None = None,
    ) -> None:
        """Puts `values` in place of what these payload keys held, on every chunk of that version of the document, or on
        those whose `index` is one of `indexes`; vectors stay. A key with the value None is taken away.

        Raises ValueError for a key that decides whose point it is or which."""
        ...

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None: ...

    async def delete_document(self, collection: str, scope: Scope, document_id: UUID) -> None: ...

    async def delete_matching(self, collection: str, scope: Scope, wanted: PointFilter) -> None:
        """Raises ValueError for a filter that keeps everything: `delete_knowledge_base` is for that."""
        ...

    async def delete_knowledge_base(self, collection: str, scope: Scope, *, drop_collection: bool) -> None: ...

    async def count(self, collection: str, scope: Scope, *, document_id: UUID | None = None) -> int: ...

    async def health(self) -> None: ...

    async def close(self) -> None: ...
