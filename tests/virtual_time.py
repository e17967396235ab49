"""An event loop whose time is a number, and a model that takes of it what its tokens cost.

A minute of overload passes in the time that the bookkeeping takes, and twice the same.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class _NeverWaits(selectors.DefaultSelector):
    """Moves the clock on where the loop would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0 and jumps to whatever is next."""

    def __init__(self) -> None:
        self._never_waits = _NeverWaits()
        super().__init__(self._never_waits)

    def time(self) -> float:
        return self._never_waits.now


def run_virtually(story: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Runs a story in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(story(loop))
    finally:
        loop.close()


class SlowModel(Executor):
    """Runs one batch at a time. A batch takes `overhead_seconds`, and its padded tokens at `tokens_per_second`."""

    def __init__(self, loop: VirtualLoop, *, tokens_per_second: float, overhead_seconds: float) -> None:
        self._loop = loop
        self._tokens_per_second = tokens_per_second
        self._overhead_seconds = overhead_seconds
        self.busy_seconds = 0.0
        self.running = False

    def seconds(self, lengths: list[int]) -> float:
        return self._overhead_seconds + len(lengths) * max(lengths) / self._tokens_per_second

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        assert not self.running, "the model is asked to do two things at once"
        self.running = True
        (_, payloads) = args
        seconds = self.seconds([payload.tokens for payload in payloads])
        self.busy_seconds += seconds
        future: Future[T] = Future()

        def finish() -> None:
            self.running = False
            future.set_result(fn(*args, **kwargs))

        self._loop.call_later(seconds, finish)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        return
