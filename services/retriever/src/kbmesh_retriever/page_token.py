"""Page tokens: opaque to the caller, and good only for the list they come from."""

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from kbmesh_rpc.errors import InvalidField

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_DIGEST_BYTES = 9

T = TypeVar("T")


def page_limit(page_size: int) -> int:
    """How many to give. 0 means the default. Raises InvalidField over MAX_PAGE_SIZE."""
    if page_size > MAX_PAGE_SIZE:
        raise InvalidField("page_size", f"must be at most {MAX_PAGE_SIZE}")
    return page_size or DEFAULT_PAGE_SIZE


def read_page_token(token: str, *scope: str) -> str:
    """After which key the page begins; empty for the first. `scope` names the list: tenant, knowledge base. Raises
    InvalidField for a token that this list did not give out."""
    if not token:
        return ""
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
        after = data[_DIGEST_BYTES:].decode()
    except (binascii.Error, ValueError):
        raise InvalidField("page_token", "is not a token that this service gave out") from None
    if data[:_DIGEST_BYTES] != _digest(after, scope):
        raise InvalidField("page_token", "is not a token of this list")
    return after


def cut_page(found: Sequence[T], limit: int, key: Callable[[T], str], *scope: str) -> tuple[Sequence[T], str]:
    """The page, and the token of the next one. `found` holds one more than `limit` where there is a next one."""
    if len(found) <= limit:
        return found, ""
    page = found[:limit]
    after = key(page[-1])
    return page, base64.b64encode(_digest(after, scope) + after.encode(), altchars=b"-_").decode()


def _digest(after: str, scope: Sequence[str]) -> bytes:
    return hashlib.sha256("\0".join((*scope, after)).encode()).digest()[:_DIGEST_BYTES]
