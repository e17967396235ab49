"""Markdown, written block by block, with the line of the source from which each stretch comes.

Text that looks like markup stays text. White space is collapsed as browsers do, so that blocks never glue words
together, and marks within a line never split one.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from kbmesh_chunker.documents.markdown_escape import (
    escape_closing,
    escape_line,
    longest_run,
)
from kbmesh_chunker.documents.markdown_inline import Inline, Piece
from kbmesh_chunker.documents.markdown_table import IMAGE, Cell, Table
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import Places

MAX_NESTING = 10
"""Lists and quotes that are nested deeper are written at this depth."""
MAX_ROWS_IN_ITEM = 400
"""Characters of a table that stands in a list item. A longer one is written at the margin, where it can be cut between
its rows."""


class Kind(Enum):
    """What a block is."""

    PARAGRAPH = "paragraph"
    HEADING = "heading"
    CODE = "code"
    ROWS = "rows"


@dataclass(slots=True, eq=False)
class Container:
    """A list item or a quote that stands around blocks."""

    first: str
    """What stands before its first line."""
    rest: str
    """What stands before its other lines."""
    used: bool = False
    list_: "OpenList | None" = None


@dataclass(slots=True, eq=False)
class OpenList:
    """A list that is being written."""

    ordered: bool
    number: int
    written: bool = False
    """Whether any of it is in the text."""


@dataclass(slots=True, eq=False)
class Block:
    """A block that stands in no other but lists and quotes."""

    kind: Kind
    lines: list[list[Piece]]
    containers: tuple[Container, ...]
    close: bool = False
    """Whether it follows the block before it without an empty line."""


@dataclass(kw_only=True)
class MarkdownWriter:
    """Takes text and structure in the order of the source."""

    reading: Reading
    _out: list[str] = field(default_factory=list)
    _length: int = 0
    _starts: "array[int]" = field(default_factory=lambda: array("Q"))
    _numbers: "array[int]" = field(default_factory=lambda: array("Q"))
    _inline: Inline = field(default_factory=Inline)
    _level: int = 0
    _close: bool = False
    _containers: list[Container] = field(default_factory=list)
    _lists: list[OpenList] = field(default_factory=list)
    _pre: tuple[str, list[Piece]] | None = None
    _table: Table | None = None
    _cell: Cell | None = None
    _blocks: int = 0
    _after_rows: bool = False
    """Whether a table at the margin has just ended the lists in which it stood."""
    first_heading: str = ""
    """Of the first level, as it reads."""

    # Text

    def text(self, text: str, line: int) -> None:
        """Text without a line end."""
        if self._pre is not None:
            self._pre[1].append((text.replace("\xa0", " "), line))
        else:
            self._inline.text(text, line)

    def line_end(self, line: int) -> None:
        """The source goes on in the next line, after `line`."""
        if self._pre is not None:
            self._pre[1].append(("\n", line))
        else:
            self._inline.line_end()

    def space(self) -> None:
        """What follows is a word of its own."""
        self._inline.space()

    def line_break(self, line: int) -> None:
        """What follows stands on a line of its own; two in a row end the paragraph."""
        if self._pre is not None:
            self._pre[1].append(("\n", line))
        elif not self._inline.line_break(line):
            self.end_block()

    def literal(self, text: str, line: int) -> None:
        """Markup within a line."""
        if self._pre is None:
            self._inline.literal(text, line)

    def begin_mark(self, kind: str, address: str = "") -> bool:
        """Begins `code`, a `link` or `struck` text. One within another of its kind is none: False."""
        return self._pre is None and self._inline.begin_mark(kind, address)

    def end_mark(self, kind: str) -> None:
        """Ends what was begun, if it was."""
        self._inline.end_mark(kind)

    def raise_next(self) -> None:
        """What follows is raised. A number is then set apart from the word or number that it is raised above."""
        if self._pre is None:
            self._inline.raise_next()

    def image(self, described: str, line: int) -> None:
        """An image by the words that stand for it."""
        if described.startswith("[") and described.endswith("]"):
            described = described[1:-1].strip()
        self.literal(f"{IMAGE}{described}]()", line)

    # Blocks

    def heading(self, level: int) -> None:
        """What follows, up to the end of the block, is a heading of level 1 to 6."""
        self.end_block()
        if self._table is not None and not self._table.headed:
            self._dissolve()
        self._level = level
        self._inline.heading = True

    def stay_close(self) -> None:
        """The next block belongs to the one before it."""
        self.end_block()
        self._close = True

    def end_block(self) -> None:
        """Ends the paragraph or heading, if there is one."""
        if self._pre is not None:
            return
        level, self._level = self._level, 0
        lines = self._inline.take()
        if not lines:
            return
        close, self._close = self._close, False
        if level:
            self._write_heading(lines[0], level)
            return
        self._add(Block(Kind.PARAGRAPH, [_escaped(line) for line in lines], tuple(self._containers), close))

    def _write_heading(self, line: list[Piece], level: int) -> None:
        text, number = line[-1]
        line[-1] = (escape_closing(text), number)
        if level == 1 and not self.first_heading:
            self.first_heading = "".join(text for text, _ in line)
        text, number = line[0]
        line[0] = ("#" * level + " " + text, number)
        self._add(Block(Kind.HEADING, [line], tuple(self._containers)))

    # Containers

    def open_list(self, *, ordered: bool, start: int = 1) -> None:
        """Begins a list; each of its items is opened and closed."""
        self.end_block()
        self._lists.append(OpenList(ordered, start))

    def close_list(self) -> None:
        """Ends the innermost list."""
        self.end_block()
        if self._lists:
            self._lists.pop()

    def open_item(self, number: int | None = None) -> Container | None:
        """Begins an item of the innermost list. Gives what `close` takes."""
        self.end_block()
        mark = "- "
        innermost = self._lists[-1] if self._lists else None
        if innermost is not None and innermost.ordered:
            innermost.number = innermost.number if number is None else number
            mark = f"{max(0, innermost.number) % 1_000_000_000}. "
            innermost.number += 1
        return self._open(Container(mark, " " * len(mark), list_=innermost))

    def open_quote(self) -> Container | None:
        """Begins a quote. Gives what `close` takes."""
        self.end_block()
        return self._open(Container("> ", "> "))

    def _open(self, container: Container) -> Container | None:
        if len(self._containers) >= MAX_NESTING:
            return None
        self._containers.append(container)
        return container

    def close(self, container: Container | None) -> None:
        """Ends an item or a quote, and what is still open within it."""
        self.end_block()
        if container is not None and container in self._containers:
            del self._containers[self._containers.index(container) :]

    # Code

    def open_code(self, language: str) -> None:
        """Begins text that is kept as it stands."""
        self.end_block()
        if self._pre is None:
            self._pre = (language, [])

    def name_language(self, language: str) -> None:
        """The language of the code that is open."""
        if self._pre is not None:
            self._pre = (language, self._pre[1])

    def close_code(self) -> None:
        """Ends it."""
        if self._pre is None:
            return
        language, pieces = self._pre
        self._pre = None
        lines: list[list[Piece]] = [[]]
        for text, line in pieces:
            if text == "\n":
                lines.append([])
            else:
                lines[-1].append((text, line))
        while lines and not _visible(lines[-1]):
            lines.pop()
        while lines and not _visible(lines[0]):
            del lines[0]
        if not lines:
            return
        fence = "`" * max(3, longest_run("".join(text for text, _ in pieces), "`") + 1)
        first, last = lines[0][0][1], lines[-1][0][1]
        fenced = [[(fence + language, first)], *lines, [(fence, last)]]
        self._add(Block(Kind.CODE, fenced, tuple(self._containers)))

    # Tables

    def open_table(self, *, layout: bool = False) -> None:
        """Begins a table. One that holds another is laid out as blocks: it was no table of data."""
        self.end_block()
        if self._table is not None:
            self._dissolve()
        self._table = None if layout else Table(depth=len(self._containers))

    def open_row(self, *, header: bool = False) -> None:
        """Begins a row."""
        self.end_block()
        if self._table is not None:
            self._table.open_row(header=header)

    def open_cell(self, *, header: bool = False, columns: int = 1, rows: int = 1) -> None:
        """Begins a cell that spans columns and rows."""
        self.end_block()
        if self._table is not None:
            self._cell = self._table.open_cell(header=header, columns=columns, rows=rows)

    def close_cell(self) -> None:
        """Ends it."""
        self.end_block()
        self._cell = None

    def close_table(self) -> None:
        """Ends the innermost table."""
        self.end_block()
        table, self._table, self._cell = self._table, None, None
        if table is None:
            return
        if not table.is_data():
            self._write_all(table)
            return
        rows = table.rows_of_text()
        if not rows:
            return
        size = sum(len(text) for row in rows for text, _ in row)
        if size > MAX_ROWS_IN_ITEM and self._containers and all(c.list_ is not None for c in self._containers):
            self._leave_items()
        self._emit(Block(Kind.ROWS, rows, tuple(self._containers)))
        self._after_rows = bool(self._containers) and not self._containers[-1].rest

    def _leave_items(self) -> None:
        """What follows in the items that are open stands at the margin."""
        if any(not c.used and c.list_ is not None and c.list_.ordered for c in self._containers):
            # The number of an item that begins with the table is not to be lost.
            self._emit(Block(Kind.PARAGRAPH, [[]], tuple(self._containers)))
        for container in self._containers:
            container.first = container.rest = ""
            container.used = True

    def _dissolve(self) -> None:
        """The open table is laid out as blocks from here on."""
        table, self._table, self._cell = self._table, None, None
        if table is not None:
            self._write_all(table)

    def _write_all(self, table: Table) -> None:
        for block in table.blocks():
            self._emit(block)

    # Output

    def _add(self, block: Block) -> None:
        self._blocks += 1
        if not self._blocks % 1_000:
            self.reading.checkpoint()
        if self._cell is not None:
            self._cell.blocks.append(block)
        else:
            self._emit(block)

    def _emit(self, block: Block) -> None:
        containers = block.containers
        if self._out:
            self._separate(block)
        for line in block.lines:
            if line is not block.lines[0]:
                self._put("\n", line[0][1] if line else 0)
            before = "".join([c.rest if c.used else c.first for c in containers])
            for container in containers:
                container.used = True
            if before and line:
                self._put(before, line[0][1])
            elif before.strip():
                self._put(before.rstrip(), 0)
            for text, number in line:
                self._put(text, number)
        for container in containers:
            if container.list_ is not None:
                container.list_.written = True

    def _separate(self, block: Block) -> None:
        innermost = next((c for c in block.containers if not c.used), None)
        new_item = innermost is not None and innermost.list_ is not None
        close = block.close
        after_rows, self._after_rows = self._after_rows, False
        if after_rows:
            self._put("\n\n", 0)
            return
        if new_item and innermost is not None and innermost.list_ is not None:
            inside = any(c.used for c in block.containers)
            begins = not innermost.list_.written
            close = not begins or (inside and (not innermost.list_.ordered or innermost.first == "1. "))
        if close:
            self._put("\n", 0)
            return
        kept = []
        for container in block.containers:
            if not container.used:
                break
            kept.append(container.rest)
        self._put(f"\n{''.join(kept).rstrip()}\n", 0)

    def _put(self, text: str, line: int) -> None:
        if line and (not self._numbers or self._numbers[-1] != line):
            self._starts.append(self._length)
            self._numbers.append(line)
        self._out.append(text)
        self._length += len(text)

    def finish(self) -> tuple[str, Places | None]:
        """The whole text, and the lines of the source. What is still open is ended."""
        self.close_code()
        self.end_block()
        self.close_table()
        text = "".join(self._out)
        self.reading.spend_text(len(text))
        if not self._starts:
            return text, None
        return text, Places(starts=tuple(self._starts), numbers=tuple(self._numbers))


def _visible(line: list[Piece]) -> bool:
    return any(text.strip() for text, _ in line)


def _escaped(line: list[Piece]) -> list[Piece]:
    """A line that begins no other kind of block."""
    # Links, images and code are marks of this writer.
    text = "".join(text for text, _ in line) if len(line) > 1 else line[0][0]
    escaped = escape_line(text)
    if escaped is text or escaped == text:
        return line
    added = escaped.index("\\") if escaped[0] != "\\" else 0
    place = 0
    for index, (part, number) in enumerate(line):
        if added <= place + len(part):
            split = added - place
            line[index] = (part[:split] + "\\" + part[split:], number)
            break
        place += len(part)
    return line
