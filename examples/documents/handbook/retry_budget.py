"""A retry budget: retries may be at most a share of the calls, so that they never make an outage worse.

Every service of Lanternfish that calls another one uses this module. The idea is the one of "The Site Reliability
Workbook", chapter 22: a client counts its calls and its retries, and stops retrying when retries exceed a share.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """How much may be retried."""

    share: float = 0.1
    """Retries allowed for each call of the window. 0.1 is one retry for ten calls."""
    window_seconds: float = 60.0
    """How far back calls and retries are counted."""
    minimum_per_window: int = 3
    """Retries that are always allowed, so that a quiet client can retry at all."""


@dataclass(kw_only=True)
class RetryBudget:
    """Counts calls and retries of one client. Thread-safe."""

    settings: BudgetSettings = field(default_factory=BudgetSettings)
    clock: Callable[[], float] = time.monotonic
    _calls: deque[float] = field(default_factory=deque)
    _retries: deque[float] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_call(self) -> None:
        """Notes a first attempt. Call it once for each request, before it is sent."""
        with self._lock:
            self._calls.append(self.clock())

    def try_to_spend(self) -> bool:
        """Tells whether a retry is allowed now, and notes it if it is.

        The checkout service treats False as final: the payment is parked in the queue checkout-retries and replayed
        by hand, because a payment that is retried too eagerly may be taken twice.
        """
        with self._lock:
            self._forget_old()
            allowed = max(self.settings.minimum_per_window, int(len(self._calls) * self.settings.share))
            if len(self._retries) >= allowed:
                return False
            self._retries.append(self.clock())
            return True

    def _forget_old(self) -> None:
        oldest = self.clock() - self.settings.window_seconds
        for times in (self._calls, self._retries):
            while times and times[0] < oldest:
                times.popleft()


def backoff_seconds(attempt: int, *, first: float = 0.2, longest: float = 20.0) -> float:
    """Exponential backoff without jitter: 0.2, 0.4, 0.8 … up to 20 seconds. The caller adds the jitter."""
    return min(longest, first * 2**attempt)
