"""Calls that nobody waits for any more."""

import asyncio
import contextlib
from typing import Any

from prometheus_client import Counter, Gauge

ABANDONED = Counter(
    "kbmesh_retriever_abandoned_calls_total",
    "Calls to others that were given up before they had ended: their caller's time was over, or a second attempt won.",
)
RUNNING = Gauge(
    "kbmesh_retriever_abandoned_calls_running",
    "Calls that were given up and have not ended yet. They hold connections.",
)

_abandoned: set[asyncio.Future[Any]] = set()
"""Kept until they end: the event loop itself holds tasks only weakly."""


def abandon(call: asyncio.Future[Any]) -> None:
    """Cancels it and leaves it to end by itself, be it with an error. Does nothing to one that has ended."""
    if not call.done():
        ABANDONED.inc()
    call.cancel()
    _abandoned.add(call)
    RUNNING.set(len(_abandoned))
    call.add_done_callback(_end)


def _end(call: asyncio.Future[Any]) -> None:
    _abandoned.discard(call)
    RUNNING.set(len(_abandoned))
    with contextlib.suppress(asyncio.CancelledError):
        call.exception()  # that it failed after it was given up is nobody's concern
