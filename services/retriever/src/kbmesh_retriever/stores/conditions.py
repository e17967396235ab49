"""Filters, whatever store keeps them: what may be asked of a point, and the answer in plain Python."""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from kbmesh_rpc.errors import InvalidField, shown

from kbmesh_retriever.stores.port import Condition, PointFilter

TEXT_FIELDS = frozenset(
    {"source_type", "document_id", "external_id", "media_type", "strategy", "chunk_type", "author", "tags"}
)
"""Payload keys that hold a text or several, and can be filtered by `any_of`."""
NUMBER_FIELDS = frozenset({"time"})
"""Payload keys that hold a number, and can be filtered by a range."""
PRINCIPALS = "principals"
"""Payload key of who may read the point. Not for filters: who asks is not for the asker to say."""
KEYS_OF_IDENTITY = frozenset({"tenant", "knowledge_base_id", "document_id", "generation", "index"})
"""Payload keys that are never changed in place."""

_METADATA_PREFIX = "metadata."
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def check_condition(condition: Condition) -> None:
    """Raises InvalidField for a condition that no store can keep."""
    field = condition.field
    has_range = condition.gte is not None or condition.lte is not None
    if not condition.any_of and not has_range:
        raise InvalidField("filter", f"the condition on {shown(field)} tests nothing")
    if condition.any_of and has_range:
        raise InvalidField(
            "filter", f"the condition on {shown(field)} is for texts and for a range; it can be one of them"
        )
    if field in TEXT_FIELDS:
        if has_range:
            raise InvalidField("filter", f"{shown(field)} is a text and has no range")
    elif field in NUMBER_FIELDS:
        if condition.any_of:
            raise InvalidField("filter", f"{shown(field)} is a number and is filtered by a range")
    else:
        metadata_name(field)
    for bound in (condition.gte, condition.lte):
        if bound is not None and not math.isfinite(bound):
            raise InvalidField("filter", f"a bound of {shown(field)} is not a finite number")


def metadata_name(field: str) -> str:
    """NAME of metadata.NAME. Raises InvalidField for anything else, and for names that cannot be part of a path: Qdrant
    quotes them and knows no way to escape a quote."""
    name = field.removeprefix(_METADATA_PREFIX)
    if name == field:
        allowed = ", ".join(sorted(TEXT_FIELDS | NUMBER_FIELDS))
        raise InvalidField("filter", f"{shown(field)} cannot be filtered; it is none of {allowed} and metadata.NAME")
    if not name or '"' in name or "\\" in name:
        raise InvalidField("filter", f"the metadata name {shown(name)} is empty or has a quote or a backslash")
    return name


def metadata_numbers(metadata: Mapping[str, Any]) -> dict[str, float]:
    """The values of `metadata` that are written as numbers."""
    numbers = {
        name: float(value)
        for name, value in metadata.items()
        if isinstance(value, str) and _NUMBER.fullmatch(value) is not None
    }
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def keeps(wanted: PointFilter, payload: Mapping[str, Any]) -> bool:
    """Whether the filter keeps a point of that payload. Raises InvalidField for a condition that cannot be kept."""
    for condition in (*wanted.all, *wanted.any, *wanted.none):
        check_condition(condition)
    return (
        all(_passes(condition, payload) for condition in wanted.all)
        and (not wanted.any or any(_passes(condition, payload) for condition in wanted.any))
        and not any(_passes(condition, payload) for condition in wanted.none)
    )


def may_read(principals: Collection[str] | None, payload: Mapping[str, Any]) -> bool:
    """Whether one of `principals` may read a point of that payload; None may read all."""
    named = payload.get(PRINCIPALS) or ()
    return principals is None or not named or not set(principals).isdisjoint(named)


def check_update(values: Mapping[str, Any]) -> None:
    """Raises ValueError for an update of the payload that would make another point of it."""
    if fixed := KEYS_OF_IDENTITY.intersection(values):
        raise ValueError(f"{', '.join(sorted(fixed))} cannot be changed in place")


def check_selective(wanted: PointFilter) -> None:
    """Raises ValueError for a filter that keeps everything."""
    if not (wanted.all or wanted.any or wanted.none):
        raise ValueError("a filter without conditions would delete the whole knowledge base")


def _passes(condition: Condition, payload: Mapping[str, Any]) -> bool:
    field = condition.field
    if condition.any_of:
        held = payload.get(field) if field in TEXT_FIELDS else (payload.get("metadata") or {}).get(metadata_name(field))
        texts = [held] if isinstance(held, str) else held or ()
        return not set(condition.any_of).isdisjoint(texts)
    if field in NUMBER_FIELDS:
        number = payload.get(field)
    else:
        number = metadata_numbers(payload.get("metadata") or {}).get(metadata_name(field))
    if number is None:
        return False
    return (condition.gte is None or number >= condition.gte) and (condition.lte is None or number <= condition.lte)
