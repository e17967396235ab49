"""A process like a server's, for what is measured in the benchmark's own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
from kbmesh_rpc.garbage import settle

T = TypeVar("T")


def run_as_in_a_server(story: Coroutine[Any, Any, T]) -> T:
    """What it gives, on the event loop and with the garbage collector that a warm server has."""
    settle()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story)
