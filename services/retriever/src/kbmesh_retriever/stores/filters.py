"""Filters: whose points, and which of them, in Qdrant's terms."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import InvalidField
from qdrant_client import models

from kbmesh_retriever.stores.port import Condition, PointFilter, Scope

METADATA_NUMBERS = "metadata_numbers"
"""Payload key, this store's own, that holds the metadata values that are numbers: Qdrant compares no texts."""

_METADATA_PREFIX = "metadata."
_TEXT_FIELDS = frozenset({"source_type", "document_id", "external_id", "media_type", "strategy"})
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def build_filter(
    scope: Scope,
    wanted: PointFilter | None = None,
    *,
    document_id: UUID | None = None,
    generations: Collection[int] = (),
) -> models.Filter:
    """The filter of every read and every delete. It is the one place where tenant and knowledge base are put on.

    Raises InvalidField for a condition that cannot be kept.
    """
    must: list[models.Condition] = [
        _one_of("tenant", [scope.tenant]),
        _one_of("knowledge_base_id", [str(scope.knowledge_base_id)]),
    ]
    if document_id is not None:
        must.append(_one_of("document_id", [str(document_id)]))
    if generations:
        must.append(models.FieldCondition(key="generation", match=models.MatchAny(any=sorted(generations))))
    if wanted is None:
        return models.Filter(must=must)
    return models.Filter(
        must=[*must, *(_condition(condition) for condition in wanted.all)],
        should=[_condition(condition) for condition in wanted.any] or None,
        must_not=[_condition(condition) for condition in wanted.none] or None,
    )


def metadata_numbers(metadata: Mapping[str, Any]) -> dict[str, float]:
    """The values of `metadata` that are written as numbers."""
    numbers = {
        name: float(value)
        for name, value in metadata.items()
        if isinstance(value, str) and _NUMBER.fullmatch(value) is not None
    }
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def _condition(condition: Condition) -> models.FieldCondition:
    if condition.any_of:
        return _one_of(_text_key(condition.field), list(condition.any_of))
    if condition.gte is not None or condition.lte is not None:
        return models.FieldCondition(
            key=_number_key(condition.field), range=models.Range(gte=condition.gte, lte=condition.lte)
        )
    raise InvalidField("filter", f"the condition on {condition.field!r} tests nothing")


def _one_of(key: str, values: list[str]) -> models.FieldCondition:
    if len(values) == 1:
        return models.FieldCondition(key=key, match=models.MatchValue(value=values[0]))
    return models.FieldCondition(key=key, match=models.MatchAny(any=values))


def _text_key(field: str) -> str:
    if field in _TEXT_FIELDS:
        return field
    return f"metadata.{_quoted(field)}"


def _number_key(field: str) -> str:
    if field in _TEXT_FIELDS:
        raise InvalidField("filter", f"{field!r} is a text and has no range")
    return f"{METADATA_NUMBERS}.{_quoted(field)}"


def _quoted(field: str) -> str:
    """The metadata name as a part of a Qdrant path, which has quotes and no way to escape one."""
    name = field.removeprefix(_METADATA_PREFIX)
    if name == field:
        allowed = ", ".join(sorted(_TEXT_FIELDS))
        raise InvalidField("filter", f"{field!r} cannot be filtered; it is none of {allowed} and metadata.NAME")
    if not name or '"' in name or "\\" in name:
        raise InvalidField("filter", f"the metadata name {name!r} is empty or has a quote or a backslash")
    return f'"{name}"'
