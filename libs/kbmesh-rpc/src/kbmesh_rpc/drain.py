"""Counting the calls in flight, so that a server that ends can let them finish, and can end those that do not."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Drain:
    """Which calls are in flight, and whether new ones may come. Belongs to one event loop."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._draining = False
        self._last_arrival: float | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._cut_off: frozenset[asyncio.Task[Any]] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def draining(self) -> bool:
        """Whether new calls are to be refused."""
        return self._draining

    @property
    def in_flight(self) -> int:
        """Calls that have begun and not ended."""
        return self._in_flight

    def begin(self) -> None:
        """From now on new calls are to be refused."""
        self._draining = True

    def arrived(self) -> None:
        """A call has come, be it let in or refused."""
        self._last_arrival = asyncio.get_running_loop().time()

    async def quiet(self, seconds: float, *, at_most_seconds: float) -> None:
        """Waits until no call has come for so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + at_most_seconds
        while self._last_arrival is not None:
            wait = min(self._last_arrival + seconds, end) - loop.time()
            if wait <= 0:
                return
            await asyncio.sleep(wait)

    def enter(self) -> None:
        """A call begins."""
        self._in_flight += 1
        self._idle.clear()

    def leave(self) -> None:
        """A call has ended, and its status is sent."""
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle.set()

    async def idle(self, timeout_seconds: float) -> bool:
        """Waits until no call is in flight; False where the time was not enough."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the servicer's part of a call: within it the current task can be cut off."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs in a task")
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    def cut_off(self) -> None:
        """Cancels what still runs. Call it once, at the end."""
        self._cut_off = frozenset(self._running)
        for task in self._cut_off:
            task.cancel()

    def cuts_off(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was `cut_off`, and nobody else, that cancelled `task`."""
        return task in self._cut_off and task.cancelling() == 1
