"""Numbers of lines."""

import re
from array import array
from bisect import bisect_right

_LINE_END = re.compile(r"\r\n?|\n")


class LineMap:
    """Tells on which line of a text a position is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lone_returns = "\r" in text and text.count("\r") != text.count("\r\n")
        self._starts = array("Q", (end.end() for end in _LINE_END.finditer(text))) if self._lone_returns else None
        self._position = 0
        self._line = 1

    def line(self, position: int) -> int:
        """The line of a position, from 1. Cheap where positions are asked for in ascending order."""
        if self._starts is not None:
            return bisect_right(self._starts, position) + 1
        if position < self._position:
            self._position, self._line = 0, 1
        self._line += self._text.count("\n", self._position, position)
        self._position = position
        return self._line
