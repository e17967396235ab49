"""How long a stretch of text is: in code points, or in tokens of a model."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Measure(Protocol):
    """A way to count text. Positions are code points of one text; sizes are in the measure's unit."""

    def length(self, start: int, end: int) -> int:
        """Size of text[start:end]."""

    def furthest(self, start: int, size: int) -> int:
        """The last end for which text[start:end] has at most `size`."""

    def earliest(self, end: int, size: int) -> int:
        """The first start for which text[start:end] has at most `size`."""

    def most_characters(self, size: int) -> int:
        """A text of more code points has more than `size` in any case, or is longer than a window may be."""

    def enough_characters(self, size: int) -> int:
        """A text of so many code points has at least `size` in any case."""


@dataclass(frozen=True, kw_only=True)
class CharacterMeasure:
    """Counts code points."""

    text_length: int

    def length(self, start: int, end: int) -> int:
        return end - start

    def furthest(self, start: int, size: int) -> int:
        return min(self.text_length, start + size)

    def earliest(self, end: int, size: int) -> int:
        return max(0, end - size)

    def most_characters(self, size: int) -> int:
        return size

    def enough_characters(self, size: int) -> int:
        return size


class TokenMeasure:
    """Counts tokens, from the place of each token of the whole text."""

    def __init__(self, text_length: int) -> None:
        self._text_length = text_length
        self._starts = array("Q")
        self._ends = array("Q")

    def extend(self, offset: int, starts: Iterable[int], ends: Iterable[int]) -> None:
        """Adds the tokens of a stretch that begins at `offset`, in the order of the text."""
        previous_start = self._starts[-1] if self._starts else 0
        previous_end = self._ends[-1] if self._ends else 0
        for start, end in zip(starts, ends, strict=True):
            # Some tokenisers give places that go back by a character; the search needs them in order.
            previous_start = max(previous_start, start + offset)
            previous_end = max(previous_end, end + offset)
            self._starts.append(previous_start)
            self._ends.append(previous_end)

    def moved(self, by: int, text_length: int) -> "TokenMeasure":
        """The same tokens for a text whose first `by` code points were taken away, now of `text_length`."""
        kept = bisect_right(self._ends, by)
        moved = TokenMeasure(text_length)
        moved._starts = array("Q", [max(0, start - by) for start in self._starts[kept:]])
        moved._ends = array("Q", [end - by for end in self._ends[kept:]])
        return moved

    @property
    def total(self) -> int:
        """Tokens of the whole text."""
        return len(self._starts)

    def length(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        return max(0, bisect_left(self._starts, end) - bisect_right(self._ends, start))

    def furthest(self, start: int, size: int) -> int:
        after = bisect_right(self._ends, start) + size
        return max(start, self._starts[after]) if after < len(self._starts) else self._text_length

    def earliest(self, end: int, size: int) -> int:
        if size == 0:
            # No token may begin at `end` or after it.
            return end
        first = bisect_left(self._starts, end) - size
        return self._starts[first] if first > 0 else 0

    def most_characters(self, size: int) -> int:
        return self._text_length

    def enough_characters(self, size: int) -> int:
        return self._text_length


CHARACTERS_PER_TOKEN = 8
"""Text of more characters a token than this is not of a script or a kind that the model knows."""
SHORT_CHARACTERS = 128
"""What is shorter is counted by its tokens alone: a long word may be one token."""
MAX_WINDOW_CHARACTERS = 100_000
"""Characters a window has at most, whatever its tokens."""


@dataclass(frozen=True, kw_only=True)
class BoundedTokenMeasure:
    """Counts tokens, and where these say little, characters.

    A tokenizer may take a word of any length for one unknown token: Thai text, an encoded picture. Without a bound in
    characters, a book of these would be one window.
    """

    tokens: TokenMeasure

    def length(self, start: int, end: int) -> int:
        counted = self.tokens.length(start, end)
        characters = end - start
        return counted if characters <= SHORT_CHARACTERS else max(counted, -(-characters // CHARACTERS_PER_TOKEN))

    def furthest(self, start: int, size: int) -> int:
        return min(self.tokens.furthest(start, size), start + _most_characters(size))

    def earliest(self, end: int, size: int) -> int:
        return max(self.tokens.earliest(end, size), end - _most_characters(size))

    def most_characters(self, size: int) -> int:
        return _most_characters(size)

    def enough_characters(self, size: int) -> int:
        return max(SHORT_CHARACTERS + 1, size * CHARACTERS_PER_TOKEN)


def _most_characters(size: int) -> int:
    return min(MAX_WINDOW_CHARACTERS, max(SHORT_CHARACTERS, size * CHARACTERS_PER_TOKEN))
