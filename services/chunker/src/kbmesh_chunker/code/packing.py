"""Cutting what is too long for one piece: into pieces of about the same length, between statements."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import next_start, trim_end
from kbmesh_chunker.breaks import NO_BREAKS, Breaks
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.strategies.port import Work

MID_LINE = 0
"""The strength of a place within a line, which is better than one within the function that begins there."""
_COSTS = {4: 0.0, 3: 0.1, 2: 0.3, 1: 0.5}
"""What a cut at a place of each strength costs, where one that leaves a piece shorter or longer than its share by half
of it costs a half."""
_LEAST_SHARE = 0.5
_SMALL_SHARE = 6


class Packing:
    """Cuts stretches of one text that are taken apart at the same places."""

    def __init__(self, work: Work, places: Sequence[tuple[int, int]], *, plain: bool) -> None:
        """`places` are positions with strengths from 0 to 4, `plain` tells that every position is a boundary."""
        self._work = work
        text = self._text = work.document.text
        strengths: dict[int, int] = {}
        for place, strength in places:
            if plain or graphemes.is_boundary(text, place, max(0, place - graphemes.MAX_CLUSTER)):
                strengths[place] = max(strength, strengths.get(place, 0))
        self._by_strength = {strength: [] for strength in (*_COSTS, MID_LINE)}  # type: dict[int, list[int]]
        for place in sorted(strengths):
            self._by_strength[strengths[place]].append(place)

    def windows(self, start: int, end: int, context_tokens: Callable[[int], int]) -> Iterator[tuple[int, int]]:
        """Windows over text[start:end], which neither begins nor ends with a blank line; both their ends rise."""
        work, text = self._work, self._text
        position = fresh = start
        while fresh < end:
            work.checkpoint()
            limit = self._furthest(position, context_tokens)
            if limit >= end:
                yield position, end
                return
            place = self._choose(position, fresh, limit, end)
            if place is not None:
                closing = trim_end(text, position, place)
                fresh = next_start(text, place, end)
                if closing == position:
                    # An indentation for which there is no room.
                    position = fresh
                    continue
                yield position, closing
                position = self._repeated(position, closing, fresh)
            elif position < fresh:
                # What is repeated leaves no room for what is new.
                position = fresh
            else:
                after = self._next(limit, end)
                found = list(even_cutter(work).cut(position, trim_end(text, position, after), context_tokens))
                if after >= end or len(found) < 2:
                    yield from found
                    position = fresh = next_start(text, after, end)
                else:
                    # What is left of it may have room for what follows.
                    yield from found[:-1]
                    position, fresh = found[-1][0], max(found[-1][0], found[-2][1])

    def _furthest(self, start: int, context_tokens: Callable[[int], int]) -> int:
        work = self._work
        limit = work.measure.furthest(start, work.limits.size)
        if work.cap is not None:
            limit = min(limit, work.cap.measure.furthest(start, max(1, work.cap.tokens - context_tokens(start))))
        return limit

    def _choose(self, position: int, fresh: int, limit: int, end: int) -> int | None:
        """Where a window that may reach `limit` is cut, so that all windows up to `end` are about equally long."""
        left = end - position
        share = left / -(-left // (limit - position))
        target = position + share
        lowest = max(fresh + 1, int(position + share * _LEAST_SHARE))
        best, least = None, float("inf")
        for strength, strength_cost in _COSTS.items():
            places = self._by_strength[strength]
            index = bisect_left(places, target)
            for place in places[max(0, index - 1) : index + 1]:
                if lowest <= place <= limit:
                    cost = abs(place - target) / share + strength_cost
                    if cost < least:
                        best, least = place, cost
        if best is not None:
            return best
        for strengths in (_COSTS, (MID_LINE,)):
            last = max(self._last(strength, limit) for strength in strengths)
            if last > fresh:
                return last
        return None

    def _last(self, strength: int, limit: int) -> int:
        places = self._by_strength[strength]
        index = bisect_right(places, limit)
        return places[index - 1] if index else -1

    def _next(self, limit: int, end: int) -> int:
        """The first place after `limit`."""
        following = end
        for places in self._by_strength.values():
            index = bisect_right(places, limit)
            if index < len(places):
                following = min(following, places[index])
        return following

    def _repeated(self, start: int, closing: int, fresh: int) -> int:
        """Where the next window starts so that it repeats the last lines of the one before it, from a statement on
        where one begins there."""
        overlap = self._work.limits.overlap
        if not overlap:
            return fresh
        earliest = max(start + 1, self._work.measure.earliest(closing, overlap))
        first = closing
        for strength in _COSTS:
            places = self._by_strength[strength]
            index = bisect_left(places, earliest)
            if index < len(places):
                first = min(first, places[index])
        if first >= closing:
            line = self._text.find("\n", earliest - 1, closing) + 1
            first = line if line and graphemes.is_boundary(self._text, line, start) else closing
        first = next_start(self._text, first, closing)
        return first if start < first < closing else fresh


def even_cutter(work: Work, breaks: Breaks = NO_BREAKS) -> Cutter:
    """A cutter that leaves no small rest, where a stretch is too long for one window."""
    limits = work.limits
    small = limits.size // _SMALL_SHARE
    if limits.minimum < small:
        limits = Limits(
            size=limits.size - (small - limits.minimum),
            overlap=min(limits.overlap, limits.size - small + limits.minimum - 1),
            minimum=small,
        )
    return replace(work.cutter(breaks), limits=limits)
