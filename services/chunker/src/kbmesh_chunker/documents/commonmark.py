"""The outermost blocks of a Markdown text, one at a time.

Most are found by a scanner of our own, some ten times as fast as markdown-it-py; what that leaves out is given to the
library. Whoever takes the blocks may stop in between, and nothing is kept of those that were given.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock, blockquote, code, fence, html_block, list_block, table
from markdown_it.token import Token

from kbmesh_chunker.documents.block_scanner import BlockScanner, BlockToken, NotScanned

MAX_BLOCK_LINES = 2_000
"""Lists, quotes and paragraphs that are longer are parsed in parts of about so many lines."""
TABLE = "table"
"""Type of the token that stands for a whole table: header, delimiter row and body."""

_GOES_ON = frozenset(" \t-*+0123456789") | {""}
_CONTAINED = frozenset(">[")
_LISTS = frozenset({"bullet_list_open", "ordered_list_open"})
_LONG = frozenset({"fence", "html_block", "code_block"})
_LINE_END = re.compile(r"\r\n?|\n")


class BlockParser:
    """Finds the outermost blocks of a text by its lines, which are without their ends."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._scanner = BlockScanner(lines, max_lines=MAX_BLOCK_LINES)

    def blocks(self, line: int) -> Iterator[tuple[Sequence[BlockToken | Token], int]]:
        """The block that begins at `line`, which is not empty, and perhaps some that follow: tokens, line after it.

        The `map` of each token has its lines. Definitions of links have no tokens.
        """
        try:
            after = self._scanner.block(line)
        except NotScanned:
            yield from self._by_library(line)
        else:
            yield self._scanner.tokens, after

    def _by_library(self, line: int) -> Iterator[tuple[Sequence[BlockToken | Token], int]]:
        lines = self._lines
        contained = lines[line].lstrip(" \t")[:1] in _CONTAINED
        end = filled = _certain_end(lines, line)
        while filled > line and not lines[filled - 1].strip(" \t"):
            filled -= 1
        for tokens, _, after in _parse_by_library("\n".join(lines[line:end]) + "\n", line):
            kind = tokens[0].type if tokens else ""
            if after >= filled and (kind in _LONG or (contained and kind in _LISTS)):
                # It may go on after what the library was given.
                return
            yield tokens, after


def _certain_end(lines: Sequence[str], line: int) -> int:
    """A line after `line` before which the block that begins there has ended in any case."""
    contained = lines[line].lstrip(" \t")[:1] in _CONTAINED
    after = line + 1
    while after < len(lines):
        # No block quote goes on after an empty line, and no item after one without indentation.
        if contained and not lines[after].strip(" \t"):
            # A quote without a text takes the empty lines below it along.
            while after < len(lines) and not lines[after].strip(" \t"):
                after += 1
            return after
        if lines[after][:1] not in _GOES_ON and not lines[after - 1].strip(" \t"):
            return after
        after += 1
    return after


def _parse_by_library(text: str, offset: int) -> Iterator[tuple[list[Token], int, int]]:
    """The blocks of a text whose first line is `offset` of the whole: tokens, first line, and the line after.

    Definitions of links have no tokens.
    """
    state = StateBlock(text, _PARSER, {}, [])
    rules = _PARSER.block.ruler.getRules("")
    parts = _Parts(state, state.lineMax)
    line = 0
    while line < parts.lines:
        line = state.skipEmptyLines(line)
        if line >= parts.lines:
            return
        first = state.line = line
        for rule in rules:
            end = parts.end(line, rule)
            # Some rules read on to `lineMax`, whatever end they are given.
            state.lineMax = end
            found = rule(state, line, end, False)
            state.lineMax = parts.lines
            if found:
                break
        line = max(state.line, line + 1)
        for token in state.tokens:
            if token.map is not None:
                token.map = [token.map[0] + offset, token.map[1] + offset]
        yield state.tokens, first + offset, line + offset
        state.tokens = []


@dataclass
class _Parts:
    """Where a block that begins at a line must end at the latest."""

    state: StateBlock
    lines: int
    _next: dict[str, int] = field(default_factory=dict)

    def end(self, line: int, rule: object) -> int:
        far = line + MAX_BLOCK_LINES
        if far >= self.lines or rule in _WHOLE:
            return self.lines
        if rule is list_block:
            return self._next_line(far, "-*+0123456789")
        if rule is blockquote:
            return self._next_line(far, ">")
        return far

    def _next_line(self, line: int, marks: str) -> int:
        """The first line from `line` on that begins with a mark: a list or quote may be parted before it."""
        known = self._next.get(marks, -1)
        if known < line:
            known = line
            while known < self.lines and not self._begins(known, marks):
                known += 1
            self._next[marks] = known
        return known

    def _begins(self, line: int, marks: str) -> bool:
        start = self.state.bMarks[line]
        return start < self.state.eMarks[line] and self.state.src[start] in marks


def _whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """GitHub's tables as one token: a token for each cell would take gigabytes for a large one."""
    before = len(state.tokens)
    if not table(state, start, min(end, start + 2), silent):
        return False
    if silent:
        return True
    del state.tokens[before:]
    line = start + 2
    ended_by = state.md.block.ruler.getRules("blockquote")
    parent, state.parentType = state.parentType, "table"
    while line < end and state.sCount[line] >= state.blkIndent:
        if not mdTrim(state.src[state.bMarks[line] : state.eMarks[line]]):
            break
        if state.is_code_block(line) or any(rule(state, line, end, True) for rule in ended_by):
            break
        line += 1
    state.parentType = parent
    state.push(TABLE, TABLE, 0).map = [start, line]
    state.line = line
    return True


_WHOLE = (code, fence, html_block, _whole_table)
_PARSER = MarkdownIt("commonmark").enable("table")
_PARSER.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
