"""Lines that stand on page after page and belong to none: running heads and feet, page numbers."""

import re
from collections import Counter
from collections.abc import Sequence

from kbmesh_chunker.documents.pdf_layout import Line

_MARGIN = 0.13
"""How much of the page's height, at the top and at the bottom, such lines may stand in."""
_LINES = 2
"""So many lines of each margin are looked at, from outside in."""
_PAGES = 3
"""A line is a running one if so many pages have it; both pages of a document that has but two."""
_STEP = 2
"""And from one of them to the next are so many pages, as left and right pages may differ."""
_LINES_WITH_NUMBERS = 5
_ALONE = re.compile(r"[-–—\[( ]*(\d{1,5})()[-–—\]) ]*")
_BESIDE = re.compile(r"^(\d{1,5})[ \t]|[ \t](\d{1,5})$")
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")


def running_lines(pages: Sequence[Sequence[Line]], heights: Sequence[float], body_size: float) -> set[int]:
    """The `id` of each line that belongs to the page, not to the text. Headings and large lines do not."""
    found: set[int] = set()
    for head in (True, False):
        margins = [_margin(lines, height, head) for lines, height in zip(pages, heights, strict=True)]
        for depth in range(_LINES):
            # A line counts only where all that is further out is a running line.
            row = [margin[depth] if len(margin) > depth else None for margin in margins]
            # What stands further in is more often the head of a table that goes on for some pages.
            needed = min(_PAGES, len(pages)) if depth == 0 else max(_PAGES, len(pages) // 5)
            inner = _repeated(row, body_size, needed)
            found |= inner
            margins = [
                margin if line is not None and id(line) in inner else ()
                for margin, line in zip(margins, row, strict=True)
            ]
    return found | _page_numbers(pages, heights)


def _page_numbers(pages: Sequence[Sequence[Line]], heights: Sequence[float]) -> set[int]:
    """Lines at the edge of a page with a number that counts as the pages do, alone or beside a title that changes."""
    numbered: list[tuple[int, bool, Line]] = []
    for page, (lines, height) in enumerate(zip(pages, heights, strict=True)):
        for head in (True, False):
            for place, line in enumerate(_margin(lines, height, head, _LINES_WITH_NUMBERS)):
                alone = _ALONE.fullmatch(line.text)
                number = alone or (_BESIDE.search(line.text) if place == 0 and not line.level else None)
                if number:
                    numbered.append((int(number.group(1) or number.group(2)) - page, alone is not None, line))
    offsets = Counter(offset for offset, _, _ in numbered)
    heights_of = Counter((offset, round(line.baseline / 4)) for offset, _, line in numbered)
    return {
        id(line)
        for offset, alone, line in numbered
        if offsets[offset] >= _PAGES and (alone or heights_of[offset, round(line.baseline / 4)] >= _PAGES)
    }


def _margin(lines: Sequence[Line], height: float, head: bool, most: int = _LINES) -> Sequence[Line]:
    """The lines in a margin, from outside in, `most` of them."""
    edge = height * (1 - _MARGIN if head else _MARGIN)
    within = [line for line in lines if line.upright and (line.baseline > edge) == head]
    return sorted(within, key=lambda line: -line.baseline if head else line.baseline)[:most]


def _repeated(row: Sequence[Line | None], body_size: float, needed: int) -> set[int]:
    """Which of these lines, at most one of each page, come back on neighbouring pages at the same height."""
    last: dict[tuple[str, int], list[tuple[int, Line]]] = {}
    found: set[int] = set()
    for page, line in enumerate(row):
        if line is None or line.level or line.size > 1.25 * body_size:
            continue
        height = round(line.baseline / 4)
        pattern = pattern_of(line.text)
        key = next(
            (key for at in (height, height - 1, height + 1) if (key := (pattern, at)) in last), (pattern, height)
        )
        run = last.setdefault(key, [])
        if run and page - run[-1][0] > _STEP:
            run.clear()
        run.append((page, line))
        if len(run) >= needed >= 2:
            found.update(id(one) for _, one in run)
            del run[:-needed]
    return found


def pattern_of(text: str) -> str:
    """A line without what changes from page to page."""
    return "".join(_NUMBER.sub("#", text.casefold()[:200]).split())
