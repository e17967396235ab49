"""Rows and lines of documents that are made of them: where FIXED cuts such a document best, and what a row needs."""

import re
from collections.abc import Sequence

from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.code.lines import graded_line_breaks
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.context import Context
from kbmesh_chunker.documents.delimited import CSV, TSV
from kbmesh_chunker.documents.source import Grammar, TextDocument
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.tables import NO_TABLES, Tables

_RECORDS = frozenset({CSV, TSV})
_NESTED = frozenset(
    {"application/json", "application/yaml", "application/toml", "application/xml", "application/x-ndjson"}
)
_ROW = 4
_LINE = re.compile(r"[^\r\n]+")
_LINE_END = re.compile(r"\r\n?|\n")
_DEEPEST = 3
_INDENT = 2


def must_be_whole(document: TextDocument, strategy: Strategy) -> bool:
    """Whether a strategy must see all of a document to know its rows and their headers."""
    if document.grammar is Grammar.MARKDOWN:
        return True
    rows = document.media_type in _RECORDS | _NESTED or document.grammar is Grammar.CODE
    return rows and strategy is Strategy.FIXED


class Rows:
    """Where the rows of a document begin, and the header row that a piece with rows of a table needs."""

    def __init__(self, document: TextDocument) -> None:
        self._breaks: list[tuple[int, int]] = []
        self._solids: list[tuple[int, int]] = []
        self._document = document
        self._tables = Tables(document.text) if document.grammar is Grammar.MARKDOWN else NO_TABLES
        text = document.text
        if document.media_type in _RECORDS:
            self._breaks = [(start, _ROW) for start in _record_starts(text)]
            self._solids = [(0, len(text))]
        elif document.media_type in _NESTED:
            self._breaks = _nested_lines(text)
        elif document.grammar is Grammar.MARKDOWN:
            self._breaks, self._solids = self._tables.breaks, self._tables.solids

    def breaks(self, seals: Sequence[tuple[int, int]]) -> Breaks:
        """Where the document is cut best, and nowhere within `seals`."""
        if self._document.grammar is Grammar.CODE and self._document.media_type not in _RECORDS | _NESTED:
            return graded_line_breaks(self._document.text, seals)
        return Breaks(self._breaks, seals, self._solids)

    def context(self, work: Work, start: int, context: Context) -> Context:
        """The context of a piece that starts at `start`, in place of that of the whole document."""
        if self._document.media_type in _RECORDS and start == 0:
            # The header row is in the piece itself.
            return Context()
        return self._tables.context(work, start, context)


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
