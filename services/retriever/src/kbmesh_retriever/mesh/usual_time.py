"""How long calls usually take, learned from what they took last."""

import time
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WINDOW = 128
_OLDEST_SECONDS = 60.0
"""So that what was slow, and is avoided since, is tried again."""
_FEWEST = 8
"""With fewer measurements the default counts."""


class Window:
    """Quantiles of the last 128 measurements of the last minute."""

    def __init__(
        self, default_seconds: float, *, wary: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`wary`: with few measurements the longest of them counts where it is longer than the default. On a slow
        machine that is seldom asked, the default would be wrong for ever."""
        self._default = default_seconds
        self._wary = wary
        self._clock = clock
        self._in_time: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Observes what happens inside, where it ends well."""
        started = self._clock()
        yield
        self.observe(self._clock() - started)

    def observe(self, seconds: float) -> None:
        """It was done in so many."""
        now = self._clock()
        self._in_time.append((now, seconds))
        insort(self._sorted, seconds)
        if len(self._in_time) > _WINDOW:
            self._forget()
        self._forget_before(now - _OLDEST_SECONDS)

    def observe_cut_off(self, seconds: float) -> None:
        """It was not done after so many, when it was given up. That tells something only where it is already long."""
        if seconds > self.quantile(0.95):
            self.observe(seconds)

    def quantile(self, share: float) -> float:
        """Seconds within which that share of all is done."""
        self._forget_before(self._clock() - _OLDEST_SECONDS)
        if len(self._sorted) < _FEWEST:
            return max(self._default, self._sorted[-1]) if self._sorted and self._wary else self._default
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)]

    def _forget_before(self, moment: float) -> None:
        while self._in_time and self._in_time[0][0] < moment:
            self._forget()

    def _forget(self) -> None:
        _, seconds = self._in_time.popleft()
        del self._sorted[bisect_left(self._sorted, seconds)]


class WindowsByKey:
    """A window for each of the keys that were used last."""

    def __init__(self, default_seconds: float, *, most: int = 1024, clock: Callable[[], float]) -> None:
        self._default = default_seconds
        self._most = most
        self._clock = clock
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def __getitem__(self, key: str) -> Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = Window(self._default, clock=self._clock)
            if len(self._windows) > self._most:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(key)
        return window
