"""Where the structure of a document asks for a cut, and where it forbids one."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import lt

PARTING = 64
"""A break of this strength or more begins something new: what follows does not repeat what is before it."""
_NOWHERE = array("Q")


class Breaks:
    """Structural places of one text, in code points.

    A *break* is a position where a cut is welcome, with a strength: the higher, the better. A *seal* (first, last)
    holds two things together, such as a heading and its text: no cut at `first < position <= last`. A *solid* range
    is one whose pieces do not overlap, such as a table, whose header is repeated instead.
    """

    def __init__(
        self,
        breaks: Iterable[tuple[int, int]] = (),
        seals: Iterable[tuple[int, int]] = (),
        solids: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._positions = self._seal_starts = self._seal_ends = self._solid_starts = self._solid_ends = _NOWHERE
        self._strengths = b""
        if breaks:
            self._place(breaks if isinstance(breaks, list) else list(breaks))
        if seals:
            self._seal(seals)
        if solids:
            self._solid_starts = array("Q", (first for first, _ in solids))
            self._solid_ends = array("Q", (last for _, last in solids))
        self.sealing = bool(self._seal_starts)
        """Whether there is a seal at all."""
        self._free = self._unsealed() if self.sealing and self._strengths else self._strengths
        """Strength of each break, 0 where a seal forbids it."""

    def _place(self, given: list[tuple[int, int]]) -> None:
        positions = [position for position, _ in given]
        if not all(map(lt, positions, positions[1:])):
            strongest: dict[int, int] = {}
            for position, strength in given:
                strongest[position] = max(strength, strongest.get(position, 0))
            given = sorted(strongest.items())
            positions = [position for position, _ in given]
        self._positions = array("Q", positions)
        self._strengths = bytes([strength for _, strength in given])

    def _seal(self, seals: Iterable[tuple[int, int]]) -> None:
        starts, ends = array("Q"), array("Q")
        for first, last in sorted(seals):
            if ends and first <= ends[-1]:
                ends[-1] = max(ends[-1], last)
            else:
                starts.append(first)
                ends.append(last)
        self._seal_starts, self._seal_ends = starts, ends

    def _unsealed(self) -> bytes:
        free = bytearray(self._strengths)
        for first, last in zip(self._seal_starts, self._seal_ends, strict=True):
            low, high = bisect_right(self._positions, first), bisect_right(self._positions, last)
            free[low:high] = bytes(high - low)
        return bytes(free)

    def strongest(self, lowest: int, highest: int) -> int | None:
        """The last of the strongest breaks within [lowest, highest] that no seal forbids."""
        last = bisect_right(self._positions, highest)
        if last == 0 or self._positions[last - 1] < lowest:
            return None
        free = self._free[bisect_left(self._positions, lowest, 0, last) : last]
        best = max(free)
        return self._positions[last - len(free) + free.rindex(best)] if best else None

    def first(self, lowest: int, highest: int) -> int | None:
        """The first break within [lowest, highest] that no seal forbids."""
        for index in range(bisect_left(self._positions, lowest), len(self._positions)):
            position = self._positions[index]
            if position > highest:
                return None
            if self._free[index]:
                return position
        return None

    def any_within(self, lowest: int, highest: int) -> bool:
        """Whether there is a break within [lowest, highest], sealed or not."""
        index = bisect_left(self._positions, lowest)
        return index < len(self._positions) and self._positions[index] <= highest

    def at(self, position: int) -> bool:
        """Whether there is a break at `position`."""
        index = bisect_left(self._positions, position)
        return index < len(self._positions) and self._positions[index] == position

    def sealed(self, position: int) -> bool:
        """Whether a seal forbids a cut at `position`."""
        return self.sealing and self.seal_start(position) < position

    def seal_start(self, position: int) -> int:
        """The start of the seal that forbids `position`, where a cut is allowed; `position` where none forbids it."""
        if not self.sealing:
            return position
        index = bisect_left(self._seal_starts, position) - 1
        if index >= 0 and position <= self._seal_ends[index]:
            return self._seal_starts[index]
        return position

    def parts(self, position: int) -> bool:
        """Whether pieces on the two sides of `position` do not overlap."""
        at = bisect_left(self._positions, position)
        if at < len(self._positions) and self._positions[at] == position and self._strengths[at] >= PARTING:
            return True
        index = bisect_left(self._solid_starts, position) - 1
        return index >= 0 and position < self._solid_ends[index]


NO_BREAKS = Breaks()
