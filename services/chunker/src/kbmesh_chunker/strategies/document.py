"""DOCUMENT: sections under their headings."""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.blank import skip_blank, substance_end
from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.context import BUDGET_SHARE, TABLE_BUDGET_SHARE, fit_lines, write_context
from kbmesh_chunker.documents.headings import blocks_under_headings
from kbmesh_chunker.documents.markdown import Block, BlockKind, parse
from kbmesh_chunker.documents.source import HeadingLayout
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work

_NEXT_BLOCK = 4
_LEADS_ON = (":", "：")
_LED_TO = {BlockKind.LIST, BlockKind.CODE, BlockKind.TABLE, BlockKind.QUOTE}
_PADDING = re.compile(r"[ \t]{2,}")
_DASHES = re.compile(r"-{4,}")


class Document:
    """Sections under their headings, by CommonMark."""

    strategy = Strategy.DOCUMENT
    description = "Sections under their headings; tables repeat their header, code and lists are cut between lines."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = ANY_GRAMMAR

    def options(self, given: Options, path: str) -> Options:
        level = given.get("max_heading_level", 6)
        if not isinstance(level, int) or not 1 <= level <= 6:
            raise InvalidField(f"{path}.max_heading_level", f"must be 1 to 6, is {level}")
        return {"max_heading_level": level}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_document, work)


def cut_document(work: Work) -> list[Piece]:
    """All of the text, section by section. No piece holds text of two sections, however short they are: a chunk has
    one heading path. Headings without a text of their own go with the section that follows."""
    blocks = _blocks(work)
    max_level = int(work.options["max_heading_level"])
    cutter = work.cutter(_breaks(work.document.text, blocks, max_level))
    layout = _Layout(blocks)
    pieces: list[Piece] = []
    for section in _joined(work, _sections(work, blocks, max_level)):
        contexts = _Contexts(work, section, layout)
        for start, end in cutter.cut(section.start, section.end, contexts.tokens):
            kind, language = layout.kind(start, end)
            pieces.append(
                Piece(
                    start=start,
                    end=end,
                    type=kind,
                    context=contexts.text(start),
                    heading_path=tuple(heading.title for heading in section.headings),
                    metadata={"code_language": language} if language else {},
                )
            )
    return pieces


def _blocks(work: Work) -> list[Block]:
    document = work.document
    if isinstance(document.layout, HeadingLayout):
        return list(blocks_under_headings(document.text, document.layout))
    blocks = []
    if document.body_start:
        blocks.append(Block(kind=BlockKind.OTHER, start=0, end=document.body_start))
    for block in parse(document.text, document.body_start):
        work.checkpoint()
        blocks.append(block)
    return blocks


@dataclass(frozen=True, kw_only=True)
class _Section:
    start: int
    end: int
    headings: tuple[Block, ...] = ()
    """The headings above and at the head of it, outermost first."""
    body: int = field(default=0)
    """Where its text begins; its end where it has none."""


def _sections(work: Work, blocks: Sequence[Block], max_level: int) -> Iterator[_Section]:
    text = work.document.text
    start = 0
    body = skip_blank(text, work.document.body_start, len(text))
    path: tuple[Block, ...] = ()
    for block in blocks:
        if block.kind is not BlockKind.HEADING or block.level > max_level:
            continue
        if block.start > start:
            yield _Section(start=start, end=block.start, headings=path, body=min(body, block.start))
        path = (*(above for above in path if above.level < block.level), block)
        start, body = block.start, skip_blank(text, block.end, len(text))
    yield _Section(start=start, end=len(text), headings=path, body=min(body, len(text)))


