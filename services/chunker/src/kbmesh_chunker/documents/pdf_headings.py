"""Which lines of a PDF are headings: those its outline names, or those that are set like headings."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbmesh_chunker.documents.pdf_layout import Line

MAX_TITLE = 200
_MAX_LINES = 4
_MIN_OUTLINE = 3
_MAX_LEVEL = 6
_SHORT = 24
_NUMBERED = re.compile(r"(?:(\d{1,3}(?:\.\d{1,3}){0,5})\.?|([A-Z](?:\.\d{1,3}){1,5})\.?)[ \t]+(?=\S)")
_BYLINE = re.compile(r"(?:by|von|par|por|di|door)\s|.*[@,·|]", re.IGNORECASE)
_DATE = re.compile(r".*\b(?:19|20)\d\d\b")
_PART = re.compile(r"(?:chapter|section|part|appendix|kapitel|teil|chapitre|第)", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:chapter|section|part|appendix|kapitel|chapitre|第)?(?:[\divxlc]+|[a-z])?(?:[章節部編])?")
_SENTENCE_END = (".", ",", ";", ":", "。", "、", "!")
_MANY = 0.3
"""If more than this share of the lines look like headings, weight or size means something else in this document."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of a PDF's outline."""

    title: str
    level: int
    """From 1."""
    page: int
    """From 1."""
    top: float | None
    """Where on the page, where it says so."""


@dataclass(frozen=True, slots=True)
class Body:
    """How most of a document's text is set."""

    size: float
    bold: bool


def body_of(pages: Sequence[Sequence[Line]]) -> Body:
    """How most of the text is set."""
    counts: Counter[tuple[float, bool]] = Counter()
    for lines in pages:
        for line in lines:
            if line.upright and not line.fixed:
                counts[round(line.size * 2) / 2, line.bold] += len(line.text)
    (size, bold), _ = counts.most_common(1)[0] if counts else ((10.0, False), 0)
    return Body(size=size, bold=bold)


def mark_headings(pages: Sequence[Sequence[Line]], bookmarks: Sequence[Bookmark], body: Body) -> None:
    """Sets the level of the lines that are headings, and the title on the first line of each."""
    if _mark_outline(pages, bookmarks, body) < min(_MIN_OUTLINE, len(bookmarks) or _MIN_OUTLINE):
        _mark_by_style(pages, body)


def largest_line(lines: Sequence[Line], body: Body) -> str:
    """What is set largest on a page, where it is larger than the body; empty where nothing is."""
    upright = [line for line in lines if line.upright and sum(map(str.isalnum, line.text)) > 1]
    largest = max((line.size for line in upright), default=0.0)
    if largest < body.size * 1.15:
        return ""
    first = next(index for index, line in enumerate(upright) if line.size > 0.97 * largest)
    return _title(_run(upright, first))


def _run(lines: Sequence[Line], first: int) -> list[Line]:
    """A line and those right below it that are set like it."""
    run = [lines[first]]
    for line in lines[first + 1 : first + _MAX_LINES]:
        if _style(line) != _style(run[0]) or not _goes_on(run[-1], line):
            break
        run.append(line)
    return run


def _follows(above: Line, below: Line) -> bool:
    """Whether a line stands close below another."""
    return above.column == below.column and 0 < above.baseline - below.baseline < 1.7 * max(above.size, below.size)


def _goes_on(above: Line, below: Line) -> bool:
    """Whether two lines of one style belong together: a title in the middle and a heading at the margin do not."""
    size = max(above.size, below.size)
    if not _follows(above, below) or above.baseline - below.baseline > 1.5 * size:
        return False
    middles = abs(above.left + above.right - below.left - below.right) / 2
    indented = -0.7 * size < below.left - above.left < 4 * size
    return indented or middles < size or abs(above.right - below.right) < 0.7 * size


def _title(lines: Sequence[Line]) -> str:
    title = " ".join(" ".join(line.text for line in lines).split())
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"


def _mark(lines: Sequence[Line], level: int) -> None:
    for line in lines:
        line.level = min(level, _MAX_LEVEL)
    lines[0].title = _title(lines)


def _mark_outline(pages: Sequence[Sequence[Line]], bookmarks: Sequence[Bookmark], body: Body) -> int:
    """Finds the lines that the outline names, and gives how many of its entries were found."""
    by_page: defaultdict[int, list[Bookmark]] = defaultdict(list)
    for bookmark in bookmarks:
        by_page[bookmark.page].append(bookmark)
    found = 0
    for lines in pages:
        wanted = by_page.get(lines[0].page, ()) if lines else ()
        if not wanted:
            continue
        keys = [_key(line.text) for line in lines]
        for bookmark in wanted:
            runs = list(_runs_named(lines, keys, _key(bookmark.title)))
            if runs:
                top = bookmark.top
                run = runs[0] if top is None else min(runs, key=lambda run: abs(run[0].baseline - top))
                _mark([*_above_on_page(lines, run[0], body), *run], bookmark.level)
                found += 1
    return found


