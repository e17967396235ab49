"""When a call must be done."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

_RESERVE_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """An instant of a monotonic clock."""

    at: float
    """Seconds, as `clock` counts them."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Self:
        """The deadline that is `seconds` away."""
        return cls(at=clock() + seconds, clock=clock)

    def remaining(self) -> float:
        """Seconds that are left; 0.0 once it has passed, never less."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        """Whether it has passed."""
        return self.clock() >= self.at

    def less(self, reserve_seconds: float) -> Self:
        """An earlier deadline, for a part of the work: what comes after it needs `reserve_seconds`."""
        return type(self)(at=self.at - reserve_seconds, clock=self.clock)

    def with_reserve(self, seconds: float) -> Self:
        """An earlier deadline, for work whose result has to be sent in time: by `seconds`, or by a fifth of what is
        left where that is less, so that a short deadline is not all reserve."""
        return self.less(min(seconds, _RESERVE_SHARE * self.remaining()))
