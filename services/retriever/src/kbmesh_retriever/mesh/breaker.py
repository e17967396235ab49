"""A dependency that fails again and again is not asked for a while: its callers are answered at once.

Own code rather than a library: pybreaker, aiobreaker and purgatory decide by the exception alone. With deadlines a
call that its caller gave up is a failure or nothing at all, according to the time it had.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable
from prometheus_client import Counter, Gauge

_FAILURES = 5
"""In a row."""
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_FAILURE_KINDS = (DependencyUnavailable, DeadlineExceeded)
"""What says that a dependency is not well. An error about the question, or a full queue, says that it answers."""

OPEN = Gauge(
    "kbmesh_retriever_breakers_open",
    "Circuit breakers that keep calls from a dependency: of a vector store one for each collection.",
    ["dependency"],
)
REFUSED = Counter(
    "kbmesh_retriever_breaker_refusals_total", "Calls that were not made because a breaker was open.", ["dependency"]
)


class Breaker:
    """Closed; open after five failures in a row; after a pause one call is let through, which closes it or doubles the
    pause."""

    def __init__(self, dependency: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._dependency = dependency
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE_SECONDS
        self._open_until: float | None = None
        self._probing = False
        OPEN.labels(dependency)
        REFUSED.labels(dependency)

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    @contextmanager
    def guarding(self, *, patience_seconds: float) -> Iterator[None]:
        """Around a call. Raises DependencyUnavailable with the time to come back where it is open. A call that is
        cancelled counts as a failure where it had longer than `patience_seconds`, and not at all else."""
        is_probe = self._admit()
        started = self._clock()
        try:
            yield
        except _FAILURE_KINDS:
            self._failed(is_probe)
            raise
        except asyncio.CancelledError:
            if self._clock() - started > patience_seconds:
                self._failed(is_probe)
            raise
        except Exception:
            self.close()
            raise
        else:
            self.close()
        finally:
            if is_probe:
                self._probing = False

    def _admit(self) -> bool:
        """Whether the call is the one that is let through."""
        if self._open_until is None:
            return False
        wait = self._open_until - self._clock()
        if wait > 0 or self._probing:
            REFUSED.labels(self._dependency).inc()
            refusal = DependencyUnavailable(self._dependency, f"{self._dependency} failed too often and is left alone")
            refusal.retry_after_seconds = max(wait, 0.1)
            raise refusal
        self._probing = True
        return True

    def _failed(self, is_probe: bool) -> None:
        self._failures += 1
        if is_probe:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        elif self._open_until is None and self._failures >= _FAILURES:
            OPEN.labels(self._dependency).inc()
        else:
            return
        self._open_until = self._clock() + self._pause

    def close(self) -> None:
        """As it was at first."""
        if self._open_until is not None:
            OPEN.labels(self._dependency).dec()
        self._failures, self._pause, self._open_until = 0, _FIRST_PAUSE_SECONDS, None


class Breakers:
    """One for each of the keys that were used last: what fails for one collection must not cost the others."""

    def __init__(self, dependency: str, *, most: int = 1024, clock: Callable[[], float] = time.monotonic) -> None:
        self._dependency = dependency
        self._most = most
        self._clock = clock
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()
        OPEN.labels(dependency)
        REFUSED.labels(dependency)

    def __getitem__(self, key: str) -> Breaker:
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = self._breakers[key] = Breaker(self._dependency, clock=self._clock)
            if len(self._breakers) > self._most:
                self._breakers.popitem(last=False)[1].close()
        else:
            self._breakers.move_to_end(key)
        return breaker
