"""The sentences of a document, and what stands in their place: a table, a block of code, a heading with its text."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import next_start, substance_end, trim_end
from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.context import SEPARATOR, Context
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.documents.headings import blocks_under_headings
from kbmesh_chunker.documents.markdown import Block, BlockKind, parse
from kbmesh_chunker.documents.source import Grammar, HeadingLayout, MailLayout, SlackLayout
from kbmesh_chunker.sentences import sentence_ends
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.semantic import paragraph_breaks

_NEXT_BLOCK = 4
_LEADS_ON = (":", "：")
_SOLID = {BlockKind.TABLE, BlockKind.CODE}
_ITEM = re.compile(r"^[ \t]*(?:[-*+•·]|\d{1,4}[.)])[ \t]", re.MULTILINE)
_MOST_CONTEXTS = 4_096
_MOST_LOOKED_AT = 1_000
"""Headings before a place among which those above it are looked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A stretch that is not to be cut: a sentence or what stands in its place, with the white space around it."""

    start: int
    """Where the one before it ends, and where its own text or its indentation begins."""
    end: int
    """Where the next one starts."""


@dataclass(kw_only=True)
class Structure:
    """Where a document may be cut, and what stands above its places."""

    breaks: Breaks
    finer: Breaks
    """The same, and the lines within tables and code."""
    items: Sequence[int] = ()
    """Where further parts begin, as items of a list or messages, in order."""
    solids: Sequence[tuple[int, int]] = ()
    """Tables and code, in which no sentence ends."""
    headings: Sequence[Block] = ()
    """In order."""
    _work: Work
    _paths: dict[tuple[int, int], tuple[tuple[str, ...], Context]] = field(default_factory=dict)

    def next_break(self, lowest: int, highest: int) -> int | None:
        """The first place within [lowest, highest] where something new begins."""
        item = bisect_left(self.items, lowest)
        if item < len(self.items) and self.items[item] <= highest:
            highest = self.items[item]
            return self.breaks.first(lowest, highest) or highest
        return self.breaks.first(lowest, highest)

    def path(self, start: int) -> tuple[str, ...]:
        """The headings above a piece that starts at `start`, outermost first."""
        return self._above(start)[0]

    def context(self, start: int) -> Context:
        """The context of a piece that starts at `start`."""
        return self._above(start)[1]

    def context_tokens(self, start: int) -> int:
        """About how many tokens it has."""
        return self._above(start)[1].tokens

    def _above(self, start: int) -> tuple[tuple[str, ...], Context]:
        count = bisect_right(self.headings, start, key=lambda heading: heading.start)
        # A heading with which the piece starts is in its text already.
        repeated = count - 1 if count and self.headings[count - 1].start == start else count
        key = (count, repeated)
        if key not in self._paths:
            if len(self._paths) == _MOST_CONTEXTS:
                self._paths.clear()
            path: list[int] = []
            level = 7
            for place in range(count - 1, max(-1, count - _MOST_LOOKED_AT), -1):
                if self.headings[place].level < level:
                    path.insert(0, place)
                    level = self.headings[place].level
                if level == 1:
                    break
            titles = tuple(self.headings[place].title for place in path if self.headings[place].title)
            above = [self.headings[place].title for place in path if place < repeated]
            self._paths[key] = titles, self._work.context(SEPARATOR.join(title for title in above if title))
        return self._paths[key]


def read_structure(work: Work) -> Structure:
    """The structure of a document, by its grammar."""
    document = work.document
    text = document.text
    if isinstance(document.layout, HeadingLayout):
        blocks = list(blocks_under_headings(text, document.layout))
        return _of_blocks(work, blocks)
    if document.grammar is Grammar.MARKDOWN:
        front = [Block(kind=BlockKind.OTHER, start=0, end=document.body_start)] if document.body_start else []
        blocks = front
        for block in parse(text, document.body_start):
            work.checkpoint()
            blocks.append(block)
        return _of_blocks(work, blocks)
    own = [found.start() for found in _ITEM.finditer(text)]
    if isinstance(document.layout, MailLayout):
        own.extend(section.start for section in document.layout.sections)
    if isinstance(document.layout, SlackLayout):
        own.extend(message.start for message in document.layout.messages)
    breaks = paragraph_breaks(text, 1)
    items = sorted(position for position in own if not breaks.sealed(position))
    return Structure(breaks=breaks, finer=breaks, items=items, _work=work)


def _of_blocks(work: Work, blocks: Sequence[Block]) -> Structure:
    text = work.document.text
    breaks: list[tuple[int, int]] = []
    seals: list[tuple[int, int]] = []
    solids: list[tuple[int, int]] = []
    inner: list[tuple[int, int]] = []
    for index, block in enumerate(blocks):
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        breaks.append((block.start, PARTING if block.kind is BlockKind.HEADING else _NEXT_BLOCK))
        if block.kind in _SOLID:
            solids.append((block.start, block.end))
            inner.extend(block.inner)
            seals.append((block.start, max(block.start, block.header_end)))
        elif block.kind in {BlockKind.LIST, BlockKind.QUOTE}:
            breaks.extend(block.inner)
        if following is None:
            continue
        if block.kind is BlockKind.HEADING:
            seals.append((block.start, following.start))
        elif block.kind is BlockKind.PARAGRAPH and text[max(block.start, block.end - 16) : block.end].rstrip().endswith(
            _LEADS_ON
        ):
            seals.append((block.end - 1, following.start))
    headings = [block for block in blocks if block.kind is BlockKind.HEADING]
    finer = Breaks([*breaks, *inner], seals, solids)
    return Structure(breaks=Breaks(breaks, seals, solids), finer=finer, solids=solids, headings=headings, _work=work)


def sentence_units(work: Work, structure: Structure, start: int = 0, end: int | None = None) -> list[Unit]:
    """The units of text[start:end], which follow each other without a gap. Each has more than punctuation, where there
    is more than that, and is within the size and the model's limit."""
    text = work.document.text
    end = len(text) if end is None else end
    start = next_start(text, start, end)
    end = trim_end(text, start, end)
    cutter = Cutter(
        text=text,
        limits=Limits(size=work.limits.size, overlap=0, minimum=0),
        measure=work.measure,
        breaks=structure.finer,
        cap=work.cap,
        checkpoint=work.checkpoint,
    )
    starts: list[int] = []
    for first, last in _with_substance(work, structure, _atoms(text, structure, start, end)):
        work.checkpoint()
        if fits(work, structure, first, last):
            starts.append(first)
        else:
            starts.extend(piece for piece, _ in cutter.cut(first, last, structure.context_tokens))
    return [Unit(start=first, end=last) for first, last in zip(starts, [*starts[1:], end], strict=True)]


