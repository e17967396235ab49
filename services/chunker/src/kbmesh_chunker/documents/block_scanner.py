"""Blocks of CommonMark with GitHub's tables, line by line.

It follows markdown-it-py rule by rule, so that both find the same blocks, and makes no tokens of what is inside them
but the lines on which parts of a list begin. Block quotes and link reference definitions are left to that library.
"""

import re
from typing import NamedTuple

from markdown_it.common.utils import mdTrim
from markdown_it.rules_block.html_block import HTML_SEQUENCES
from markdown_it.rules_block.table import escapedSplit

from kbmesh_chunker.documents.heading_title import without_closing

MAX_NESTING = 20
"""Levels of lists within lists that are looked into, two for each list, as the library does."""

_FENCE = re.compile(r"`{3,}(?=[^`]*\Z)|~{3,}")
_FENCE_END = re.compile(r"(`{3,}|~{3,})[ \t]*\Z")
_RULE = re.compile(r"([*_-])[ \t]*+(?:\1[ \t]*+){2,}+\Z")
_BULLET = re.compile(r"[-+*](?=[ \t]|\Z)")
_NUMBER = re.compile(r"[0-9]{1,9}[.)](?=[ \t]|\Z)")
_ATX = re.compile(r"#{1,6}(?=[ \t]|\Z)")
_SETEXT = re.compile(r"(?:=++|-++)[ \t]*\Z")
_DELIMITERS = re.compile(r"(?:[|:]|-(?![ \t]))[-|: \t]+\Z")
_DELIMITER = re.compile(r":?-+:?")
_MOST_OF_DEFINITION = 64
"""Lines. One that is longer is looked at by the library."""
_SPACES = " \t"
_ITEM_SIGNS = frozenset("-*+0123456789")
_MAY_END_A_PARAGRAPH = frozenset("`~>*-_+<#=0123456789|: \t")


class NotScanned(Exception):
    """The block has something in it that is left to the library."""


class BlockToken(NamedTuple):
    """A block, or a part of one, as the library would tell it."""

    type: str
    map: list[int]
    """First line, and one past the last."""
    level: int = 0
    tag: str = ""
    info: str = ""
    content: str = ""
    nesting: int = 1


