"""Who calls, and until when: the context of the call that the current task serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from kbmesh_rpc.deadline import Deadline

DEFAULT_TENANT = "default"


@dataclass(frozen=True, kw_only=True)
class CallContext:
    """What the server knows of a call beside its request. Tasks made while it is served inherit it."""

    request_id: str
    tenant: str
    principals: tuple[str, ...]
    """Who the caller is, for access lists: user and groups. Empty for an anonymous caller."""
    deadline: Deadline | None
    """None for a streaming call whose caller set none."""


_current: ContextVar[CallContext] = ContextVar("kbmesh_call")


def current_call() -> CallContext:
    """The call being served. Raises LookupError outside a call."""
    return _current.get()


def optional_call() -> CallContext | None:
    """The call being served, or None outside a call."""
    return _current.get(None)


@contextmanager
def with_call(ctx: CallContext) -> Iterator[CallContext]:
    """Makes `ctx` the current call: for work that no server started, such as background work and tests."""
    token = _current.set(ctx)
    try:
        yield ctx
    finally:
        _current.reset(token)
