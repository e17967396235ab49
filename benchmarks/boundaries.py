"""How well chunks respect what a reader sees as one: fewer is better, everywhere.

A unit that is longer than the size is not counted: nobody could keep it whole. Overlap counts for the splitter: a unit
is whole where any chunk holds all of it.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.corpus import CorpusFile
from benchmarks.splitters import Cut
from benchmarks.units import Row, Span, Units

_BLANK = re.compile(r"\s+")


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of how many."""

    count: int
    of: int

    def __add__(self, other: "Share") -> "Share":
        return Share(count=self.count + other.count, of=self.of + other.of)

    def as_json(self) -> dict[str, float | int | None]:
        """`share` is None where there was nothing to count."""
        return {"share": self.count / self.of if self.of else None, "count": self.count, "of": self.of}


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A chunk where it stands in the text."""

    start: int
    end: int
    context: str = ""


def place(text: str, cuts: Sequence[Cut]) -> tuple[list[Placed], str]:
    """Where chunks stand, and whether the splitter itself says so: "exact", "wrong" or "none".

    Exact offsets are those by which `text[start:end]` is the text of the chunk, for every chunk. Otherwise a chunk is
    looked for in the text after the start of the one before it, white space aside; what is not found stands nowhere.
    """
    if all(cut.start is not None and cut.end is not None and text[cut.start : cut.end] == cut.text for cut in cuts):
        return [_placed(cut.start or 0, cut.end or 0, cut) for cut in cuts if cut.text], "exact"
    verdict = "none" if all(cut.start is None for cut in cuts) else "wrong"
    found = _Search(text)
    return [_placed(*span, cut) for cut in cuts if (span := found.next(cut.text)) is not None], verdict


def _placed(start: int, end: int, cut: Cut) -> Placed:
    return Placed(start=start, end=end, context=cut.context)


class _Search:
    """Finds chunks in a text one after the other, white space aside."""

    def __init__(self, text: str) -> None:
        self._places = [place for place, character in enumerate(text) if not character.isspace()]
        self._bare = _BLANK.sub("", text)
        self._from = 0

    def next(self, chunk: str) -> tuple[int, int] | None:
        bare = _BLANK.sub("", chunk)
        start = self._bare.find(bare, self._from) if bare else -1
        if start < 0:
            return None
        self._from = start + 1
        return self._places[start], self._places[start + len(bare) - 1] + 1


class _Chunks:
    """The chunks of a file, to be asked what holds a stretch."""

    def __init__(self, chunks: Sequence[Placed]) -> None:
        self._chunks = sorted(chunks, key=lambda chunk: chunk.start)
        self._starts = [chunk.start for chunk in self._chunks]
        self._reach: list[int] = []
        """The furthest end of the chunks up to each."""
        for chunk in self._chunks:
            self._reach.append(max(chunk.end, self._reach[-1] if self._reach else 0))

    def holding(self, start: int, end: int) -> Iterator[Placed]:
        """The chunks that hold all of a stretch."""
        index = bisect_right(self._starts, start) - 1
        while index >= 0 and self._reach[index] >= end:
            if self._chunks[index].end >= end:
                yield self._chunks[index]
            index -= 1


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """The quality of the cuts of one splitter, over any number of files."""

    sentences_cut: Share = Share(count=0, of=0)
    """English sentences that no chunk holds whole."""
    functions_cut: Share = Share(count=0, of=0)
    """Functions and methods, with their decorators, that no chunk holds whole."""
    rows_orphaned: Share = Share(count=0, of=0)
    """Rows of Markdown tables that no chunk holds whole along with the table's header, be it in its text or every cell
    of it in its context."""
    headings_separated: Share = Share(count=0, of=0)
    """Headings of Markdown that no chunk holds along with the first characters of what follows them. A heading in the
    context does not count."""
    text_lost: Share = Share(count=0, of=0)
    """Characters other than white space that are in no chunk."""
    oversize: Share = Share(count=0, of=0)
    """Chunks that are longer than the size."""
    longest: int = 0
    """Characters of the longest chunk."""

    def __add__(self, other: "Boundaries") -> "Boundaries":
        return Boundaries(
            sentences_cut=self.sentences_cut + other.sentences_cut,
            functions_cut=self.functions_cut + other.functions_cut,
            rows_orphaned=self.rows_orphaned + other.rows_orphaned,
            headings_separated=self.headings_separated + other.headings_separated,
            text_lost=self.text_lost + other.text_lost,
            oversize=self.oversize + other.oversize,
            longest=max(self.longest, other.longest),
        )

    def as_json(self) -> dict[str, object]:
        """Each share with its counts."""
        return {
            "sentences_cut": self.sentences_cut.as_json(),
            "functions_cut": self.functions_cut.as_json(),
            "rows_orphaned": self.rows_orphaned.as_json(),
            "headings_separated": self.headings_separated.as_json(),
            "text_lost": self.text_lost.as_json(),
            "oversize": self.oversize.as_json(),
            "chunks": self.oversize.of,
            "longest": self.longest,
        }


def judge(file: CorpusFile, units: Units, placed: Sequence[Placed], *, size: int) -> Boundaries:
    """The quality of the chunks of one file."""
    chunks = _Chunks(placed)

    def cut(spans: Sequence[Span]) -> Share:
        return _share(spans, size, lambda span: any(chunks.holding(span.start, span.end)))

    return Boundaries(
        sentences_cut=cut(units.sentences),
        functions_cut=cut(units.functions),
        headings_separated=cut(units.headings),
        rows_orphaned=_share_rows(units.rows, size, chunks),
        text_lost=_lost(file.text, placed),
        oversize=Share(count=sum(chunk.end - chunk.start > size for chunk in placed), of=len(placed)),
        longest=max((chunk.end - chunk.start for chunk in placed), default=0),
    )


def _share(spans: Sequence[Span], size: int, whole: Callable[[Span], bool]) -> Share:
    fitting = [span for span in spans if span.end - span.start <= size]
    return Share(count=sum(not whole(span) for span in fitting), of=len(fitting))


def _share_rows(rows: Sequence[Row], size: int, chunks: _Chunks) -> Share:
    fitting = [row for row in rows if row.end - row.start <= size]
    orphaned = sum(not any(_has_header(chunk, row) for chunk in chunks.holding(row.start, row.end)) for row in fitting)
    return Share(count=orphaned, of=len(fitting))


def _has_header(chunk: Placed, row: Row) -> bool:
    if chunk.start <= row.header_start and chunk.end >= row.header_end:
        return True
    context = " ".join(chunk.context.split()).casefold()
    return bool(context) and all(cell in context for cell in row.header_cells)


def _lost(text: str, placed: Sequence[Placed]) -> Share:
    lost, position = 0, 0
    for chunk in sorted(placed, key=lambda chunk: chunk.start):
        if chunk.start > position:
            lost += _visible(text, position, chunk.start)
        position = max(position, chunk.end)
    return Share(count=lost + _visible(text, position, len(text)), of=_visible(text, 0, len(text)))


def _visible(text: str, start: int, end: int) -> int:
    return sum(map(len, text[start:end].split()))