def _joined(work: Work, sections: Iterator[_Section]) -> Iterator[_Section]:
    """The sections, those without a text joined to the next, and at the end to the last that has one."""
    most = max(1, work.limits.size // 2)
    held: _Section | None = None
    start: int | None = None
    for section in sections:
        begins = section.start if start is None else start
        # What is punctuation alone, as a line above the first heading, is no text.
        empty = section.body >= section.end or substance_end(work.document.text, section.start, section.end) is None
        if empty and work.measure.length(begins, section.end) <= most:
            start = begins
            continue
        if held is not None:
            yield held
        held, start = replace(section, start=begins), None
    if start is not None:
        # What is left are headings that nothing follows.
        end = len(work.document.text)
        held = replace(held, end=end) if held is not None else _Section(start=start, end=end, body=end)
    if held is not None:
        yield held


def _breaks(text: str, blocks: Sequence[Block], max_level: int) -> Breaks:
    breaks: list[tuple[int, int]] = []
    seals: list[tuple[int, int]] = []
    solids: list[tuple[int, int]] = []
    for index, block in enumerate(blocks):
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        breaks.append((block.start, PARTING if block.kind is BlockKind.HEADING else _NEXT_BLOCK))
        breaks.extend(block.inner)
        match block.kind:
            case BlockKind.HEADING if following is not None:
                seals.append((block.start, following.start))
            case BlockKind.TABLE:
                seals.append((block.start, block.header_end))
                solids.append((block.start, block.end))
            case BlockKind.CODE if block.inner:
                # The fences stay with the lines beside them.
                seals.append((block.start, block.inner[0][0]))
                closing = block.inner[-1][0]
                seals.append((block.inner[-2][0] if len(block.inner) > 1 else block.start, closing))
                solids.append((block.start, block.end))
            case BlockKind.PARAGRAPH if following is not None and following.kind in _LED_TO:
                last = text[max(block.start, block.end - 16) : block.end].rstrip()
                if last.endswith(_LEADS_ON):
                    seals.append((block.end - 1, following.start))
    return Breaks(breaks, seals, solids)


class _Layout:
    """Which blocks stand where."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = [block for block in blocks if block.kind is not BlockKind.HEADING]
        self._starts = array("Q", (block.start for block in self._blocks))

    def kind(self, start: int, end: int) -> tuple[str, str]:
        """The type of a piece, and the language where it is code."""
        first = max(0, bisect_right(self._starts, start) - 1)
        kinds: set[BlockKind] = set()
        language = ""
        for block in self._blocks[first : bisect_left(self._starts, end)]:
            if block.end > start:
                kinds.add(block.kind)
                language = language or block.language
        if kinds == {BlockKind.TABLE}:
            return "table", ""
        if kinds == {BlockKind.CODE}:
            return "code_block", language
        return "section", ""

    def table_at(self, position: int) -> Block | None:
        """The table of which `position` is in a row below the header."""
        index = bisect_right(self._starts, position) - 1
        if index < 0:
            return None
        block = self._blocks[index]
        if block.kind is BlockKind.TABLE and block.header_end <= position < block.end:
            return block
        return None


class _Contexts:
    """The contexts of one section's pieces."""

    def __init__(self, work: Work, section: _Section, layout: _Layout) -> None:
        self._work = work
        self._section = section
        self._layout = layout
        self._known: dict[tuple[int, int], tuple[str, int]] = {}

    def text(self, start: int) -> str:
        """The context of a piece that starts at `start`."""
        return self._context(start)[0]

    def tokens(self, start: int) -> int:
        """About how many tokens it has."""
        return self._context(start)[1]

    def _context(self, start: int) -> tuple[str, int]:
        # A heading inside the piece needs no repeating.
        headings = tuple(heading for heading in self._section.headings if heading.start < start)
        table = self._layout.table_at(start)
        key = (len(headings), table.start if table else -1)
        if key not in self._known:
            self._known[key] = self._write(headings, table)
        return self._known[key]

    def _write(self, headings: Sequence[Block], table: Block | None) -> tuple[str, int]:
        work = self._work
        rows = ""
        if table is not None:
            rows = work.document.text[table.start : table.header_end].strip("\r\n").replace("\r\n", "\n")
            rows = _DASHES.sub("---", _PADDING.sub(" ", rows))
        titles = [heading.title for heading in headings]
        frame = fit_lines(work.document.context, work.room, share=BUDGET_SHARE / 2)
        full = write_context(titles, rows, len(rows) * 2 + sum(len(title) + 3 for title in titles))
        tokens = 0
        if work.tokens is not None:
            blocks = [(heading.start, heading.end) for heading in headings]
            if table is not None:
                blocks.append((table.start, table.header_end))
            tokens = sum(work.tokens.length(start, end) for start, end in blocks) + len(blocks)
        context = full
        if self._exceeds(full, tokens, TABLE_BUDGET_SHARE if rows else BUDGET_SHARE):
            context = write_context(titles, rows, self._budget(full, tokens))
        tokens = -(-tokens * len(context) // max(1, len(full)))
        return "\n".join(part for part in (frame.text, context) if part), frame.tokens + tokens

    def _exceeds(self, context: str, tokens: int, share: float) -> bool:
        """Whether a context takes more than its share of a chunk, in characters or in tokens."""
        room = self._work.room
        return len(context) > room.characters * share or tokens > room.tokens * share

    def _budget(self, context: str, tokens: int) -> int:
        """To how many characters a context must be trimmed."""
        room = self._work.room
        budget = min(float(len(context)), room.characters * BUDGET_SHARE)
        if tokens:
            budget = min(budget, len(context) * room.tokens * BUDGET_SHARE / tokens)
        return int(budget)
