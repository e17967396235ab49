"""Between the SDK's enums and the contracts' numbers."""

from collections.abc import Callable
from typing import TypeVar

from kbmesh.errors.v1 import errors_pb2

from kbmesh_client.enums import WireEnum

E = TypeVar("E", bound=WireEnum)


def name_without_prefix(name_of: Callable[..., str], number: int, prefix: str) -> str:
    """Gives "" for the zero value and for a number that this SDK does not know."""
    try:
        name = name_of(number).removeprefix(prefix)
    except ValueError:  # enums are open: a newer server may send a newer value
        return ""
    return "" if name == "UNSPECIFIED" else name


def from_number(kind: type[E], name_of: Callable[..., str], number: int, prefix: str, default: E) -> E:
    """Gives `default` for the zero value and for what this SDK does not know."""
    try:
        return kind(name_without_prefix(name_of, number, prefix))
    except ValueError:
        return default


def reason_name(number: int) -> str:
    """Name of an ErrorReason without its prefix."""
    return name_without_prefix(errors_pb2.ErrorReason.Name, number, "ERROR_REASON_") or f"REASON_{number}"
