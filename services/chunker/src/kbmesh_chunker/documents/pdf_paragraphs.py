"""The text of a PDF's lines: lines of a paragraph put together again, paragraphs parted by blank lines."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from kbmesh_chunker.documents.pdf_headings import MAX_TITLE
from kbmesh_chunker.documents.pdf_layout import Line
from kbmesh_chunker.documents.pdf_text import DIVIDED, Words, ends_divided, is_wide
from kbmesh_chunker.documents.source import Heading, HeadingLayout, Places

_PARAGRAPH = "\n\n"
_BULLET = re.compile(r"(?:[•▪●○■□◦‣∙·–—✓➢❖*-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)])(?:\s|$)")
_SENTENCE_ENDS = ".!?。！？:：”’\"')）」』…"
_MAX_INDENT = 40
_WRAPPED = {" ", ""}
_LONG = 0.6
"""Prose that goes on has lines at least so long, as a share of the column."""
_FULL_LINES = 3
"""So many lines that end at one place are set to a margin."""


@dataclass(kw_only=True)
class Prose:
    """A text as it grows, with what is known about its stretches."""

    _parts: list[str] = field(default_factory=list)
    _length: int = 0
    _page_starts: list[int] = field(default_factory=list)
    _page_numbers: list[int] = field(default_factory=list)
    _headings: list[Heading] = field(default_factory=list)

    def add(self, text: str, page: int) -> None:
        """Text of a page."""
        if not self._page_numbers or self._page_numbers[-1] != page:
            self._page_starts.append(self._length)
            self._page_numbers.append(page)
        self._parts.append(text)
        self._length += len(text)

    def begin_heading(self, level: int, title: str) -> None:
        """The text that comes next is a heading."""
        self._headings.append(Heading(start=self._length, end=self._length, level=level, title=title))

    def end_heading(self) -> None:
        """What came since it began is the heading."""
        begun = self._headings.pop()
        self._headings.append(Heading(start=begun.start, end=self._length, level=begun.level, title=begun.title))

    def finish(self) -> tuple[str, Places, HeadingLayout]:
        """The text, its pages and its headings."""
        pages = Places(starts=tuple(self._page_starts), numbers=tuple(self._page_numbers))
        return "".join(self._parts), pages, HeadingLayout(headings=tuple(self._headings))


def write_prose(lines: Sequence[Line], body_size: float) -> tuple[str, Places, HeadingLayout]:
    """The text of lines in reading order."""
    words = Words(line.text for line in lines)
    lines, joints = _joined(lines, body_size)
    prose = Prose()
    carried = ""
    for index, (line, joint) in enumerate(zip(lines, joints, strict=True)):
        if line.title:
            prose.begin_heading(line.level, line.title[:MAX_TITLE])
        text = carried or _indented(line)
        carried = ""
        following = lines[index + 1] if index + 1 < len(lines) else None
        if joint == " " and following is not None and ends_divided(text):
            text, carried = _divided(text, following, words)
            prose.add(text, line.page)
        else:
            prose.add(text.replace(DIVIDED, "-") + joint, line.page)
        if line.level and (following is None or following.title or not following.level):
            prose.end_heading()
    return prose.finish()


def _joined(lines: Sequence[Line], body_size: float) -> tuple[list[Line], list[str]]:
    """Lines, and what stands behind each. Notes at the foot of a column wait for the end of the paragraph that goes on
    in the next one."""
    pitches, margins = _pitches(lines), _right_margins(lines)

    def joint(above: Line, below: Line) -> str:
        pitch = pitches.get((above.page, above.column), 1.3 * above.size)
        return _joint(above, below, pitch, margins[id(above)])

    ordered: list[Line] = []
    notes: list[Line] = []
    for group in _columns(lines):
        foot = _foot(group, body_size)
        for line in group[:foot]:
            if notes and joint(ordered[-1], line) not in _WRAPPED:
                ordered.extend(notes)
                notes = []
            ordered.append(line)
        notes.extend(group[foot:])
        if not ordered:
            ordered, notes = notes, []
    ordered.extend(notes)
    return ordered, [*(joint(above, below) for above, below in pairwise(ordered)), ""]


def _columns(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    start = 0
    for index in range(1, len(lines) + 1):
        if index == len(lines) or _place(lines[index]) != _place(lines[start]):
            yield lines[start:index]
            start = index


def _place(line: Line) -> tuple[int, int]:
    return line.page, line.column


def _foot(column: Sequence[Line], body_size: float) -> int:
    """Where the notes begin that stand at the foot of a column, in small type."""
    foot = len(column)
    while foot and column[foot - 1].size < 0.93 * body_size and not column[foot - 1].fixed:
        foot -= 1
    return foot


def _right_margins(lines: Sequence[Line]) -> dict[int, float]:
    """How far to the right the lines around each line go, by its `id`: those of an indented block end earlier."""
    margins: dict[int, float] = {}
    run: list[Line] = []

    def close() -> None:
        rights = sorted((line.right for line in run), reverse=True)
        # A few lines may stand out of the margin that the others are set to.
        right = rights[len(rights) // 20] if rights else 0.0
        full = sum(1 for line in run if abs(line.right - right) < 0.5 * line.size)
        for line in run:
            margins[id(line)] = right if full >= _FULL_LINES else max(right, line.column_right)

    for line in lines:
        if run and (
            _place(line) != _place(run[-1])
            or line.fixed != run[-1].fixed
            or abs(line.size - run[-1].size) > 0.08 * line.size
        ):
            close()
            run = []
        run.append(line)
    close()
    return margins


def _divided(text: str, following: Line, words: Words) -> tuple[str, str]:
    """A line that ends within a word, with all of the word; and what is left of the line below it."""
    rest, space, carried = following.text.partition(" ")
    joined = words.join(text, rest)
    # A line that holds nothing but the end of the word goes on as one of its own.
    return (joined[: len(joined) - len(rest)], following.text) if not carried else (joined + space, carried)


def _indented(line: Line) -> str:
    if not line.fixed:
        return line.text
    indent = (line.left - line.column_left) / (0.6 * line.size)
    return " " * min(_MAX_INDENT, max(0, round(indent))) + line.text


def _pitches(lines: Sequence[Line]) -> dict[tuple[int, int], float]:
    """How far apart lines stand in each column."""
    gaps: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for above, below in pairwise(lines):
        if (above.page, above.column) == (below.page, below.column):
            gap = above.baseline - below.baseline
            if 0 < gap < 2.5 * above.size:
                gaps[above.page, above.column].append(gap)
    return {place: median(found) for place, found in gaps.items() if len(found) > 2}


def _joint(above: Line, below: Line, pitch: float, margin: float) -> str:
    """What stands between two lines: a space where one goes on in the other, else the end of a line or paragraph."""
    if above.level or below.level:
        return "\n" if above.level and below.level == above.level and not below.title else _PARAGRAPH
    if not (above.upright and below.upright):
        return _PARAGRAPH
    alike = abs(above.size - below.size) <= 0.08 * max(above.size, below.size)
    if _place(above) != _place(below):
        return _wrap(above, below) if alike and _runs_on(above, below, margin) else _PARAGRAPH
    gap = above.baseline - below.baseline
    if above.fixed or below.fixed:
        both = above.fixed and below.fixed
        return "\n" if both and 0 < gap < 1.6 * max(pitch, above.size) else _PARAGRAPH
    if gap <= 0 or gap > 1.35 * max(pitch, 1.05 * above.size) or (not alike and gap > 0.5 * above.size):
        return _PARAGRAPH
    return _joint_of_close(above, below, margin)


def _joint_of_close(above: Line, below: Line, margin: float) -> str:
    """The same, of two lines of one size that stand no further apart than others."""
    if "\t" in above.text or "\t" in below.text:
        return "\n"
    ends, fits = above.text.rstrip().endswith(tuple(_SENTENCE_ENDS)), _fits(above, below, margin)
    if _BULLET.match(below.text) and (ends or fits):
        return "\n"
    shift = below.left - above.left
    if not fits:
        indented = 0.7 * above.size < shift < 4 * above.size
        return _PARAGRAPH if indented and ends and not _BULLET.match(above.text) else _wrap(above, below)
    if not ends and above.bold == below.bold and _goes_on(above, below, margin):
        return _wrap(above, below)
    return _PARAGRAPH if above.bold != below.bold or (abs(shift) > 0.7 * above.size and ends) else "\n"


def _goes_on(above: Line, below: Line, margin: float) -> bool:
    """Whether a line that could have held another word is in the middle of a sentence all the same."""
    if ends_divided(above.text) and below.text[:1].islower():
        return True
    if above.right - above.column_left < _LONG * (margin - above.column_left):
        return False
    first = below.text[:1]
    return first.islower() or (is_wide(first) and is_wide(above.text[-1:]))


def _runs_on(above: Line, below: Line, margin: float) -> bool:
    """Whether a paragraph goes on in the next column or on the next page."""
    if _BULLET.match(below.text) or "\t" in above.text + below.text or above.fixed or below.fixed:
        return False
    if ends_divided(above.text):
        return True
    if above.text.rstrip().endswith(tuple(_SENTENCE_ENDS)) or above.bold != below.bold:
        return False
    first = below.text.lstrip("“‘\"'(")[:1]
    return first.islower() or (not _fits(above, below, margin) and below.left < below.column_left + 0.7 * below.size)


def _fits(above: Line, below: Line, margin: float) -> bool:
    """Whether the first word of a line would have fitted on the line above it: then it was put on a new one."""
    room = margin - above.right
    wide = bool(below.text) and is_wide(below.text[0])
    needed = min(below.first_width, 2.2 * below.size) if wide else below.first_width
    return room > needed + 0.35 * above.size


def _wrap(above: Line, below: Line) -> str:
    if above.text and below.text and (is_wide(above.text[-1]) and is_wide(below.text[0])):
        return ""
    return " "
