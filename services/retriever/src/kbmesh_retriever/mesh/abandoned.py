"""Calls that nobody waits for any more."""

import asyncio
import contextlib
from typing import Any

_abandoned: set[asyncio.Future[Any]] = set()
"""Kept until they end: the event loop itself holds tasks only weakly."""


def abandon(call: asyncio.Future[Any]) -> None:
    """Cancels it and leaves it to end by itself, be it with an error. Does nothing to one that has ended."""
    call.cancel()
    _abandoned.add(call)
    call.add_done_callback(_end)


def _end(call: asyncio.Future[Any]) -> None:
    _abandoned.discard(call)
    with contextlib.suppress(asyncio.CancelledError):
        call.exception()  # that it failed after it was given up is nobody's concern
