"""Filters as a person types them: `tags=ops,db`, `time>=2026-01-01`, `author!=bob`."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from kbmesh_client import Condition, Filter, SourceType

from kbmesh_cli.errors import CliError

TEXT_FIELDS = ("source_type", "document_id", "external_id", "media_type", "strategy", "chunk_type", "author", "tags")
"""Fields that are one of some texts."""
TIME = "time"
"""The field that is a moment: when the document was written."""
METADATA = "metadata."
"""What the name of a field of metadata begins with. A value that is written as a number is one too."""
SOURCE_TYPES = tuple(kind.value.lower() for kind in SourceType if kind is not SourceType.UNKNOWN)

_CONDITION = re.compile(r"\s*([^=<>!]*?)\s*(!=|>=|<=|=|<|>)(.*)", re.DOTALL)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMMA = re.compile(r"(?<!\\),")
_EXAMPLES = "such as tags=ops,db, author!=bob, time>=2026-01-01 or metadata.year>=2020"


def parse_filter(conditions: Sequence[str]) -> Filter | None:
    """Reads conditions of the forms FIELD=VALUE, FIELD!=VALUE, FIELD>=NUMBER and FIELD<=NUMBER.

    Values of one field, with commas between them or given one after the other, are alternatives; all else must hold.
    A comma in a value is written with a backslash before it. Raises CliError.
    """
    wanted: dict[str, list[str]] = {}
    unwanted: dict[str, list[str]] = {}
    ranges: list[Condition] = []
    for condition in conditions:
        found = _CONDITION.fullmatch(condition)
        if found is None or not found[1] or not found[3].strip():
            raise _wrong(f"needs FIELD=VALUE, not {condition!r}")
        field, operator, value = found.groups()
        _check_field(field)
        if operator in ("<", ">"):
            raise _wrong(f"has no {operator!r}: a bound is included", hint=f"write {field}{operator}={value.strip()}")
        if operator in (">=", "<="):
            bound = _bound(field, value.strip(), is_lower=operator == ">=")
            is_lower = operator == ">="
            ranges.append(Condition(field=field, gte=bound if is_lower else None, lte=None if is_lower else bound))
        else:
            said = unwanted if operator == "!=" else wanted
            said.setdefault(field, []).extend(_values(field, value))
    if not (wanted or unwanted or ranges):
        return None
    return Filter(all=(*_one_of(wanted), *ranges), none=_one_of(unwanted))


def _one_of(said: Mapping[str, Sequence[str]]) -> tuple[Condition, ...]:
    return tuple(Condition(field=field, any_of=tuple(values)) for field, values in said.items())


def _check_field(field: str) -> None:
    name = field.removeprefix(METADATA)
    if field in TEXT_FIELDS or field == TIME or (name != field and name):
        return
    raise _wrong(f"has no field {field!r}", hint=f"there are {', '.join((*TEXT_FIELDS, TIME))} and metadata.NAME")


def _values(field: str, text: str) -> list[str]:
    if field == TIME:
        raise _wrong("has time as a range only", hint="write time>=2026-01-01 and time<=2026-01-31, each with --filter")
    values = [value.replace("\\,", ",") for value in _COMMA.split(text)]
    if not all(value.strip() for value in values):
        raise _wrong(f"has an empty value in {field}={text}", hint="a comma in a value is written \\,")
    if field == "source_type":
        values = [value.strip().lower().replace("-", "_") for value in values]
        for value in values:
            if value not in SOURCE_TYPES:
                raise _wrong(f"has no source type {value!r}", hint=f"there are {', '.join(SOURCE_TYPES)}")
    return values


def _bound(field: str, text: str, *, is_lower: bool) -> float:
    if field in TEXT_FIELDS:
        raise _wrong(f"has no range of {field}, which is a text", hint=_EXAMPLES)
    if field == TIME:
        return _seconds(text, is_lower=is_lower)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(f"needs a number as bound of {field}, not {text!r}", hint=_EXAMPLES)
    return number


def _seconds(text: str, *, is_lower: bool) -> float:
    """Since 1970 UTC. A day is meant as a whole; what names no zone is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "such as time>=2026-01-01 or time<=2026-01-31T18:00:00+01:00"
        raise _wrong(f"needs a date or a time (ISO 8601) as bound of time, not {text!r}", hint=hint) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if _DAY.fullmatch(text) and not is_lower:
        moment += timedelta(days=1, microseconds=-1)
    return moment.timestamp()


def _wrong(said: str, *, hint: str = _EXAMPLES) -> CliError:
    return CliError("USAGE", f"--filter {said}", hint=hint)