def _above_on_page(lines: Sequence[Line], heading: Line, body: Body) -> Sequence[Line]:
    """What opens a page above a heading and belongs to it, such as `CHAPTER` and `ONE`."""
    above = lines[: next(index for index, line in enumerate(lines) if line is heading)]
    if len(above) >= _MAX_LINES or not all(
        len(line.text) <= _SHORT and not line.level and (line.bold or line.size > body.size) for line in above
    ):
        return ()
    return above


def _key(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _runs_named(lines: Sequence[Line], keys: Sequence[str], title: str) -> Iterator[list[Line]]:
    if not title:
        return
    for first, line in enumerate(lines):
        if line.level or not keys[first]:
            continue
        key = ""
        for last in range(first, min(first + _MAX_LINES, len(lines))):
            if last > first and not _follows(lines[last - 1], lines[last]):
                break
            key += keys[last]
            if len(key) > len(title) + 24:
                break
            if key.endswith(title) and _ORDINAL.fullmatch(key.removesuffix(title)):
                yield list(lines[first : last + 1])
                break


def _mark_by_style(pages: Sequence[Sequence[Line]], body: Body) -> None:
    runs = [run for lines in pages for run in _runs_set_apart(lines, body)]
    total = sum(len(lines) for lines in pages)
    if sum(map(len, runs)) > total * _MANY:
        runs = [run for run in runs if run[0].size > 1.15 * body.size]
    if not runs or sum(map(len, runs)) > total * _MANY:
        return
    runs = _without_bylines(runs, pages)
    styles = sorted({_style(run[0]) for run in runs}, reverse=True)
    ranks = {style: rank for rank, style in enumerate(styles, start=1)}
    numbers = [_depth(run) for run in runs]
    numbered = sum(1 for depth in numbers if depth) >= 3
    # A title above numbered headings counts as one level.
    first_numbered = min((ranks[_style(run[0])] for run, depth in zip(runs, numbers, strict=True) if depth), default=1)
    for run, depth in zip(runs, numbers, strict=True):
        rank = ranks[_style(run[0])]
        _mark(run, first_numbered - 1 + depth if numbered and depth else rank)


def _without_bylines(runs: Sequence[list[Line]], pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Headings without what stands between a title and the text of the first page: who wrote it, and when. It is set
    like nothing else, and something else that is set apart follows it, or it reads so."""
    first = next(lines for lines in pages if lines)
    own = [run for run in runs if run[0].page == first[0].page]
    if not own:
        return list(runs)
    title = max(own, key=lambda run: run[0].size)
    places = {id(line): place for place, line in enumerate(first)}
    below: list[list[Line]] = []
    last = title
    for run in own[own.index(title) + 1 :]:
        if places[id(run[0])] != places[id(last[-1])] + 1:
            break
        below.append(run)
        last = run
    counts = Counter(_style(run[0]) for run in runs)
    left_out = {
        id(run)
        for run in below
        if counts[_style(run[0])] == 1
        and run[0].size < title[0].size
        and (
            _DATE.match(_title(run))
            or (not (_depth(run) or _PART.match(run[0].text)) and (run is not below[-1] or _BYLINE.match(_title(run))))
        )
    }
    return [run for run in runs if id(run) not in left_out]


def _style(line: Line) -> tuple[float, bool]:
    return round(line.size * 2) / 2, line.bold


def _depth(run: Sequence[Line]) -> int:
    match = _NUMBERED.match(run[0].text)
    return (match.group(1) or match.group(2)).count(".") + 1 if match else 0


def _runs_set_apart(lines: Sequence[Line], body: Body) -> Iterator[list[Line]]:
    index = 0
    while index < len(lines):
        line = lines[index]
        if not _is_set_apart(line, body):
            index += 1
            continue
        run = _run(lines, index)
        above = lines[index - 1] if index else None
        index += len(run)
        below = lines[index] if index < len(lines) else None
        if _reads_as_heading(run) and not _continues(above, run[0]) and not _continues(run[-1], below):
            yield run


def _is_set_apart(line: Line, body: Body) -> bool:
    if not line.upright or line.fixed or line.level:
        return False
    return line.size > 1.08 * body.size or (line.bold and not body.bold and line.size > 0.92 * body.size)


def _continues(above: Line | None, below: Line | None) -> bool:
    """Whether two lines of one style follow each other so closely that they are lines of one paragraph."""
    return above is not None and below is not None and _style(above) == _style(below) and _goes_on(above, below)


def _reads_as_heading(run: Sequence[Line]) -> bool:
    title = _title(run)
    if len(title) >= MAX_TITLE or sum(map(str.isalpha, title)) < 2 or _is_row(run):
        return False
    return not title.endswith(_SENTENCE_END) or (title.endswith(":") and len(run) == 1)


def _is_row(run: Sequence[Line]) -> bool:
    """Whether it is a row of cells, such as an entry of a table of contents with its page, also one of two lines."""
    return any("\t" in (line.text if place else _NUMBERED.sub("", line.text, 1)) for place, line in enumerate(run))
