"""markdown-it-py's block parser, one outermost block at a time.

The parser's own loop keeps the tokens of the whole document, some kilobytes for each list item and table row. Here the
caller takes the tokens of a block before the next is parsed, and may stop in between.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, code, fence, html_block, list_block, table
from markdown_it.token import Token

MAX_BLOCK_LINES = 2_000
"""Lists, quotes and paragraphs that are longer are parsed in parts of about so many lines."""
TABLE = "table"
"""Type of the token that stands for a whole table: header, delimiter row and body."""

_LINE_END = re.compile(r"\r\n?|\n")


def parse_blocks(text: str) -> Iterator[list[Token]]:
    """The tokens of each outermost block, in order; the `map` of each token has its lines."""
    state = StateBlock(_LINE_END.sub("\n", text), _PARSER, {}, [])
    rules = _PARSER.block.ruler.getRules("")
    parts = _Parts(state, state.lineMax)
    line = 0
    while line < parts.lines:
        line = state.skipEmptyLines(line)
        if line >= parts.lines:
            return
        state.line = line
        for rule in rules:
            end = parts.end(line, rule)
            # Some rules read on to `lineMax`, whatever end they are given.
            state.lineMax = end
            found = rule(state, line, end, False)
            state.lineMax = parts.lines
            if found:
                break
        line = max(state.line, line + 1)
        if state.tokens:
            yield state.tokens
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
    while line < end and state.sCount[line] >= state.blkIndent and not state.isEmpty(line):
        if state.is_code_block(line) or any(rule(state, line, end, True) for rule in ended_by):
            break
        line += 1
    state.push(TABLE, TABLE, 0).map = [start, line]
    state.line = line
    return True


_WHOLE = (code, fence, html_block, _whole_table)
_PARSER = MarkdownIt("commonmark").enable("table")
_PARSER.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
