"""Points and scores of the port as Qdrant's, and back."""

import math
from collections.abc import Callable, Sequence
from uuid import UUID

import numpy as np
from kbmesh_rpc.errors import DependencyInvalidResponse
from qdrant_client import models

from kbmesh_retriever.stores.conditions import metadata_numbers
from kbmesh_retriever.stores.filters import METADATA_NUMBERS
from kbmesh_retriever.stores.port import Distance, Hit, Point, SearchQuery, SparseVector, StoredChunk
from kbmesh_retriever.stores.schema import BM25, DENSE

DEPENDENCY = "qdrant"


def to_struct(point: Point) -> models.PointStruct:
    payload = dict(point.payload)
    if numbers := metadata_numbers(payload.get("metadata") or {}):
        payload[METADATA_NUMBERS] = numbers
    vector: dict[str, list[float] | models.SparseVector] = {
        BM25: models.SparseVector(indices=list(point.sparse.indices), values=list(point.sparse.values))
    }
    if point.dense is not None:
        vector[DENSE] = point.dense.tolist()
    return models.PointStruct(id=str(point.id), vector=vector, payload=payload)


def to_point(record: models.Record) -> Point:
    vectors = record.vector if isinstance(record.vector, dict) else {}
    dense, sparse = vectors.get(DENSE), vectors.get(BM25)
    return Point(
        id=UUID(str(record.id)),
        dense=None if dense is None else np.asarray(dense, dtype=np.float32),
        sparse=SparseVector(indices=tuple(sparse.indices), values=tuple(sparse.values))
        if isinstance(sparse, models.SparseVector)
        else SparseVector(indices=(), values=()),
        payload=record.payload or {},
    )


def to_chunk(record: models.Record) -> StoredChunk:
    try:
        return StoredChunk(id=UUID(str(record.id)), payload=record.payload or {})
    except ValueError as error:
        raise DependencyInvalidResponse(DEPENDENCY, "a point was not written by kbmesh: its id is no UUID") from error


def to_hits(points: Sequence[models.ScoredPoint], scale: Callable[[float], float]) -> tuple[Hit, ...]:
    """Best first, with scores by `scale`; equal scores in the order of their ids, which Qdrant does not promise."""
    try:
        hits = [Hit(id=UUID(str(point.id)), score=scale(point.score), payload=point.payload or {}) for point in points]
    except ValueError as error:
        raise DependencyInvalidResponse(DEPENDENCY, "a point was not written by kbmesh: its id is no UUID") from error
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.id)))


def as_it_is(score: float) -> float:
    return score


def nearness(distance: float) -> float:
    return 1.0 - distance * distance / 2.0


def threshold(query: SearchQuery) -> float | None:
    """Qdrant keeps what is better than its threshold; the port keeps what equals it too. Scores are float32."""
    least = query.min_dense_score
    if least is None:
        return None
    if query.distance is Distance.EUCLIDEAN:
        return float(np.nextafter(np.float32(math.sqrt(max(0.0, 2.0 - 2.0 * least))), np.float32(np.inf)))
    return float(np.nextafter(np.float32(least), np.float32(-np.inf)))
