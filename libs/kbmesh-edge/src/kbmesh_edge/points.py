"""Points of the protocol as points of the engine, and back.

Everything is checked here against the collection's vectors. What the engine would refuse, or would stop on (it panics
on a sparse vector whose two lists differ in length), never reaches its write-ahead log.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import qdrant_edge as engine
from google.protobuf.internal.containers import MessageMap
from qdrant_client import grpc as qdrant
from qdrant_client.conversions.conversion import grpc_to_payload, payload_to_grpc

from kbmesh_edge.config import CollectionConfig
from kbmesh_edge.errors import InvalidRequest, NotServed
from kbmesh_edge.filters import point_id

EngineVector = list[float] | engine.SparseVector


def to_point(message: qdrant.PointStruct, config: CollectionConfig) -> engine.Point:
    """Raises InvalidRequest for vectors that the collection has not, or has otherwise."""
    if message.vectors.WhichOneof("vectors_options") == "vector":
        raise InvalidRequest("Not existing vector name error: ")
    named = message.vectors.vectors.vectors
    return engine.Point(
        id=point_id(message.id),
        vector={name: _stored_vector(name, named[name], config) for name in named},
        payload=to_payload(message.payload),
    )


def to_payload(message: MessageMap[str, qdrant.Value]) -> dict[str, Any]:
    """Raises InvalidRequest for a value that is none."""
    try:
        return grpc_to_payload(message)
    except ValueError as error:
        raise InvalidRequest(f"payload: {error}") from error


def checked_vector(
    name: str, vector: Sequence[float] | tuple[Sequence[int], Sequence[float]], config: CollectionConfig
) -> EngineVector:
    """The vector `name`: a dense one's values, or a sparse one's indices and values."""
    if isinstance(vector, tuple):
        if name not in config.sparse:
            raise InvalidRequest(_no_such_vector(name, config, "Dense", name in config.dense))
        return _sparse(*vector)
    if name not in config.dense:
        raise InvalidRequest(_no_such_vector(name, config, "Sparse", name in config.sparse))
    values = list(vector)
    size = config.dense[name].size
    if len(values) != size:
        raise InvalidRequest(f"Vector dimension error: expected dim: {size}, got {len(values)}")
    _check_finite(values)
    return values


def _stored_vector(name: str, message: qdrant.Vector, config: CollectionConfig) -> EngineVector:
    match message.WhichOneof("vector"):
        case "dense":
            return checked_vector(name, message.dense.data, config)
        case "sparse":
            return checked_vector(name, (message.sparse.indices, message.sparse.values), config)
        case None:
            # How clients older than the oneof send it.
            if message.HasField("indices"):
                return checked_vector(name, (message.indices.data, message.data), config)
            return checked_vector(name, message.data, config)
        case kind:
            raise NotServed(f"vectors of kind {kind}")


def _sparse(indices: Sequence[int], values: Sequence[float]) -> engine.SparseVector:
    if len(indices) != len(values):
        raise InvalidRequest(f"sparse vector has {len(indices)} indices and {len(values)} values")
    if len(set(indices)) != len(indices):
        raise InvalidRequest("sparse vector indices must be unique")
    _check_finite(values)
    pairs = sorted(zip(indices, values, strict=True))
    return engine.SparseVector([index for index, _ in pairs], [value for _, value in pairs])


def _check_finite(values: Sequence[float]) -> None:
    # A sum of float32 values cannot overflow a double, so it is finite exactly when all of them are.
    if not math.isfinite(sum(values)):
        raise InvalidRequest("vector holds a value that is not finite")


def _no_such_vector(name: str, config: CollectionConfig, other_kind: str, is_other_kind: bool) -> str:
    if is_other_kind:
        return f"{other_kind} vector `{name}` was given a vector of the other kind"
    known = ", ".join([*config.dense, *config.sparse])
    return f"Not existing vector name error: {name} (the collection has {known})"


def id_message(id_: int | UUID | str) -> qdrant.PointId:
    return qdrant.PointId(num=id_) if isinstance(id_, int) else qdrant.PointId(uuid=str(id_))


def scored_message(point: engine.ScoredPoint) -> qdrant.ScoredPoint:
    return qdrant.ScoredPoint(
        id=id_message(point.id),
        payload=payload_to_grpc(point.payload or {}),
        score=point.score,
        version=point.version,
        vectors=vectors_message(point.vector),
    )


def record_message(record: engine.Record) -> qdrant.RetrievedPoint:
    return qdrant.RetrievedPoint(
        id=id_message(record.id),
        payload=payload_to_grpc(record.payload or {}),
        vectors=vectors_message(record.vector),
    )


def vectors_message(vectors: object) -> qdrant.VectorsOutput | None:
    if not isinstance(vectors, Mapping):
        return None
    return qdrant.VectorsOutput(
        vectors=qdrant.NamedVectorsOutput(vectors={name: _vector_message(v) for name, v in vectors.items()})
    )


def _vector_message(vector: EngineVector) -> qdrant.VectorOutput:
    if isinstance(vector, engine.SparseVector):
        return qdrant.VectorOutput(sparse=qdrant.SparseVector(indices=vector.indices, values=vector.values))
    return qdrant.VectorOutput(dense=qdrant.DenseVector(data=vector))
