"""A collection's configuration and payload indexes, in the protocol's messages."""

from collections.abc import Mapping

import qdrant_edge as engine
from qdrant_client import grpc as qdrant

from kbmesh_edge.config import CollectionConfig, DenseVector, DistanceName, SparseVector
from kbmesh_edge.errors import InvalidRequest, NotServed

_DISTANCES: Mapping[int, DistanceName] = {
    qdrant.Distance.Cosine: "Cosine",
    qdrant.Distance.Euclid: "Euclid",
    qdrant.Distance.Dot: "Dot",
    qdrant.Distance.Manhattan: "Manhattan",
}
_INDEX_TYPES: Mapping[int, engine.PayloadSchemaType] = {
    qdrant.FieldType.FieldTypeKeyword: engine.PayloadSchemaType.Keyword,
    qdrant.FieldType.FieldTypeInteger: engine.PayloadSchemaType.Integer,
    qdrant.FieldType.FieldTypeFloat: engine.PayloadSchemaType.Float,
    qdrant.FieldType.FieldTypeBool: engine.PayloadSchemaType.Bool,
    qdrant.FieldType.FieldTypeDatetime: engine.PayloadSchemaType.Datetime,
    qdrant.FieldType.FieldTypeUuid: engine.PayloadSchemaType.Uuid,
}
_SCHEMA_TYPES: Mapping[engine.PayloadSchemaType, qdrant.PayloadSchemaType.ValueType] = {
    engine.PayloadSchemaType.Keyword: qdrant.PayloadSchemaType.Keyword,
    engine.PayloadSchemaType.Integer: qdrant.PayloadSchemaType.Integer,
    engine.PayloadSchemaType.Float: qdrant.PayloadSchemaType.Float,
    engine.PayloadSchemaType.Bool: qdrant.PayloadSchemaType.Bool,
    engine.PayloadSchemaType.Datetime: qdrant.PayloadSchemaType.Datetime,
    engine.PayloadSchemaType.Uuid: qdrant.PayloadSchemaType.Uuid,
}
_MAX_VECTOR_SIZE = 65_536


def to_config(message: qdrant.CreateCollection) -> CollectionConfig:
    """Tuning (HNSW, optimizers, log, memory placement) is accepted and has no effect: search is exact.

    Raises NotServed for what would change answers (quantization, multivectors, other datatypes) or needs a cluster.
    """
    _refuse_cluster_options(message)
    if message.vectors_config.WhichOneof("config") == "params":
        raise NotServed("unnamed vectors")
    params = message.vectors_config.params_map.map
    sparse = message.sparse_vectors_config.map
    if not params and not sparse:
        raise InvalidRequest("a collection has at least one vector")
    if both := set(params) & set(sparse):
        raise InvalidRequest(f"vector name {min(both)!r} is both dense and sparse")
    return CollectionConfig(
        dense={name: _dense(params[name]) for name in sorted(params)},
        sparse={name: _sparse(sparse[name]) for name in sorted(sparse)},
    )


def _refuse_cluster_options(message: qdrant.CreateCollection) -> None:
    if message.HasField("quantization_config"):
        raise NotServed("quantization")
    if message.shard_number > 1 or message.replication_factor > 1 or message.write_consistency_factor > 1:
        raise NotServed("shards and replicas")
    if message.sharding_method != qdrant.ShardingMethod.Auto:
        raise NotServed("custom sharding")
    if message.strict_mode_config.enabled:
        raise NotServed("strict mode")
    if len(message.metadata) > 0:
        raise NotServed("collection metadata")


def _dense(message: qdrant.VectorParams) -> DenseVector:
    if message.HasField("quantization_config"):
        raise NotServed("quantization")
    if message.HasField("multivector_config"):
        raise NotServed("multivectors")
    if message.datatype not in (qdrant.Datatype.Default, qdrant.Datatype.Float32):
        raise NotServed("vectors other than float32")
    if not 1 <= message.size <= _MAX_VECTOR_SIZE:
        raise InvalidRequest(f"vector size {message.size} is not from 1 to {_MAX_VECTOR_SIZE}")
    if message.distance not in _DISTANCES:
        raise InvalidRequest("vector without a distance")  # or with one whose number Qdrant does not know
    return DenseVector(size=message.size, distance=_DISTANCES[message.distance])


