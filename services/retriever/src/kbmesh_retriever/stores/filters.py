"""Filters: whose points, and which of them, in Qdrant's terms."""

from collections.abc import Collection
from uuid import UUID

from qdrant_client import models

from kbmesh_retriever.stores.conditions import (
    NUMBER_FIELDS,
    PRINCIPALS,
    TEXT_FIELDS,
    check_condition,
    metadata_name,
)
from kbmesh_retriever.stores.port import ChunkRange, Condition, PointFilter, Scope

METADATA_NUMBERS = "metadata_numbers"
"""Payload key, this store's own, that holds the metadata values that are numbers: Qdrant compares no texts."""


def build_filter(
    scope: Scope,
    wanted: PointFilter | None = None,
    *,
    principals: Collection[str] | None = None,
    document_id: UUID | None = None,
    generations: Collection[int] = (),
    indexes: Collection[int] | None = None,
    ranges: Collection[ChunkRange] | None = None,
) -> models.Filter:
    """The filter of every read and every delete. It is the one place where tenant and knowledge base are put on.

    Raises InvalidField for a condition that cannot be kept.
    """
    must: list[models.Condition] = [
        _one_of("tenant", [scope.tenant]),
        _one_of("knowledge_base_id", [str(scope.knowledge_base_id)]),
    ]
    if principals is not None:
        must.append(_readable_by(principals))
    if document_id is not None:
        must.append(_one_of("document_id", [str(document_id)]))
    if generations:
        must.append(models.FieldCondition(key="generation", match=models.MatchAny(any=sorted(generations))))
    if indexes is not None:
        must.append(models.FieldCondition(key="index", match=models.MatchAny(any=sorted(indexes))))
    if ranges is not None:
        must.append(models.Filter(should=[_within(one) for one in ranges]))
    if wanted is None:
        return models.Filter(must=must)
    return models.Filter(
        must=[*must, *(_condition(condition) for condition in wanted.all)],
        should=[_condition(condition) for condition in wanted.any] or None,
        must_not=[_condition(condition) for condition in wanted.none] or None,
    )


def metadata_path(name: str) -> str:
    """The path of a metadata value, quoted: dots and brackets in it mean nothing."""
    return f'metadata."{name}"'


def _readable_by(principals: Collection[str]) -> models.Condition:
    open_to_all = models.IsEmptyCondition(is_empty=models.PayloadField(key=PRINCIPALS))
    if not principals:
        return open_to_all
    return models.Filter(should=[open_to_all, _one_of(PRINCIPALS, sorted(principals))])


def _within(chunks: ChunkRange) -> models.Condition:
    return models.Filter(
        must=[
            _one_of("document_id", [str(chunks.document_id)]),
            models.FieldCondition(key="generation", match=models.MatchValue(value=chunks.generation)),
            models.FieldCondition(key="index", range=models.Range(gte=chunks.first, lte=chunks.last)),
        ]
    )


def _condition(condition: Condition) -> models.FieldCondition:
    check_condition(condition)
    field = condition.field
    if condition.any_of:
        return _one_of(field if field in TEXT_FIELDS else metadata_path(metadata_name(field)), list(condition.any_of))
    key = field if field in NUMBER_FIELDS else f'{METADATA_NUMBERS}."{metadata_name(field)}"'
    return models.FieldCondition(key=key, range=models.Range(gte=condition.gte, lte=condition.lte))


def _one_of(key: str, values: list[str]) -> models.FieldCondition:
    if len(values) == 1:
        return models.FieldCondition(key=key, match=models.MatchValue(value=values[0]))
    return models.FieldCondition(key=key, match=models.MatchAny(any=values))
