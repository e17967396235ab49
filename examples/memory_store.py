"""A vector store of one's own: everything in this process's memory, searched one by one.

    from kbmesh_retriever.stores.registry import register_store
    register_store("memory", lambda settings: MemoryStore())

It passes the contract test of the stores that kbmesh comes with (tests/retriever/test_store_contract.py).
"""

import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import numpy as np
from kbmesh_retriever.stores.conditions import check_selective, check_update, keeps, may_read
from kbmesh_retriever.stores.port import (
    ChunkRange,
    CollectionInfo,
    Distance,
    Hit,
    Point,
    PointFilter,
    Scope,
    SearchQuery,
    SearchResult,
    StoredChunk,
)
from kbmesh_rpc.errors import Conflict


@dataclass(kw_only=True)
class _Collection:
    dimension: int
    distance: Distance
    points: dict[UUID, Point] = field(default_factory=dict)


class MemoryStore:
    def __init__(self) -> None:
        self._collections: dict[str, _Collection] = {}

    async def ensure_collection(
        self,
        collection: str,
        *,
        dimension: int,
        distance: Distance = Distance.COSINE,
        shared: bool = False,
        expected_points: int | None = None,
    ) -> None:
        there = self._collections.setdefault(collection, _Collection(dimension=dimension, distance=distance))
        if (there.dimension, there.distance) != (dimension, distance):
            raise Conflict(f"collection {collection}", f"collection {collection} is of another shape")

    async def exists(self, collection: str) -> bool:
        return collection in self._collections

    async def info(self, collection: str) -> CollectionInfo | None:
        if (there := self._collections.get(collection)) is None:
            return None
        return CollectionInfo(
            dimension=there.dimension, distance=there.distance, points=len(there.points), keywords=True
        )

    async def upsert(self, collection: str, points: Sequence[Point]) -> None:
        self._collections[collection].points.update({point.id: point for point in points})

    async def read_generation(
        self, collection: str, scope: Scope, document_id: UUID, generation: int
    ) -> AsyncIterator[Sequence[Point]]:
        yield self._select(collection, scope, lambda p: _version(p) == (str(document_id), generation))

    async def read_chunks(
        self,
        collection: str,
        scope: Scope,
        ranges: Sequence[ChunkRange],
        *,
        principals: Collection[str] | None = None,
    ) -> Sequence[StoredChunk]:
        wanted = {
            (str(one.document_id), one.generation, index) for one in ranges for index in range(one.first, one.last + 1)
        }
        found = self._select(
            collection, scope, lambda p: (*_version(p), p["index"]) in wanted and may_read(principals, p)
        )
        return [StoredChunk(id=point.id, payload=point.payload) for point in found]

    async def search(self, query: SearchQuery) -> SearchResult:
        wanted = query.filter or PointFilter()
        seen = self._select(query.collection, query.scope, lambda p: keeps(wanted, p) and may_read(query.principals, p))
        nearness: dict[UUID, float] = {}
        if query.dense is not None:
            nearness = {p.id: _score(query.dense, p.dense, query.distance) for p in seen if p.dense is not None}
        least = -math.inf if query.min_dense_score is None else query.min_dense_score
        words = self._word_scores(query, seen) if query.sparse is not None else {}
        return SearchResult(
            dense=_best(query, seen, {name: score for name, score in nearness.items() if score >= least}),
            keyword=_best(query, seen, {name: score for name, score in words.items() if score > 0}),
        )

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
        check_update(values)
        for point in self._select(collection, scope, lambda p: _version(p) == (str(document_id), generation)):
            if indexes is None or point.payload["index"] in indexes:
                payload = {key: value for key, value in {**point.payload, **values}.items() if value is not None}
                self._collections[collection].points[point.id] = replace(point, payload=payload)

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None:
        versions = {(str(document_id), generation) for generation in generations}
        self._drop(collection, scope, lambda p: _version(p) in versions)

    async def delete_document(self, collection: str, scope: Scope, document_id: UUID) -> None:
        self._drop(collection, scope, lambda p: p["document_id"] == str(document_id))

    async def delete_matching(self, collection: str, scope: Scope, wanted: PointFilter) -> None:
        check_selective(wanted)
        self._drop(collection, scope, lambda p: keeps(wanted, p))

    async def delete_knowledge_base(self, collection: str, scope: Scope, *, drop_collection: bool) -> None:
        self._drop(collection, scope, lambda p: True)
        if drop_collection:
            self._collections.pop(collection, None)

    async def count(self, collection: str, scope: Scope, *, document_id: UUID | None = None) -> int:
        return len(
            self._select(collection, scope, lambda p: document_id is None or p["document_id"] == str(document_id))
        )

    async def health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        self._collections.clear()

    def _select(self, collection: str, scope: Scope, test: Callable[[Mapping[str, Any]], bool]) -> list[Point]:
        """The one place where tenant and knowledge base are looked at."""
        there = self._collections.get(collection)
        own = (scope.tenant, str(scope.knowledge_base_id))
        return [
            point
            for point in (there.points.values() if there else ())
            if (point.payload["tenant"], point.payload["knowledge_base_id"]) == own and test(point.payload)
        ]

    def _drop(self, collection: str, scope: Scope, test: Callable[[Mapping[str, Any]], bool]) -> None:
        for point in self._select(collection, scope, test):
            del self._collections[collection].points[point.id]

    def _word_scores(self, query: SearchQuery, seen: Sequence[Point]) -> dict[UUID, float]:
        """Values times the inverse document frequency over the whole collection."""
        everybody = self._collections[query.collection].points.values() if seen else ()
        scores = dict.fromkeys((point.id for point in seen), 0.0)
        assert query.sparse is not None
        for term, weight in zip(query.sparse.indices, query.sparse.values, strict=True):
            holding = sum(term in point.sparse.indices for point in everybody)
            rarity = math.log(1 + (len(everybody) - holding + 0.5) / (holding + 0.5))
            for point in seen:
                if term in point.sparse.indices:
                    value = point.sparse.values[point.sparse.indices.index(term)]
                    scores[point.id] += weight * value * rarity
        return scores


def _version(payload: Mapping[str, Any]) -> tuple[str, int]:
    return payload["document_id"], payload["generation"]


def _score(one: Any, other: Any, distance: Distance) -> float:
    if distance is Distance.EUCLIDEAN:
        return float(1 - np.sum((one - other) ** 2) / 2)
    lengths = 1.0 if distance is Distance.DOT else np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths)


def _best(query: SearchQuery, seen: Sequence[Point], scores: Mapping[UUID, float]) -> tuple[Hit, ...]:
    payloads = {point.id: point.payload for point in seen}
    order = sorted(scores, key=lambda name: (-scores[name], name))[: query.limit]
    return tuple(Hit(id=name, score=scores[name], payload=payloads[name]) for name in order)


def of_settings(settings: object) -> MemoryStore:
    """The factory, for an entry point of the group kbmesh.stores."""
    return MemoryStore()
