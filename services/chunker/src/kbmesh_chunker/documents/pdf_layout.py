"""In which order one reads a page: fragments become lines, lines stand in columns."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from kbmesh_chunker.documents.pdf_page import Fragment, Page
from kbmesh_chunker.documents.pdf_text import without_leader

_BINS = 256
_MIN_LINES = 5
"""A column has at least so many lines."""
_MIN_WIDTH = 0.18
"""And is at least so wide, as a share of the text."""
_FILLED = 0.45
"""And its lines fill so much of it, as prose does and the cells of a table do not."""
_MAX_COLUMNS_DEEP = 3
_MAX_UPWARDS = 0.08
"""If more lines than this share stand above the one drawn before them, they were not drawn in reading order."""
_CELL_GAP = 2.0
"""Ems of white that part two cells of a row."""


@dataclass(slots=True)
class Line:
    """A line of a column."""

    text: str
    page: int
    column: int
    """Lines of one column, or of the whole width between two columns, have one number; it rises in reading order."""
    left: float
    right: float
    baseline: float
    size: float
    bold: bool
    fixed: bool
    upright: bool
    first_width: float
    column_left: float
    column_right: float
    level: int = 0
    """Of a heading, from 1."""
    title: str = field(default="")
    """Of the heading that starts here."""


@dataclass(frozen=True, slots=True)
class _Column:
    fragments: Sequence[Fragment]
    left: float
    right: float


def lines_of(page: Page) -> list[Line]:
    """The lines of a page in reading order. Text that stands sideways comes last."""
    upright = [fragment for fragment in page.fragments if fragment.upright]
    lines: list[Line] = []
    for number, column in enumerate(_columns(upright, 0)):
        lines.extend(_rows(column, page.number, number))
    sideways = [fragment for fragment in page.fragments if not fragment.upright]
    for number, fragment in enumerate(sideways, start=len(lines)):
        lines.append(_line([fragment], page.number, number, fragment.left, fragment.right))
    return lines


def _columns(fragments: Sequence[Fragment], depth: int) -> Iterator[_Column]:
    if not fragments:
        return
    gutter = _gutter(fragments) if depth < _MAX_COLUMNS_DEEP and len(fragments) >= 2 * _MIN_LINES else None
    if gutter is None:
        left, right = _edges(fragments)
        yield _Column(fragments if _is_drawn_downwards(fragments) else _downwards(fragments), left, right)
        return
    for side, group in _bands(fragments, gutter):
        if side is None:
            left, right = _edges(group)
            yield _Column(group, left, right)
        else:
            yield from _columns(group, depth + 1)


def _edges(fragments: Sequence[Fragment]) -> tuple[float, float]:
    """Where the lines of a column start and end, but for a few that stand out."""
    rights = sorted(fragment.right for fragment in fragments)
    return min(fragment.left for fragment in fragments), rights[int((len(rights) - 1) * 0.97)]


def _gutter(fragments: Sequence[Fragment]) -> float | None:
    """Where a strip of white runs between two columns that are each a column of prose. None where none does."""
    left = min(fragment.left for fragment in fragments)
    right = max(fragment.right for fragment in fragments)
    width = right - left
    if width <= 0:
        return None
    # How many fragments stand across each of some places between left and right.
    steps = [0] * (_BINS + 2)
    for fragment in fragments:
        steps[int((fragment.left - left) / width * _BINS)] += 1
        steps[min(_BINS, int((fragment.right - left) / width * _BINS)) + 1] -= 1
    across, crossing = 0, []
    for step in steps[:_BINS]:
        across += step
        crossing.append(across)
    inner = range(int(_BINS * _MIN_WIDTH), int(_BINS * (1 - _MIN_WIDTH)))
    fewest = min(crossing[place] for place in inner)
    best: tuple[int, int] = (0, 0)
    start: int | None = None
    for place in (*inner, inner.stop):
        clear = place < inner.stop and crossing[place] == fewest
        if clear and start is None:
            start = place
        elif not clear and start is not None:
            best = max(best, (place - start, start))
            start = None
    middle = left + (best[1] + best[0] / 2) / _BINS * width
    before = [fragment for fragment in fragments if fragment.right <= middle]
    after = [fragment for fragment in fragments if fragment.left >= middle]
    if fewest > min(len(before), len(after)) * 0.4:
        return None
    return middle if _is_column(before, width) and _is_column(after, width) else None


def _is_column(fragments: Sequence[Fragment], page_width: float) -> bool:
    if len(fragments) < _MIN_LINES:
        return False
    left, right = _edges(fragments)
    width = right - left
    if width < page_width * _MIN_WIDTH:
        return False
    return median(fragment.right - fragment.left for fragment in fragments) >= width * _FILLED


def _bands(fragments: Sequence[Fragment], gutter: float) -> Iterator[tuple[int | None, list[Fragment]]]:
    """Left column, right column, what stands across both, and so on down the page."""
    sides = [_side(fragment, gutter) for fragment in fragments]
    if _is_drawn_by_columns(fragments, sides):
        start = 0
        for index in range(1, len(fragments) + 1):
            if index == len(fragments) or sides[index] != sides[start]:
                yield sides[start], list(fragments[start:index])
                start = index
        return
    across = sorted(
        (fragment for fragment, side in zip(fragments, sides, strict=True) if side is None),
        key=lambda fragment: -fragment.baseline,
    )
    depths = [-fragment.baseline for fragment in across]
    bands: list[tuple[list[Fragment], list[Fragment]]] = [([], []) for _ in range(len(across) + 1)]
    for fragment, side in zip(fragments, sides, strict=True):
        if side is not None:
            bands[bisect_left(depths, -fragment.baseline)][side].append(fragment)
    waiting: list[Fragment] = []
    for index, band in enumerate(bands):
        if waiting and (band[0] or band[1]):
            yield None, waiting
            waiting = []
        for side in (0, 1):
            if band[side]:
                yield side, band[side]
        if index < len(across):
            waiting.append(across[index])
    if waiting:
        yield None, waiting


def _side(fragment: Fragment, gutter: float) -> int | None:
    if fragment.right <= gutter:
        return 0
    return 1 if fragment.left >= gutter else None


def _is_drawn_by_columns(fragments: Sequence[Fragment], sides: Sequence[int | None]) -> bool:
    """Whether the order of drawing is that of reading: few changes from one column to the other, and downwards."""
    both = [(fragment, side) for fragment, side in zip(fragments, sides, strict=True) if side is not None]
    changes = sum(1 for (_, one), (_, other) in pairwise(both) if one != other)
    if changes > max(4, len(both) * 0.1):
        return False
    return all(_is_drawn_downwards([fragment for fragment, own in both if own == side]) for side in (0, 1))


def _is_drawn_downwards(fragments: Sequence[Fragment]) -> bool:
    upwards = sum(
        1
        for one, other in pairwise(fragments)
        if other.baseline > one.baseline + 0.8 * max(one.size, other.size)
        or (abs(other.baseline - one.baseline) <= 0.2 * one.size and other.right < one.left)
    )
    return upwards <= max(2, len(fragments) * _MAX_UPWARDS)


def _downwards(fragments: Sequence[Fragment]) -> list[Fragment]:
    """From top to bottom; those of one row from left to right."""
    ordered = sorted(fragments, key=lambda fragment: -fragment.baseline)
    rows: list[list[Fragment]] = []
    for fragment in ordered:
        if rows and rows[-1][0].baseline - fragment.baseline <= 0.35 * max(rows[-1][0].size, fragment.size):
            rows[-1].append(fragment)
        else:
            rows.append([fragment])
    return [fragment for row in rows for fragment in sorted(row, key=lambda fragment: fragment.left)]


def _rows(column: _Column, page: int, number: int) -> Iterator[Line]:
    row: list[Fragment] = []
    for fragment in column.fragments:
        if row and not _stands_beside(row[-1], fragment):
            yield _line(row, page, number, column.left, column.right)
            row = []
        row.append(fragment)
    if row:
        yield _line(row, page, number, column.left, column.right)


def _stands_beside(left: Fragment, right: Fragment) -> bool:
    larger, smaller = max(left.size, right.size), min(left.size, right.size)
    # Marks that are raised or lowered are small.
    most = 0.35 * larger if smaller > 0.85 * larger else 0.65 * larger
    return abs(left.baseline - right.baseline) <= most and right.left - left.right > -0.5 * larger


def _line(row: Sequence[Fragment], page: int, number: int, column_left: float, column_right: float) -> Line:
    main = max(row, key=lambda fragment: len(fragment.text))
    parts = [row[0].text]
    for before, fragment in pairwise(row):
        gap = (fragment.left - before.right) / max(before.size, fragment.size)
        parts.append("\t" if gap >= _CELL_GAP else " " if gap > 0.12 else "")
        parts.append(fragment.text)
    text = without_leader("".join(parts))
    return Line(
        text=text,
        page=page,
        column=number,
        left=row[0].left,
        right=max(fragment.right for fragment in row),
        baseline=main.baseline,
        size=main.size,
        bold=all(fragment.bold for fragment in row if fragment.text.strip()),
        fixed="\t" not in text and all(fragment.fixed for fragment in row),
        upright=main.upright,
        first_width=row[0].first_width,
        column_left=column_left,
        column_right=column_right,
    )
