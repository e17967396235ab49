"""Where a long stretch of code may be cut: between statements, the outer ones first."""

import re
from collections.abc import Callable

import tree_sitter

from kbmesh_chunker.blank import MAX_INDENT
from kbmesh_chunker.code.packing import MID_LINE
from kbmesh_chunker.code.syntax import Syntax

# Weaker than what keeps windows from overlapping.
_AFTER_BLANK_LINE = 4
_STATEMENT = 3
_INNER = 2
_INNERMOST = 1
_LOOKBACK = 160
"""A line that is longer than this has no shape: its statements are told apart within it."""
_STEPS_BETWEEN_CHECKS = 4096
_LINE_START = re.compile(r"\n[ \t]*\Z")
_NEXT_LINE = re.compile(r"[^\S\n]*\n?[^\S\n]*(?=\S)")


def statement_breaks(
    text: str,
    syntax: Syntax,
    node: tree_sitter.Node,
    start: int,
    end: int,
    small: int,
    fits: Callable[[int, int], bool],
    checkpoint: Callable[[], None],
) -> list[tuple[int, int]]:
    """Places within text[start:end], which is in `node`, with their strengths for Packing.

    What is not longer than `small` is not looked into, so that the work goes with what is long, nor is a function that
    `fits`, which stays whole.
    """
    breaks: list[tuple[int, int]] = []
    leading = syntax.leading
    cursor = node.walk()
    if cursor.goto_first_child_for_byte(start) is None:
        return breaks
    in_block = node.kind_id in syntax.blocks
    blocks = int(in_block)
    above: list[tuple[int, bool]] = []
    first, held, steps = True, False, 0
    while True:
        steps += 1
        if steps % _STEPS_BETWEEN_CHECKS == 0:
            checkpoint()
        current = cursor.node
        assert current is not None
        begin, finish = current.start_byte, current.end_byte
        if begin < end and finish > start:
            kind, named = current.kind_id, current.is_named
            is_block = kind in syntax.blocks
            if named and not first and not held and not is_block and begin > start:
                place = _break_at(text, begin, blocks if in_block else blocks + 2)
                if place is not None and place[0] > start:
                    breaks.append(place)
            is_leading = kind in leading
            held = is_leading and _leads(text, current)
            if named and not is_leading:
                first = False
            deep = finish - begin > small
            if deep and kind in syntax.functions and begin > start and fits(begin, finish):
                line = _line_of(text, begin)
                breaks.append((line if line > start and fits(line, finish) else begin, MID_LINE))
                deep = False
            if deep and _descend(cursor, begin, start):
                above.append((blocks, in_block))
                blocks, in_block = blocks + is_block, is_block
                first, held = True, False
                continue
        moved = begin < end and cursor.goto_next_sibling()
        while not moved and above:
            cursor.goto_parent()
            blocks, in_block = above.pop()
            first = held = False
            moved = cursor.goto_next_sibling()
        if not moved:
            return breaks


def _line_of(text: str, position: int) -> int:
    """The start of the line of a position where there is but an indentation between."""
    line = text.rfind("\n", max(0, position - MAX_INDENT - 1), position) + 1
    return line if line and not text[line:position].strip() else position


def _descend(cursor: tree_sitter.TreeCursor, begin: int, start: int) -> bool:
    if begin < start and cursor.goto_first_child_for_byte(start) is not None:
        return True
    return cursor.goto_first_child()


def _leads(text: str, node: tree_sitter.Node) -> bool:
    """Whether a comment or an attribute goes with what is on the next line."""
    start, end = node.start_byte, node.end_byte
    if start and text[start - 1] != "\n" and not _LINE_START.search(text, max(0, start - _LOOKBACK), start):
        return False
    # Some grammars count the end of the line as a part of the comment.
    return _NEXT_LINE.match(text, end - 1 if text[end - 1] == "\n" else end) is not None


def _break_at(text: str, position: int, level: int) -> tuple[int, int] | None:
    earliest = max(0, position - _LOOKBACK)
    line = text.rfind("\n", earliest, position) + 1
    strength = _STATEMENT if level == 1 else _INNER if level == 2 else _INNERMOST
    if line:
        if line < position and not text[line:position].isspace():
            return None
        if level == 1 and text[max(0, line - _LOOKBACK) : line - 1].rstrip(" \t\r").endswith("\n"):
            strength = _AFTER_BLANK_LINE
        return line, strength
    # Within a line that is long: else it has a shape of its own, and is not cut.
    return (position, strength) if earliest else None
