"""Where code may be cut whose structure is not known: between its lines."""

import re
from collections.abc import Iterable

from kbmesh_chunker.breaks import Breaks

_BLANK_LINE_OUTSIDE = 4
_OUTSIDE = 3
_BLANK_LINE = 2
_LINE = 1
_LINE_START = re.compile(r"[^\r\n]+")
# Lines that close what is above them, or go on with it.
_CLOSING = re.compile(
    r"[ \t]*(?:[)\]}>;,.]|(?:end|else|elif|elsif|except|rescue|ensure|finally|catch|fi|done|esac)\b|\*/)"
)
# Lines that belong to the line below them.
_LEADING = re.compile(r"[ \t]*(?:#|//|--|;|%|/\*|\*|@|\"\"\"|\[\w+[^\]\r\n]*\]\s*$)")
_PADDED = re.compile(r"\n[^\S\n]+\n")
_INDENTS = frozenset((" ", "\t", ""))
_SEEN = 256
"""So much of a line tells what it is."""


def line_breaks(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Starts of lines within text[start:end], with their strengths for a cutter: the best is a line without
    indentation after a blank one."""
    breaks: list[tuple[int, int]] = []
    previous = start
    leading = False
    for line in _LINE_START.finditer(text, start, end):
        begin = line.start()
        content = text[begin : min(line.end(), begin + _SEEN)]
        if not content or content.isspace():
            continue
        gap = text[previous:begin]
        blank = gap.count("\n") > 1 or gap.count("\r") > 1 + gap.count("\n")
        if begin > start and not (leading and not blank) and not _CLOSING.match(content):
            if content[0] in " \t":
                strength = _BLANK_LINE if blank else _LINE
            else:
                strength = _BLANK_LINE_OUTSIDE if blank else _OUTSIDE
            breaks.append((begin, strength))
        leading = _LEADING.match(content) is not None
        previous = line.end()
    return breaks


def lazy_line_breaks(text: str, seals: Iterable[tuple[int, int]] = ()) -> Breaks:
    """The breaks of `line_breaks` over a whole text, which are looked for only where a cutter asks for them."""
    if "\r" in text or _has_padded_lines(text):
        return Breaks(line_breaks(text, 0, len(text)), seals)
    return _LazyLineBreaks(text, seals)


def _has_padded_lines(text: str) -> bool:
    """Whether there is a line of white space alone that is not empty."""
    first_end, last_start = text.find("\n"), text.rfind("\n") + 1
    ends = text[: max(0, first_end)].isspace() or text[last_start:].isspace()
    return ends or _PADDED.search(text) is not None


class _LazyLineBreaks(Breaks):
    """Of a text whose lines end with LF and whose blank lines are empty.

    What a window needs is near its end, and mostly the last blank line before it: most lines are never looked at.
    """

    def __init__(self, text: str, seals: Iterable[tuple[int, int]]) -> None:
        super().__init__((), seals)
        self._text = text
        self._barren = (1, 0)
        """Within these two positions, which move on with the windows, there is no break: no line is looked at often."""

    def strongest(self, lowest: int, highest: int) -> int | None:
        text, sealing = self._text, self.sealing
        lowest = self._fertile(lowest)
        low = max(0, lowest - 2)
        found = inside = 0
        gap = text.rfind("\n\n", low, highest)
        while gap >= 0:
            start = gap + 2
            if self._begins(start):
                found = start
                if not (sealing and self.sealed(start)):
                    if text[start] not in " \t":
                        return start
                    inside = inside or start
            gap = text.rfind("\n\n", low, gap + 1)
        low = max(0, lowest - 1)
        anywhere = inside
        line_end = text.rfind("\n", low, highest)
        while line_end >= 0:
            start = line_end + 1
            outside = text[start : start + 1] not in _INDENTS
            if (outside or not anywhere) and self._breaks(start):
                found = start
                if not (sealing and self.sealed(start)):
                    if outside:
                        return start
                    anywhere = start
            line_end = text.rfind("\n", low, line_end)
        if not found:
            self._none_within(lowest, highest)
        return anywhere or None

    def first(self, lowest: int, highest: int) -> int | None:
        sealing = self.sealing
        start = self._next(self._fertile(lowest), highest)
        while start and sealing and self.sealed(start):
            start = self._next(start + 1, highest)
        return start or None

    def any_within(self, lowest: int, highest: int) -> bool:
        return self._next(self._fertile(lowest), highest) > 0

    def _next(self, lowest: int, highest: int) -> int:
        """The first break within [lowest, highest]; 0 where there is none."""
        text = self._text
        line_end = text.find("\n", max(0, lowest - 1), highest)
        while line_end >= 0:
            if self._breaks(line_end + 1):
                return line_end + 1
            line_end = text.find("\n", line_end + 1, highest)
        self._none_within(lowest, highest)
        return 0

    def _fertile(self, position: int) -> int:
        """The first position from `position` on at which a break may be."""
        first, last = self._barren
        return last + 1 if first <= position <= last else position

    def _none_within(self, lowest: int, highest: int) -> None:
        if lowest <= highest:
            first, last = self._barren
            self._barren = (first if first <= lowest <= last + 1 else lowest, highest)

    def at(self, position: int) -> bool:
        return position > 0 and self._text[position - 1] == "\n" and self._breaks(position)

    def _begins(self, start: int) -> bool:
        """Whether something begins with the line at `start`."""
        text = self._text
        return start < len(text) and text[start] != "\n" and _CLOSING.match(text, start, start + _SEEN) is None

    def _breaks(self, start: int) -> bool:
        """Whether a cut before the line at `start` is welcome: it begins something, to which no line above leads."""
        if not self._begins(start):
            return False
        text = self._text
        if start < 2 or text[start - 2] == "\n":
            return True
        above = text.rfind("\n", 0, start - 1) + 1
        return _LEADING.match(text, above, min(start - 1, above + _SEEN)) is None
