"""Tables in a text of Markdown whose other structure is not looked at: where their rows begin, and the header that a
piece with rows needs."""

import re
from bisect import bisect_right

from kbmesh_chunker.context import Context
from kbmesh_chunker.strategies.port import Work

_LINE_END = re.compile(r"\r\n?|\n")
# GitHub's tables: the row below the header. A line of it has nothing but these signs. Nothing is given back, so that
# a row of spaces without an end is looked through once.
_DELIMITERS = re.compile(r"[ \t]{0,3}+\|?+[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)++\|?+[ \t]*+")
_DELIMITER = re.compile(r"\|[ \t]*:?-")


class Tables:
    """The tables of a text that have a header and a row."""

    def __init__(self, text: str) -> None:
        self.breaks: list[tuple[int, int]] = []
        """(position, strength) of header rows and rows, as the cutter takes them."""
        self.solids: list[tuple[int, int]] = []
        """Start and end of each table, whose pieces repeat nothing."""
        self._text = text
        self._bodies: list[int] = []
        """Where the first row below the header of each begins."""
        self._find(text)

    def context(self, work: Work, start: int, context: Context) -> Context:
        """The context of a piece that starts at `start`, in place of that of the whole document."""
        index = bisect_right(self._bodies, start) - 1
        if index < 0 or start >= self.solids[index][1]:
            return context
        header = self._text[self.solids[index][0] : self._bodies[index]]
        return work.context(*(line.strip() for line in _LINE_END.split(header)))

    def _find(self, text: str) -> None:
        seen = position = 0
        while (sign := _DELIMITER.search(text, position)) is not None:
            line, line_end = _line_around(text, sign.start(), seen)
            header, header_end = _line_around(text, max(seen, line - 2), seen) if line > seen else (line, line)
            seen, position = line, line_end
            if not _DELIMITERS.fullmatch(text, line, line_end) or "|" not in text[header:header_end]:
                continue
            starts = []
            while (row_start := _next_line(text, position)) < len(text):
                _, row_end = _line_around(text, row_start, row_start)
                if "|" not in text[row_start:row_end]:
                    break
                starts.append(row_start)
                position = row_end
            seen = position
            if starts:
                self._bodies.append(starts[0])
                self.solids.append((header, position))
                self.breaks.append((header, 1))
                self.breaks.extend((start, 1) for start in starts)


def _line_around(text: str, position: int, lowest: int) -> tuple[int, int]:
    """Start and end, without its line end, of the line that `position` is in; it starts at `lowest` or after it."""
    start = max(text.rfind("\n", lowest, position), text.rfind("\r", lowest, position)) + 1
    line_end = _LINE_END.search(text, position)
    return max(start, lowest), line_end.start() if line_end else len(text)


def _next_line(text: str, position: int) -> int:
    line_end = _LINE_END.match(text, position)
    return line_end.end() if line_end else len(text)


NO_TABLES = Tables("")
