"""Queries of the protocol as queries of the engine."""

import qdrant_edge as engine
from qdrant_client import grpc as qdrant

from kbmesh_edge.config import CollectionConfig
from kbmesh_edge.errors import InvalidRequest, NotServed
from kbmesh_edge.filters import to_filter
from kbmesh_edge.points import EngineVector, checked_vector

_DEFAULT_LIMIT = 10
# A larger number says "all" and would only make the engine set aside memory for it.
_MAX_LIMIT = 1_000_000


def to_query(message: qdrant.QueryPoints, config: CollectionConfig) -> engine.QueryRequest:
    """Nearest neighbours of a dense or sparse vector.

    Raises NotServed for prefetches, fusion and every other kind of query, InvalidRequest for a vector that does not
    fit the collection.
    """
    if message.prefetch:
        raise NotServed("queries with a prefetch")
    if message.HasField("lookup_from"):
        raise NotServed("queries with lookup_from")
    if message.HasField("shard_key_selector"):
        raise NotServed("custom sharding")
    kind = message.query.WhichOneof("variant")
    if kind != "nearest":
        raise NotServed(f"queries of kind {kind}" if kind else "queries without a vector")
    return engine.QueryRequest(
        query=engine.Query.Nearest(_query_vector(message, config), message.using),
        filter=to_filter(message.filter) if message.HasField("filter") else None,
        limit=checked_limit(message.limit) if message.HasField("limit") else _DEFAULT_LIMIT,
        offset=checked_limit(message.offset),
        score_threshold=message.score_threshold if message.HasField("score_threshold") else None,
        params=_params(message.params) if message.HasField("params") else None,
        with_payload=to_payload_selector(message.with_payload),
        with_vector=to_vector_selector(message.with_vectors),
    )


def checked_limit(limit: int) -> int:
    if limit > _MAX_LIMIT:
        raise InvalidRequest(f"limit and offset are at most {_MAX_LIMIT}, not {limit}")
    return limit


def to_payload_selector(message: qdrant.WithPayloadSelector) -> bool | engine.PayloadSelector:
    """Absent: no payload."""
    match message.WhichOneof("selector_options"):
        case "include":
            return engine.PayloadSelector.Include(list(message.include.fields))
        case "exclude":
            return engine.PayloadSelector.Exclude(list(message.exclude.fields))
        case _:
            return message.enable


def to_vector_selector(message: qdrant.WithVectorsSelector) -> bool | list[str]:
    """Absent: no vectors."""
    if message.WhichOneof("selector_options") == "include":
        return list(message.include.names)
    return message.enable


def _query_vector(message: qdrant.QueryPoints, config: CollectionConfig) -> EngineVector:
    vector = message.query.nearest
    match vector.WhichOneof("variant"):
        case "dense":
            return checked_vector(message.using, vector.dense.data, config)
        case "sparse":
            return checked_vector(message.using, (vector.sparse.indices, vector.sparse.values), config)
        case None:
            raise InvalidRequest("the query has no vector")
        case kind:
            raise NotServed(f"nearest queries by {kind}")


def _params(message: qdrant.SearchParams) -> engine.SearchParams:
    """Search is exact whatever the parameters say; only the population of the word statistics matters."""
    idf = None
    if message.HasField("idf"):
        idf = engine.IdfParams(corpus=to_filter(message.idf.corpus) if message.idf.HasField("corpus") else None)
    return engine.SearchParams(exact=True, idf=idf)
