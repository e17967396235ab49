"""Who calls most: a line of the log for each of the busiest tenants, once a minute.

Tenants are no labels of metrics, whose series would grow with them. The number of those that are counted is bounded by
the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, ICDT 2005): whoever made more than 1/CAPACITY of the calls
of a minute is among them, and his count is too high by at most what `may_be_over_by` says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

CAPACITY = 256
"""Tenants that are counted at once."""
TOLD = 10
"""Lines for each minute at most."""
WINDOW_SECONDS = 60.0


@dataclass(kw_only=True, slots=True)
class Talker:
    """What one tenant did."""

    tenant: str
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    over: int = 0
    """By how many calls the count may be too high."""


@dataclass(kw_only=True)
class Talkers:
    """The busiest tenants of the window that is open. Belongs to one event loop."""

    capacity: int = CAPACITY
    _known: dict[str, Talker] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self._known

    def add(self, tenant: str, *, failed: bool, seconds: float) -> None:
        """Counts one call."""
        talker = self._known.get(tenant)
        if talker is None:
            talker = Talker(tenant=tenant)
            if len(self._known) >= self.capacity:
                least = min(self._known.values(), key=lambda one: one.calls)
                del self._known[least.tenant]
                talker.calls = talker.over = least.calls
            self._known[tenant] = talker
        talker.calls += 1
        talker.failed += failed
        talker.seconds += seconds

    def take(self, most: int = TOLD) -> list[Talker]:
        """The busiest ones, most calls first. A new window begins."""
        busiest = sorted(self._known.values(), key=lambda one: (-one.calls, one.tenant))[:most]
        self._known = {}
        return busiest


def tell(talkers: Talkers, hashed: Callable[[str], str], log: Callable[..., object]) -> None:
    """Writes a line for each of the busiest tenants, by their hashes, and begins anew."""
    for talker in talkers.take():
        log(
            "caller",
            tenant_hash=hashed(talker.tenant),
            calls=talker.calls,
            failed=talker.failed,
            busy_milliseconds=round(talker.seconds * 1000, 3),
            may_be_over_by=talker.over,
            window_seconds=WINDOW_SECONDS,
        )
