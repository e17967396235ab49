"""Rows and lines of documents that are made of them: where FIXED cuts such a document best, and what a row needs."""

import re
from bisect import bisect_right
from collections.abc import Sequence

from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.code.lines import lazy_line_breaks
from kbmesh_chunker.context import Context
from kbmesh_chunker.documents.delimited import CSV, TSV
from kbmesh_chunker.documents.source import Grammar, TextDocument
from kbmesh_chunker.strategies.port import Work

_RECORDS = frozenset({CSV, TSV})
_NESTED = frozenset(
    {"application/json", "application/yaml", "application/toml", "application/xml", "application/x-ndjson"}
)
_ROW = 4
_LINE = re.compile(r"[^\r\n]+")
_LINE_END = re.compile(r"\r\n?|\n")
# GitHub's tables: the row below the header. A line of it has nothing but these signs.
_DELIMITERS = re.compile(r"^[ \t]{0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$", re.MULTILINE)
_DEEPEST = 3
_INDENT = 2


def has_rows(document: TextDocument) -> bool:
    """Whether a document is one for which `Rows` must see all of it."""
    return document.media_type in _RECORDS | _NESTED or document.grammar in {Grammar.CODE, Grammar.MARKDOWN}


class Rows:
    """Where the rows of a document begin, and the header row that a piece with rows of a table needs."""

    def __init__(self, document: TextDocument) -> None:
        self._breaks: list[tuple[int, int]] = []
        self._solids: list[tuple[int, int]] = []
        self._document = document
        self._bodies: list[int] = []
        """Where the first row of each table begins that stands below a header."""
        self._tables: list[tuple[int, int]] = []
        text = document.text
        if document.media_type in _RECORDS:
            self._breaks = [(start, _ROW) for start in _record_starts(text)]
            self._solids = [(0, len(text))]
        elif document.media_type in _NESTED:
            self._breaks = _nested_lines(text)
        elif document.grammar is Grammar.MARKDOWN:
            self._find_tables(text)

    def breaks(self, seals: Sequence[tuple[int, int]]) -> Breaks:
        """Where the document is cut best, and nowhere within `seals`."""
        if self._document.grammar is Grammar.CODE and not self._breaks:
            return lazy_line_breaks(self._document.text, seals)
        return Breaks(self._breaks, seals, self._solids)

    def context(self, work: Work, start: int, context: Context) -> Context:
        """The context of a piece that starts at `start`, in place of that of the whole document."""
        if not self._solids:
            return context
        if self._document.media_type in _RECORDS and start == 0:
            # The header row is in the piece itself.
            return Context()
        index = bisect_right(self._bodies, start) - 1
        if index < 0 or start >= self._tables[index][1]:
            return context
        header = self._document.text[self._tables[index][0] : self._bodies[index]]
        return work.context(*(line.strip() for line in _LINE_END.split(header)))

    def _find_tables(self, text: str) -> None:
        position = 0
        for found in _DELIMITERS.finditer(text):
            header_start = (
                max(text.rfind("\n", 0, max(0, found.start() - 1)), text.rfind("\r", 0, max(0, found.start() - 1))) + 1
            )
            if found.start() < position or "|" not in text[header_start : found.start()]:
                continue
            end = found.end()
            starts = []
            while (line_end := _LINE_END.match(text, end)) is not None:
                row = _LINE.match(text, line_end.end())
                if row is None or "|" not in row.group():
                    break
                starts.append(line_end.end())
                end = row.end()
            position = end
            if starts:
                self._bodies.append(starts[0])
                self._tables.append((header_start, end))
                self._solids.append((header_start, end))
                self._breaks.append((header_start, 1))
                self._breaks.extend((start, 1) for start in starts)


def _record_starts(text: str) -> list[int]:
    """Where the records of delimited text begin; a line end within quotes is part of a cell (RFC 4180)."""
    starts = []
    quotes = position = 0
    for line_end in _LINE_END.finditer(text):
        quotes += text.count('"', position, line_end.start())
        position = line_end.end()
        if quotes % 2 == 0:
            starts.append(position)
    return starts


def _nested_lines(text: str) -> list[tuple[int, int]]:
    """Starts of lines; the less they are indented, the more welcome is a cut."""
    breaks = []
    for line in _LINE.finditer(text):
        content = line.group()
        indent = len(content) - len(content.lstrip(" \t"))
        if content[indent : indent + 1] not in {"}", "]", ""} and not content.startswith("</", indent):
            breaks.append((line.start(), max(1, _DEEPEST - indent // _INDENT)))
    return breaks
