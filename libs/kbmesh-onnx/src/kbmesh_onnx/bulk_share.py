"""How the model's time is split between those who wait and bulk work."""

MAX_CREDIT_SECONDS = 1.0
"""How far ahead or behind bulk work may be. Bounds how long one lane has the model to itself once both have work."""


class BulkShare:
    """An account of the model's time, from which bulk work is owed its share.

    Time in which bulk work waits adds its share; time in which bulk work runs is taken off, whether or not anybody else
    waits. So bulk work that had the model to itself just before leaves it to interactive work at once, and interactive
    work waits for the one bulk batch that runs; where both always have work, each gets its share.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit_seconds = 0.0

    @property
    def owed(self) -> bool:
        """Whether bulk work goes first now."""
        return self._credit_seconds > 0

    def ran(self, seconds: float, *, bulk: bool, bulk_waits: bool) -> None:
        """The model worked for so long. `bulk_waits` tells whether bulk work was left waiting meanwhile."""
        if bulk or bulk_waits:
            self._credit_seconds += seconds * self._share
        if bulk:
            self._credit_seconds -= seconds
        self._credit_seconds = min(MAX_CREDIT_SECONDS, max(-MAX_CREDIT_SECONDS, self._credit_seconds))

    def nothing_waits(self) -> None:
        """No bulk work is there: what it did not claim is not owed to it later."""
        self._credit_seconds = min(0.0, self._credit_seconds)
