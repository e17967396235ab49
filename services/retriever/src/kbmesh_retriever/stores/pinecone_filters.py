"""Filters in Pinecone's terms, and how metadata names become field names.

A field that is not there passes no condition, so what must not hold is written as "not there, or another": what
Pinecone does with `$nin` on absent fields is not relied on.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from kbmesh_retriever.stores.conditions import (
    NUMBER_FIELDS,
    PRINCIPALS,
    TEXT_FIELDS,
    check_condition,
    metadata_name,
)
from kbmesh_retriever.stores.port import ChunkRange, Condition, PointFilter

OPEN = "open"
"""Field that says whether everybody may read the point."""
HAS_DENSE = "has_dense"
"""Field that says whether the dense vector is one: Pinecone asks for a vector of every record."""

Expression = dict[str, Any]


def build_filter(
    wanted: PointFilter | None = None,
    *,
    principals: Collection[str] | None = None,
    document_id: UUID | None = None,
    generations: Collection[int] = (),
    indexes: Collection[int] | None = None,
    ranges: Collection[ChunkRange] | None = None,
    with_dense: bool = False,
) -> Expression | None:
    """None where nothing is asked. Tenant and knowledge base are the namespace. Raises InvalidField for a condition
    that cannot be kept."""
    clauses: list[Expression] = []
    if with_dense:
        clauses.append({HAS_DENSE: {"$eq": True}})
    if principals is not None:
        open_to_all: Expression = {OPEN: {"$eq": True}}
        named: Expression = {PRINCIPALS: {"$in": sorted(principals)}}
        clauses.append({"$or": [open_to_all, named]} if principals else open_to_all)
    if document_id is not None:
        clauses.append({"document_id": {"$eq": str(document_id)}})
    if generations:
        clauses.append({"generation": {"$in": sorted(generations)}})
    if indexes is not None:
        clauses.append({"index": {"$in": sorted(indexes)}})
    if ranges is not None:
        clauses.append(_any([_within(one) for one in ranges]))
    if wanted is not None:
        clauses += [_condition(condition) for condition in wanted.all]
        if wanted.any:
            clauses.append(_any([_condition(condition) for condition in wanted.any]))
        clauses += [_negated(condition) for condition in wanted.none]
    if len(clauses) > 1:
        return {"$and": clauses}
    return clauses[0] if clauses else None


def metadata_fields(texts: Mapping[str, str], numbers: Mapping[str, float]) -> dict[str, str | float]:
    """The fields that hold metadata, for filters: each value as a text, and those that are numbers as such too."""
    return {
        **{text_field(name): value for name, value in texts.items()},
        **{number_field(name): value for name, value in numbers.items()},
    }


def text_field(name: str) -> str:
    return f"mt_{_spelled(name)}"


def number_field(name: str) -> str:
    return f"mn_{_spelled(name)}"


def _spelled(name: str) -> str:
    """Letters and digits of ASCII as they are, the rest as bytes: no name is an operator, a path or another's."""
    return "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"_{byte:02x}"
        for byte in name.encode("utf-8", "surrogatepass")
    )


def _within(chunks: ChunkRange) -> Expression:
    return {
        "$and": [
            {"document_id": {"$eq": str(chunks.document_id)}},
            {"generation": {"$eq": chunks.generation}},
            {"index": {"$gte": chunks.first, "$lte": chunks.last}},
        ]
    }


def _condition(condition: Condition) -> Expression:
    key, has_texts = _key(condition)
    if has_texts:
        return {key: {"$in": list(condition.any_of)}}
    bounds = {"$gte": condition.gte, "$lte": condition.lte}
    return {key: {operator: bound for operator, bound in bounds.items() if bound is not None}}


def _negated(condition: Condition) -> Expression:
    key, has_texts = _key(condition)
    absent: Expression = {key: {"$exists": False}}
    if has_texts:
        return {"$or": [absent, {key: {"$nin": list(condition.any_of)}}]}
    beyond = {"$lt": condition.gte, "$gt": condition.lte}
    return _any([absent, *({key: {operator: bound}} for operator, bound in beyond.items() if bound is not None)])


def _key(condition: Condition) -> tuple[str, bool]:
    check_condition(condition)
    field = condition.field
    if field in TEXT_FIELDS or field in NUMBER_FIELDS:
        return field, field in TEXT_FIELDS
    name = metadata_name(field)
    return (text_field(name), True) if condition.any_of else (number_field(name), False)


def _any(clauses: Sequence[Expression]) -> Expression:
    return clauses[0] if len(clauses) == 1 else {"$or": list(clauses)}
