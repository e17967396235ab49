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
_BLANK_ABOVE = frozenset({_BLANK_LINE, _BLANK_LINE_OUTSIDE})
_INDENTS = (" ", "\t")
_DEEPEST = 24
"""Lines that are indented by more characters are alike."""
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


def graded_line_breaks(text: str, seals: Iterable[tuple[int, int]] = ()) -> Breaks:
    """The breaks of `line_breaks` over a whole text, for windows that are to end where functions do.

    The less the line after it is indented, the better is a break; of those alike the better is one at a blank line.
    They are looked for where a cutter asks for them.
    """
    if "\r" not in text and not _has_padded_lines(text):
        return _LazyLineBreaks(text, seals)
    breaks = line_breaks(text, 0, len(text))
    return Breaks([(start, _grade(_width(text, start), strength in _BLANK_ABOVE)) for start, strength in breaks], seals)


def _grade(width: int, blank: bool) -> int:
    return 2 * (_DEEPEST - width) + 1 + blank


def _width(text: str, start: int) -> int:
    """Of the indentation of the line at `start`."""
    line = text[start : start + _DEEPEST]
    return len(line) - len(line.lstrip(" \t"))


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
        # Mostly there is a blank line after which nothing is indented.
        low = max(0, lowest - 2)
        gap = text.rfind("\n\n", low, highest)
        while gap >= 0:
            start = gap + 2
            begins = start < len(text) and text[start] not in " \t" and self._begins(start)
            if begins and not (sealing and self.sealed(start)):
                return start
            gap = text.rfind("\n\n", low, gap + 1)
        return self._least_indented(lowest, highest)

    def _least_indented(self, lowest: int, highest: int) -> int | None:
        text, sealing = self._text, self.sealing
        low = max(0, lowest - 1)
        found = False
        best, width, best_blank, indent = 0, _DEEPEST + 1, False, ""
        line_end = text.rfind("\n", low, highest)
        while line_end >= 0:
            start = line_end + 1
            blank = line_end > 0 and text[line_end - 1] == "\n"
            # Most lines are seen to be indented more than the best one, and are passed over.
            alike = best and text.startswith(indent, start)
            deeper = alike and (best_blank or not blank or text[start + width : start + width + 1] in _INDENTS)
            if not deeper and self._breaks(start):
                found = True
                own = _width(text, start)
                if (own < width or (own == width and blank > best_blank)) and not (sealing and self.sealed(start)):
                    best, width, best_blank, indent = start, own, blank, text[start : start + own]
            line_end = text.rfind("\n", low, line_end)
        if not found:
            self._none_within(lowest, highest)
        return best or None

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
