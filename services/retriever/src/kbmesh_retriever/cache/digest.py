"""One name for everything that decides a value."""

import hashlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from uuid import UUID


def digest_of(*parts: object) -> str:
    """SHA-256 hex of values that are equal only where every part is: dataclasses field by field, mappings and sets in
    any order, sequences in theirs. A field that is added to a dataclass counts from then on. Raises TypeError for
    values of other kinds, whose equality is not known here."""
    digest = hashlib.sha256()
    for piece in _pieces(parts):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: object) -> Iterator[bytes]:
    """Each value with its kind and its length before it: no two different ones give the same bytes."""
    if value is None:
        yield b"n;"
    elif isinstance(value, Enum):
        yield from _text("e", f"{type(value).__name__}.{value.name}")
    elif isinstance(value, bool | int | float):
        yield from _text(type(value).__name__, repr(value))
    elif isinstance(value, str):
        yield from _text("s", value)
    elif isinstance(value, bytes):
        yield b"b%d:" % len(value)
        yield value
    elif isinstance(value, UUID | datetime):
        yield from _text(type(value).__name__, str(value))
    elif isinstance(value, Mapping):
        yield b"m%d:" % len(value)
        yield from sorted(b"".join(_pieces(item)) for item in value.items())
    elif isinstance(value, AbstractSet):
        yield b"x%d:" % len(value)
        yield from sorted(b"".join(_pieces(item)) for item in value)
    elif isinstance(value, tuple | list):
        yield b"t%d:" % len(value)
        for item in value:
            yield from _pieces(item)
    elif is_dataclass(value) and not isinstance(value, type):
        names = _names(type(value))
        yield from _text("d", type(value).__name__)
        yield b"%d:" % len(names)
        for name in names:
            yield from _text("f", name)
            yield from _pieces(getattr(value, name))
    else:
        raise TypeError(f"a {type(value).__name__} cannot be part of a cache key")


def _text(kind: str, text: str) -> Iterator[bytes]:
    encoded = text.encode("utf-8", "surrogatepass")
    yield b"%s%d:" % (kind.encode(), len(encoded))
    yield encoded


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