def _sparse(message: qdrant.SparseVectorParams) -> SparseVector:
    if message.index.datatype not in (qdrant.Datatype.Default, qdrant.Datatype.Float32):
        raise NotServed("vectors other than float32")
    if message.modifier not in qdrant.Modifier.values():
        raise InvalidRequest(f"there is no modifier {message.modifier}")
    return SparseVector(idf=message.modifier == qdrant.Modifier.Idf)


def to_index(
    message: qdrant.CreateFieldIndexCollection,
) -> engine.PayloadSchemaType | engine.KeywordIndexParams | engine.IntegerIndexParams:
    """Memory placement has no effect. Raises NotServed for text and geo indexes, InvalidRequest for an unknown type."""
    kind = _INDEX_TYPES.get(message.field_type)
    if not message.HasField("field_type"):
        raise InvalidRequest("field_type is missing")
    if message.field_type not in qdrant.FieldType.values():
        raise InvalidRequest(f"there is no field_type {message.field_type}")
    if kind is None:
        raise NotServed(f"payload indexes of kind {qdrant.FieldType.Name(message.field_type)}")
    params = message.field_index_params
    if params.HasField("keyword_index_params"):
        keyword = params.keyword_index_params
        if keyword.HasField("prefix") or keyword.nested:
            raise NotServed("prefix and nested payload indexes")
        return engine.KeywordIndexParams(is_tenant=keyword.is_tenant)
    if params.HasField("integer_index_params"):
        integer = params.integer_index_params
        if integer.nested:
            raise NotServed("prefix and nested payload indexes")
        return engine.IntegerIndexParams(
            lookup=integer.lookup if integer.HasField("lookup") else True,
            range=integer.range if integer.HasField("range") else True,
            is_principal=integer.is_principal,
        )
    return kind


def info_message(config: CollectionConfig, info: "engine.ShardInfo") -> qdrant.CollectionInfo:
    return qdrant.CollectionInfo(
        status=qdrant.CollectionStatus.Green,
        optimizer_status=qdrant.OptimizerStatus(ok=True),
        segments_count=info.segments_count,
        points_count=info.points_count,
        indexed_vectors_count=info.indexed_vectors_count,
        config=_config_message(config),
        payload_schema={field: _index_message(index) for field, index in info.payload_schema.items()},
    )


def _config_message(config: CollectionConfig) -> qdrant.CollectionConfig:
    dense = {
        name: qdrant.VectorParams(size=vector.size, distance=qdrant.Distance.Value(vector.distance))
        for name, vector in config.dense.items()
    }
    sparse = {
        name: qdrant.SparseVectorParams(modifier=qdrant.Modifier.Idf if vector.idf else qdrant.Modifier.Value("None"))
        for name, vector in config.sparse.items()
    }
    return qdrant.CollectionConfig(
        params=qdrant.CollectionParams(
            shard_number=1,
            replication_factor=1,
            write_consistency_factor=1,
            on_disk_payload=True,
            vectors_config=qdrant.VectorsConfig(params_map=qdrant.VectorParamsMap(map=dense)),
            sparse_vectors_config=qdrant.SparseVectorConfig(map=sparse),
        ),
        # What the engine does: no graph, exact search. The client needs every one of these fields.
        hnsw_config=qdrant.HnswConfigDiff(m=0, ef_construct=0, full_scan_threshold=0),
        optimizer_config=qdrant.OptimizersConfigDiff(
            deleted_threshold=0.2,
            vacuum_min_vector_number=1_000,
            default_segment_number=0,
            indexing_threshold=0,
            flush_interval_sec=0,
        ),
        wal_config=qdrant.WalConfigDiff(wal_capacity_mb=32, wal_segments_ahead=0),
    )


def _index_message(index: "engine.PayloadIndexInfo") -> qdrant.PayloadSchemaInfo:
    params = None
    if isinstance(index.params, engine.KeywordIndexParams):
        params = qdrant.PayloadIndexParams(
            keyword_index_params=qdrant.KeywordIndexParams(is_tenant=index.params.is_tenant)
        )
    elif isinstance(index.params, engine.IntegerIndexParams):
        params = qdrant.PayloadIndexParams(
            integer_index_params=qdrant.IntegerIndexParams(
                lookup=index.params.lookup, range=index.params.range, is_principal=index.params.is_principal
            )
        )
    return qdrant.PayloadSchemaInfo(
        data_type=_SCHEMA_TYPES.get(index.data_type, qdrant.PayloadSchemaType.UnknownType),
        params=params,
        points=index.points,
    )
