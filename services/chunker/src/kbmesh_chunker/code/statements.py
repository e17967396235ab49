"""Where a long stretch of code may be cut: between statements, the outer ones first."""

from collections.abc import Callable

import tree_sitter

from kbmesh_chunker.code.syntax import Role, Syntax

# Weaker than what keeps windows from overlapping.
_AFTER_BLANK_LINE = 4
_STATEMENT = 3
_INNER = 2
_INNERMOST = 1
_LOOKBACK = 160
"""A line that is longer than this has no shape: its statements are told apart within it."""
_STEPS_BETWEEN_CHECKS = 4096


def statement_breaks(
    text: str,
    syntax: Syntax,
    node: tree_sitter.Node,
    start: int,
    end: int,
    small: int,
    checkpoint: Callable[[], None],
) -> list[tuple[int, int]]:
    """Places within text[start:end], which is in `node`, with their strengths for a cutter.

    What is not longer than `small` is not looked into, so that the work goes with what is long.
    """
    breaks: list[tuple[int, int]] = []
    leading = {number for number, meaning in syntax.meanings.items() if meaning.role in {Role.COMMENT, Role.LEAD}}
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
            is_block = current.kind_id in syntax.blocks
            if current.is_named and not first and not held and not is_block and begin > start:
                place = _break_at(text, begin, blocks if in_block else blocks + 2)
                if place is not None and place[0] > start:
                    breaks.append(place)
            is_leading = current.kind_id in leading
            held = is_leading and _leads(text, current)
            first = first and (is_leading or not current.is_named)
            if finish - begin > small and _descend(cursor, begin, start):
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


def _descend(cursor: tree_sitter.TreeCursor, begin: int, start: int) -> bool:
    if begin < start and cursor.goto_first_child_for_byte(start) is not None:
        return True
    return cursor.goto_first_child()


def _leads(text: str, node: tree_sitter.Node) -> bool:
    """Whether a comment or an attribute goes with what is on the next line."""
    start, end = node.start_byte, node.end_byte
    if text[max(0, start - _LOOKBACK) : start].rstrip(" \t")[-1:] not in {"\n", ""}:
        return False
    end = start + len(text[start:end].rstrip())
    after = text[end : end + _LOOKBACK]
    return after[: len(after) - len(after.lstrip())].count("\n") < 2


def _break_at(text: str, position: int, level: int) -> tuple[int, int] | None:
    before = text[max(0, position - _LOOKBACK) : position]
    bare = before.rstrip(" \t")
    strength = {1: _STATEMENT, 2: _INNER}.get(level, _INNERMOST)
    if bare.endswith("\n"):
        blank = bare[:-1].rstrip(" \t\r").endswith("\n")
        if level == 1 and blank:
            strength = _AFTER_BLANK_LINE
        return position - (len(before) - len(bare)), strength
    if "\n" in before or len(before) < _LOOKBACK:
        return None
    return position, strength