def fits(work: Work, structure: Structure, start: int, end: int, *, stretch: int = 0) -> bool:
    """Whether text[start:end] is within the size and `stretch` more, and within the model's limit with its context."""
    end = trim_end(work.document.text, start, end)
    if work.measure.length(start, end) > work.limits.size + stretch:
        return False
    cap = work.cap
    return cap is None or cap.measure.length(start, end) <= max(1, cap.tokens - structure.context_tokens(start))


def _atoms(text: str, structure: Structure, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Stretches between places where a cut is allowed."""
    first = start
    for place in _places(text, structure, start, end):
        position = next_start(text, place, end)
        if first < position < end:
            yield first, position
            first = position
    if first < end:
        yield first, end


def _places(text: str, structure: Structure, start: int, end: int) -> Iterator[int]:
    """Starts of blocks and ends of sentences, ascending; the same one may come twice."""
    breaks, solids = structure.breaks, structure.solids
    position = start
    while position < end:
        following = structure.next_break(position + 1, end - 1)
        stop = end if following is None else following
        solid = bisect_right(solids, position, key=lambda stretch: stretch[0]) - 1
        inside = solid >= 0 and position < solids[solid][1]
        if not inside:
            bounds = (solids[solid + 1][0] if solid + 1 < len(solids) else end, stop)
            said, last = False, position
            for sentence in sentence_ends(text, position, min(bounds)):
                # Marks at the head of a paragraph, such as "!!! note", belong to what follows.
                said = said or substance_end(text, last, sentence) is not None
                last = sentence
                free = said and sentence < stop and not breaks.sealed(sentence)
                if free and graphemes.is_boundary(text, sentence, position):
                    yield sentence
        if following is not None:
            yield following
        position = stop


def _with_substance(work: Work, structure: Structure, atoms: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The atoms, those of punctuation alone joined to the one before, and at the start to the one after."""
    text = work.document.text
    held: tuple[int, int] | None = None
    known = False
    for start, end in atoms:
        substance = substance_end(text, start, end) is not None
        if held is not None and not (substance and known) and fits(work, structure, held[0], end):
            held, known = (held[0], end), known or substance
            continue
        if held is not None:
            yield held
        held, known = (start, end), substance
    if held is not None:
        yield held
