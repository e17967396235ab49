"""The deadline of work that several callers wait for."""

from dataclasses import dataclass, field
from typing import Self

from kbmesh_rpc.deadline import Deadline


@dataclass(kw_only=True)
class LastInstant:
    """When the last of the waiting callers gives up: it moves on as others come."""

    at: float


@dataclass(frozen=True, kw_only=True)
class SharedDeadline(Deadline):
    """The longest deadline of those who wait, whenever it is looked at. `at` is what it was when the work began."""

    last: LastInstant = field(compare=False)
    reserve_seconds: float = 0.0

    @classmethod
    def of(cls, deadline: Deadline) -> Self:
        """That of the first caller, until others come."""
        at = _instant(deadline)
        return cls(at=at, clock=deadline.clock, last=LastInstant(at=at))

    def extend(self, deadline: Deadline) -> None:
        """Somebody else waits, until then."""
        self.last.at = max(self.last.at, _instant(deadline))

    def remaining(self) -> float:
        return max(0.0, self.last.at - self.reserve_seconds - self.clock())

    @property
    def expired(self) -> bool:
        return self.clock() >= self.last.at - self.reserve_seconds

    def less(self, reserve_seconds: float) -> Self:
        return type(self)(
            at=self.at - reserve_seconds,
            clock=self.clock,
            last=self.last,
            reserve_seconds=self.reserve_seconds + reserve_seconds,
        )


def _instant(deadline: Deadline) -> float:
    """When it passes, as it stands now: it may be a shared one itself."""
    return deadline.clock() + deadline.remaining()