class BlockScanner:
    """Scans the lines of one text."""

    def __init__(self, lines: list[str], *, max_lines: int) -> None:
        """`lines` without their ends. Lists and paragraphs of more than about `max_lines` are divided."""
        self._lines = lines
        self._max_lines = max_lines
        self._end = len(lines)
        self._item = -1
        """A line with which an item may begin, beyond the most lines of the last list."""
        self._items: dict[int, tuple[int, int]] = {}
        """Column and place where the content of an item begins, for the lines on which items begin."""
        self.tokens: list[BlockToken] = []
        """What was found."""

    def block(self, line: int) -> int:
        """Scans the outermost block that begins at `line`, which is not empty; gives the line after it.

        Raises NotScanned.
        """
        self._end = len(self._lines)
        self._items.clear()
        self.tokens = []
        return self._block(line, 0, -1, 0)

    def _most(self, line: int) -> int:
        return min(len(self._lines), line + self._max_lines)

    def _most_of_list(self, line: int) -> int:
        """Where a list from `line` on may be divided: before a line that begins with a mark."""
        lines, far = self._lines, self._most(line)
        if self._item < far:
            self._item = far
            while self._item < len(lines) and lines[self._item][:1] not in _ITEM_SIGNS:
                self._item += 1
        return self._item

    def _first(self, line: int) -> tuple[int, int]:
        """Column and place of the first character of a line that is no space."""
        if line in self._items:
            return self._items[line]
        text = self._lines[line]
        if not text or text[0] not in _SPACES:
            return 0, 0
        place = len(text) - len(text.lstrip(_SPACES))
        return len(text[:place].expandtabs(4)), place

    def _blocks(self, line: int, indent: int, list_indent: int, level: int) -> int:
        """Scans what is inside an item from `line` on; gives the line after it."""
        while line < self._end:
            while line < self._end and self._is_empty_item(line):
                line += 1
            if line >= self._end or self._first(line)[0] < indent:
                return line
            if level >= MAX_NESTING:
                return self._end
            line = self._block(line, indent, list_indent, level)
            if line < self._end and self._is_empty_item(line):
                line += 1
        return line

    def _is_empty_item(self, line: int) -> bool:
        return self._first(line)[1] >= len(self._lines[line])

    def _block(self, line: int, indent: int, list_indent: int, level: int) -> int:
        text = self._lines[line]
        column, place = self._first(line)
        text = text[place:]
        sign = text[0]
        if self._is_table(line, indent):
            return self._table(line, indent, list_indent, level)
        if column - indent >= 4:
            return self._code(line, indent, level)
        if sign in "`~" and (fence := _FENCE.match(text)):
            return self._fence(line, indent, level, fence.group(), text)
        if sign == ">":
            raise NotScanned
        if sign in "*-_" and _RULE.match(text):
            self.tokens.append(BlockToken("hr", [line, line + 1], level, nesting=0))
            return line + 1
        marker = self._marker(text) if sign in _ITEM_SIGNS else ""
        if marker and not self._is_too_deep(column, indent, list_indent):
            if level == 0:
                self._end = self._most_of_list(line)
            return self._list(line, indent, level, marker)
        if sign == "[" and self._may_define(line):
            raise NotScanned
        if sign == "<" and (after := self._html(line, indent, level, text)):
            return after
        if sign == "#" and (marks := _ATX.match(text)):
            self._heading([line, line + 1], level, marks.end(), without_closing(text[marks.end() :]))
            return line + 1
        if level == 0:
            self._end = self._most(line)
        return self._paragraph(line, indent, list_indent, level)

    def _heading(self, lines: list[int], level: int, depth: int, content: str) -> None:
        self.tokens.append(BlockToken("heading_open", lines, level, tag=f"h{depth}"))
        self.tokens.append(BlockToken("inline", lines, level + 1, content=content, nesting=0))

    def _paragraph(self, line: int, indent: int, list_indent: int, level: int) -> int:
        lines, end = self._lines, self._end
        plain = not indent
        after = line + 1
        while after < end:
            text = lines[after]
            # Most lines can end no paragraph.
            if plain and text and text[0] not in _MAY_END_A_PARAGRAPH:
                if after + 1 >= end or not self._may_delimit(after + 1) or not self._is_table(after, indent):
                    after += 1
                    continue
                break
            column, place = self._first(after)
            if place >= len(text):
                break
            if column - indent > 3:
                after += 1
                continue
            text = text[place:]
            if column >= indent and text[0] in "=-" and _SETEXT.match(text):
                content = "\n".join(lines[line:after])
                self._heading([line, after + 1], level, 1 if text[0] == "=" else 2, content)
                return after + 1
            if self._ends_paragraph(after, text, column, indent, list_indent) or self._is_table(after, indent):
                break
            after += 1
        self.tokens.append(BlockToken("paragraph_open", [line, after], level))
        return after

    def _may_delimit(self, line: int) -> bool:
        return self._lines[line].lstrip(_SPACES)[:1] in {"|", "-", ":"}

    def _ends_paragraph(self, line: int, text: str, column: int, indent: int, list_indent: int) -> bool:
        if self._ends_table(text, column, indent, list_indent):
            if column < indent or text[0] not in _ITEM_SIGNS or (text[0] in "*-" and _RULE.match(text)):
                return True
            # An item ends a paragraph only where it has a text, and a number only where it is the first.
            marker = self._marker(text)
            return bool(text[len(marker) :].strip(_SPACES)) and (len(marker) == 1 or int(marker[:-1]) == 1)
        return False

    def _ends_table(self, text: str, column: int, indent: int, list_indent: int) -> bool:
        """Whether a line, which is no code, begins something else than a row or more of a paragraph."""
        sign = text[0]
        if self._ends_item(text):
            return True
        if sign in _ITEM_SIGNS:
            return bool(self._marker(text)) and not self._is_too_deep(column, indent, list_indent)
        if sign == "<":
            return next((ends for opening, _, ends in HTML_SEQUENCES if opening.search(text)), False)
        return sign == "#" and _ATX.match(text) is not None

    def _ends_item(self, text: str) -> bool:
        sign = text[0]
        if sign in "`~":
            return _FENCE.match(text) is not None
        return sign == ">" or (sign in "*-_" and _RULE.match(text) is not None)

    def _is_table(self, line: int, indent: int) -> bool:
        """Whether a header and the row of dashes below it begin at `line`."""
        lines = self._lines
        if line + 1 >= self._end or "|" not in lines[line]:
            return False
        column, place = self._first(line + 1)
        below = lines[line + 1][place:]
        if column < indent or column - indent >= 4 or not _DELIMITERS.match(below):
            return False
        column, place = self._first(line)
        if column - indent >= 4:
            return False
        cells = [mdTrim(cell) for cell in below.split("|")]
        if not cells[0]:
            cells.pop(0)
        if cells and not cells[-1]:
            cells.pop()
        # Cells that a huge row may have are counted without making each of them.
        if not cells or not all(_DELIMITER.fullmatch(cell) for cell in cells):
            return False
        header = escapedSplit(mdTrim(lines[line][place:]))
        if header and header[0] == "":
            header.pop(0)
        if header and header[-1] == "":
            header.pop()
        return len(header) == len(cells)

    def _table(self, line: int, indent: int, list_indent: int, level: int) -> int:
        after = line + 2
        while after < self._end:
            column, place = self._first(after)
            text = self._lines[after][place:]
            if column < indent or column - indent >= 4 or not mdTrim(text):
                break
            if self._ends_table(text, column, indent, list_indent):
                break
            after += 1
        self.tokens.append(BlockToken("table", [line, after], level, nesting=0))
        return after

    def _code(self, line: int, indent: int, level: int) -> int:
        after = last = line + 1
        while after < self._end:
            column, place = self._first(after)
            if place >= len(self._lines[after]):
                after += 1
                continue
            if column - indent < 4:
                break
            after += 1
            last = after
        self.tokens.append(BlockToken("code_block", [line, last], level, nesting=0))
        return last

    def _fence(self, line: int, indent: int, level: int, marks: str, text: str) -> int:
        lines = self._lines
        after = line + 1
        closed = 0
        while after < self._end:
            text_after = lines[after]
            if indent or marks[0] in text_after:
                column, place = self._first(after)
                rest = text_after[place:]
                if rest and column < indent:
                    break
                closing = _FENCE_END.match(rest) if rest[:1] == marks[0] and column - indent < 4 else None
                if closing is not None and len(closing.group(1)) >= len(marks):
                    closed = 1
                    break
            after += 1
        after += closed
        self.tokens.append(BlockToken("fence", [line, after], level, info=text[len(marks) :], nesting=0))
        return after

    def _html(self, line: int, indent: int, level: int, text: str) -> int:
        """The line after a block of HTML; 0 where none begins."""
        closing = next((closing for opening, closing, _ in HTML_SEQUENCES if opening.search(text)), None)
        if closing is None:
            return 0
        ends_empty = closing.search("") is not None
        after = line + 1
        if not closing.search(text):
            while after < self._end:
                column, place = self._first(after)
                rest = self._lines[after][place:]
                if column < indent and (ends_empty or rest):
                    break
                if closing.search(rest):
                    after += 1 if rest else 0
                    break
                after += 1
        self.tokens.append(BlockToken("html_block", [line, after], level, nesting=0))
        return after

    def _marker(self, text: str) -> str:
        found = _NUMBER.match(text) if text[0] in "0123456789" else _BULLET.match(text)
        return found.group() if found else ""

    def _is_too_deep(self, column: int, indent: int, list_indent: int) -> bool:
        """Whether what looks like an item continues the paragraph of another."""
        return list_indent >= 0 and column - list_indent >= 4 and column < indent

    def _list(self, line: int, indent: int, level: int, marker: str) -> int:
        kind = "ordered_list_open" if len(marker) > 1 else "bullet_list_open"
        token = BlockToken(kind, [line, line], level)
        self.tokens.append(token)
        sign = marker[-1]
        while line < self._end:
            text = self._lines[line]
            column, place = self._first(line)
            first = column + len(marker)
            start = place + len(marker)
            rest = text[start:].lstrip(_SPACES)
            begins = len(text) - len(rest)
            offset = first
            for space in text[start:begins]:
                offset += 4 - offset % 4 if space == "\t" else 1
            width = offset - first if rest else 1
            lines = [line, line]
            self.tokens.append(BlockToken("list_item_open", lines, level + 1))
            outer = self._items.get(line)
            self._items[line] = (offset, begins)
            if width <= 4 and self._is_one_line(line, rest, sign):
                self.tokens.append(BlockToken("paragraph_open", [line, line + 1], level + 2))
                after = line + 1
            elif not rest and (line + 1 >= self._end or self._is_empty_item(line + 1)):
                after = min(line + 2, self._end)
            else:
                after = self._blocks(line, first + (width if width <= 4 else 1), indent, level + 2)
            if outer is None:
                del self._items[line]
            else:
                self._items[line] = outer
            line = lines[1] = after
            if line >= self._end:
                break
            column, place = self._first(line)
            text = self._lines[line][place:]
            if column < indent or column - indent >= 4 or not text or self._ends_item(text):
                break
            marker = self._marker(text) if text[0] in _ITEM_SIGNS else ""
            if not marker or marker[-1] != sign or (len(marker) > 1) != (kind == "ordered_list_open"):
                break
        token.map[1] = line
        return line

    def _is_one_line(self, line: int, text: str, sign: str) -> bool:
        """Whether an item is certainly one line of text, as most are: the next item begins right below it."""
        if line + 1 >= self._end or not text[:1].isalpha() or "|" in text:
            return False
        below = self._lines[line + 1]
        return below[:2] == sign + " " and below[2:3].isalpha()

    def _may_define(self, line: int) -> bool:
        """Whether a paragraph may begin with the definition of a link."""
        for text in self._lines[line : min(self._end, line + _MOST_OF_DEFINITION)]:
            if "]:" in text:
                return True
            if not text.strip(_SPACES):
                return False
        return line + _MOST_OF_DEFINITION < self._end
