"""Filters of the protocol as filters of the engine."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import qdrant_edge as engine
from qdrant_client import grpc as qdrant

from kbmesh_edge.errors import InvalidRequest, NotServed


def to_filter(message: qdrant.Filter) -> engine.Filter:
    """Raises InvalidRequest for an empty condition, NotServed for text, geo, vector and slice conditions."""
    min_should = None
    if message.HasField("min_should"):
        min_should = engine.MinShould(
            conditions=_conditions(message.min_should.conditions), min_count=message.min_should.min_count
        )
    return engine.Filter(
        must=_conditions(message.must) or None,
        should=_conditions(message.should) or None,
        must_not=_conditions(message.must_not) or None,
        min_should=min_should,
    )


def point_id(message: qdrant.PointId) -> int | UUID:
    kind = message.WhichOneof("point_id_options")
    if kind == "num":
        return message.num
    if kind == "uuid":
        try:
            return UUID(message.uuid)
        except ValueError:
            raise InvalidRequest(f"Unable to parse UUID: {message.uuid[:100]}") from None
    raise InvalidRequest("Empty ID is not allowed")


def _conditions(messages: Iterable[qdrant.Condition]) -> list[Any]:
    return [_condition(message) for message in messages]


def _condition(message: qdrant.Condition) -> object:
    match message.WhichOneof("condition_one_of"):
        case "field":
            return _field(message.field)
        case "filter":
            return to_filter(message.filter)
        case "has_id":
            return engine.HasIdCondition({point_id(id_) for id_ in message.has_id.has_id})
        case "is_empty":
            return engine.IsEmptyCondition(message.is_empty.key)
        case "is_null":
            return engine.IsNullCondition(message.is_null.key)
        case None:
            raise InvalidRequest("Malformed Condition type")
        case kind:
            raise NotServed(f"filter conditions of kind {kind}")


def _field(message: qdrant.FieldCondition) -> engine.FieldCondition:
    for kind in ("geo_bounding_box", "geo_radius", "geo_polygon", "datetime_range"):
        if message.HasField(kind):
            raise NotServed(f"filter conditions of kind {kind}")
    return engine.FieldCondition(
        key=message.key,
        match=_match(message.match) if message.HasField("match") else None,
        range=_range(message.range) if message.HasField("range") else None,
        values_count=_values_count(message.values_count) if message.HasField("values_count") else None,
        is_empty=message.is_empty if message.HasField("is_empty") else None,
        is_null=message.is_null if message.HasField("is_null") else None,
    )


def _match(message: qdrant.Match) -> Any:
    match message.WhichOneof("match_value"):
        case "keyword":
            return engine.MatchValue(message.keyword)
        case "integer":
            return engine.MatchValue(message.integer)
        case "boolean":
            # The engine's Python binding takes True for the integer 1, which would match something else in silence.
            raise NotServed("match conditions of kind boolean")
        case "keywords":
            return engine.MatchAny(list(message.keywords.strings))
        case "integers":
            return engine.MatchAny(list(message.integers.integers))
        case "except_keywords":
            return engine.MatchExcept(list(message.except_keywords.strings))
        case "except_integers":
            return engine.MatchExcept(list(message.except_integers.integers))
        case None:
            raise InvalidRequest("Malformed Match condition")
        case kind:
            raise NotServed(f"match conditions of kind {kind}")


def _range(message: qdrant.Range) -> engine.RangeFloat:
    return engine.RangeFloat(
        gt=message.gt if message.HasField("gt") else None,
        gte=message.gte if message.HasField("gte") else None,
        lt=message.lt if message.HasField("lt") else None,
        lte=message.lte if message.HasField("lte") else None,
    )


def _values_count(message: qdrant.ValuesCount) -> engine.ValuesCount:
    return engine.ValuesCount(
        gt=message.gt if message.HasField("gt") else None,
        gte=message.gte if message.HasField("gte") else None,
        lt=message.lt if message.HasField("lt") else None,
        lte=message.lte if message.HasField("lte") else None,
    )
