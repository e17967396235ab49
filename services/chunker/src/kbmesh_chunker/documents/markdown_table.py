"""Tables that are being read, and their rows in Markdown."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbmesh_chunker.documents.markdown_escape import code_span, escape_cell
from kbmesh_chunker.documents.markdown_inline import Piece

if TYPE_CHECKING:
    from kbmesh_chunker.documents.markdown_writer import Block

IMAGE = "!["
"""Begins what stands for an image."""
MAX_REPEATED = 120
"""Cells that span rows are repeated in each of them, up to this many characters."""
_PROSE = 1_000
_SPARE = 20_000
"""What spans may add to a table of any size, in cells and characters."""


@dataclass(slots=True, eq=False)
class Cell:
    """A cell with its blocks."""

    header: bool
    columns: int
    rows: int
    blocks: "list[Block]" = field(default_factory=list)

    def says_something(self) -> bool:
        """Whether there is more in it than images."""
        return any(
            not text.lstrip().startswith(IMAGE) and text.strip()
            for block in self.blocks
            for line in block.lines
            for text, _ in line
        )

    def size(self) -> int:
        """Characters."""
        return sum(len(text) for block in self.blocks for line in block.lines for text, _ in line)


@dataclass(slots=True, eq=False)
class _Row:
    header: bool
    cells: list[Cell] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Span:
    column: int
    columns: int
    rows: int
    text: list[Piece]


@dataclass(slots=True, eq=False)
class Table:
    """A table of cells, row by row."""

    depth: int
    """How many containers stand around it."""
    _rows: list[_Row] = field(default_factory=list)

    @property
    def headed(self) -> bool:
        """Whether it names any header."""
        return any(cell.header for row in self._rows for cell in row.cells[:1])

    def open_row(self, *, header: bool) -> None:
        self._rows.append(_Row(header))

    def open_cell(self, *, header: bool, columns: int, rows: int) -> Cell:
        if not self._rows:
            self._rows.append(_Row(False))
        cell = Cell(header, max(1, columns), max(1, rows))
        self._rows[-1].cells.append(cell)
        return cell

    def blocks(self) -> "list[Block]":
        """What is in the cells, in order."""
        return [block for row in self._rows for cell in row.cells for block in cell.blocks]

    def is_data(self) -> bool:
        """Whether it relates rows and columns, and does not merely place text on a page."""
        rows = [[cell for cell in row.cells if cell.says_something()] for row in self._rows]
        rows = [row for row in rows if row]
        if max((len(row) for row in rows), default=0) < 2:
            return False
        if any(cell.header for row in rows for cell in row):
            return True
        if len(rows) < 2:
            return False
        return all(len(cell.blocks) <= 3 and cell.size() <= _PROSE for row in rows for cell in row)

    def rows_of_text(self) -> list[list[Piece]]:
        """The lines of the table in Markdown: header, delimiter and body."""
        rows, columns = self._grid()
        if not rows:
            return []
        heads = self._heads([row for row, _ in rows])
        lines = [
            _line([*cells, *([] for _ in range(columns - len(cells)))] if row < heads else cells)
            for row, (_, cells) in enumerate(rows)
        ]
        number = lines[0][0][1]
        delimiter: list[Piece] = [("|" + " --- |" * max(1, columns), 0)]
        if not heads:
            return [[("|" + "  |" * max(1, columns), number)], delimiter, *lines]
        return [*lines[:heads], delimiter, *lines[heads:]]

    def _heads(self, rows: list[_Row]) -> int:
        """How many rows are header."""
        heads = 0
        while heads < len(rows) and (rows[heads].header or all(cell.header for cell in rows[heads].cells)):
            heads += 1
        if heads == len(rows) and not all(row.header for row in rows):
            heads = 1
        if heads or any(cell.header for row in rows for cell in row.cells):
            return heads
        return 1

    def _grid(self) -> tuple[list[tuple[_Row, list[list[Piece]]]], int]:
        """The rows that hold text, each with its cells by column, and how many columns there are."""
        placed: list[tuple[_Row, list[tuple[int, list[Piece]]]]] = []
        spans: list[_Span] = []
        starts: set[int] = set()
        spare = _SPARE + sum(len(row.cells) for row in self._rows)
        for row in self._rows:
            if not row.cells:
                continue
            cells: list[tuple[int, list[Piece]]] = []
            column = 0
            spare -= len(spans)
            if spare < 0:
                spans = []
            waiting = sorted(spans, key=lambda span: span.column)
            fresh: list[_Span] = []
            place = 0
            for cell in row.cells:
                while place < len(waiting) and waiting[place].column <= column:
                    cells.append((waiting[place].column, waiting[place].text))
                    column = max(column, waiting[place].column + waiting[place].columns)
                    place += 1
                text = _flat(cell, self.depth)
                cells.append((column, text))
                starts.add(column)
                if cell.rows > 1:
                    size = sum(len(part) for part, _ in text)
                    spare -= size
                    repeated = text if size <= MAX_REPEATED and spare > 0 else []
                    fresh.append(_Span(column, cell.columns, cell.rows, repeated))
                column += cell.columns
            cells.extend((span.column, span.text) for span in waiting[place:])
            spare -= sum(len(part) for span in waiting for part, _ in span.text)
            for span in waiting:
                span.rows -= 1
            spans = [*(span for span in waiting if span.rows > 1), *fresh]
            if any(part for _, text in cells for part in text):
                placed.append((row, cells))
        index = {column: place for place, column in enumerate(sorted(starts))}
        rows = []
        for row, cells in placed:
            line: list[list[Piece]] = []
            for column, text in cells:
                gap = index[column] - len(line)
                if 0 < gap <= spare:
                    spare -= gap
                    line.extend([] for _ in range(gap))
                line.append(text)
            rows.append((row, line))
        widest = max((len(line) for _, line in rows), default=0)
        return rows, widest


def _flat(cell: Cell, depth: int) -> list[Piece]:
    """A cell on one line."""
    flat: list[Piece] = []
    for block in cell.blocks:
        before = "".join(container.first for container in block.containers[depth:] if not container.used)
        for container in block.containers[depth:]:
            container.used = True
        code = block.kind.value == "code"
        lines = block.lines[1:-1] if code else block.lines
        for line in lines:
            if not line:
                continue
            number = line[0][1]
            if flat:
                flat.append((" ", number))
            if before:
                flat.append((before, number))
                before = ""
            if code:
                whole = "".join(part for part, _ in line).strip()
                if whole:
                    opening, closing = code_span(whole)
                    flat.append((escape_cell(opening + whole + closing), number))
            else:
                flat.extend((escape_cell(part), at) for part, at in line)
    return flat


def _line(cells: list[list[Piece]]) -> list[Piece]:
    number = next((at for cell in cells for _, at in cell), 0)
    line: list[Piece] = [("|", number)]
    for cell in cells:
        if cell:
            line.append((" ", cell[0][1]))
            line.extend(cell)
            line.append((" |", cell[-1][1]))
        else:
            line.append(("  |", line[-1][1]))
    return line
