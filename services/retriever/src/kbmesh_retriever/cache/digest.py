"""One name for everything that decides a value."""

import hashlib
from collections.abc import Callable, Mapping
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
    pieces: list[bytes] = []
    _write(parts, pieces.append)
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def _write(value: object, put: Callable[[bytes], None]) -> None:
    """Each value with its kind and its length before it: no two different ones give the same bytes. The most frequent
    kinds come first: this is done for every question."""
    if isinstance(value, Enum):
        _text("e", f"{type(value).__name__}.{value.name}", put)
    elif isinstance(value, str):
        _text("s", value, put)
    elif value is None:
        put(b"n;")
    elif isinstance(value, bool | int | float):
        _text(type(value).__name__, repr(value), put)
    elif isinstance(value, UUID | datetime):
        _text(type(value).__name__, str(value), put)
    elif isinstance(value, tuple | list):
        put(b"t%d:" % len(value))
        for item in value:
            _write(item, put)
    elif isinstance(value, Mapping):
        put(b"m%d:" % len(value))
        put(b"".join(sorted(map(_bytes_of, value.items()))))
    elif isinstance(value, AbstractSet):
        put(b"x%d:" % len(value))
        put(b"".join(sorted(map(_bytes_of, value))))
    elif isinstance(value, bytes):
        put(b"b%d:" % len(value))
        put(value)
    elif is_dataclass(value) and not isinstance(value, type):
        names = _names(type(value))
        _text("d", f"{type(value).__name__}({','.join(names)})", put)
        for name in names:
            _write(getattr(value, name), put)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be part of a cache key")


def _bytes_of(value: object) -> bytes:
    pieces: list[bytes] = []
    _write(value, pieces.append)
    return b"".join(pieces)


def _text(kind: str, text: str, put: Callable[[bytes], None]) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    put(b"%s%d:%s" % (kind.encode(), len(encoded), encoded))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
