"""DOCUMENT: sections under their headings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.blank import GULF, next_start, skip_blank, substance_end, trim_end
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.documents.block import Block, BlockKind
from kbmesh_chunker.documents.headings import blocks_under_headings
from kbmesh_chunker.documents.markdown import parse
from kbmesh_chunker.documents.source import HeadingLayout
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work
from kbmesh_chunker.strategies.section_context import SectionContexts
from kbmesh_chunker.strategies.section_layout import PieceType, SectionLayout, breaks_of, type_of

_CHECKED = 64
"""Blocks between two looks at whether the work is still wanted."""


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


@dataclass(slots=True)
class _Section:
    """Nobody changes one; a frozen class would take thrice as long to fill."""

    start: int
    end: int
    headings: tuple[Block, ...]
    """The headings above and at the head of it, outermost first."""
    blocks: list[Block]
    """What it is made of, its own headings included."""


def cut_document(work: Work) -> list[Piece]:
    """All of the text, section by section. No piece holds text of two sections, however short they are: a chunk has
    one heading path. Headings without a text of their own go with the section that follows."""
    text = work.document.text
    contexts = SectionContexts(work)
    # Most sections are a piece as they are: where the others may be cut is looked for in those alone.
    made: list[Piece | SectionLayout] = []
    for section in _joined(work, _sections(work, _blocks(work))):
        span = _whole(work, section, contexts)
        if span is None:
            made.append(SectionLayout(text, section.start, section.end, section.headings, section.blocks))
        elif span[0] < span[1]:
            context = contexts.of(section.headings, span[0])
            made.append(_piece(*span, type_of(section.blocks), context.text, contexts.path(section.headings)))
    layouts = [long for long in made if isinstance(long, SectionLayout)]
    cutter = work.cutter(breaks_of(text, layouts)) if layouts else work.cutter()
    pieces: list[Piece] = []
    for whole in made:
        if isinstance(whole, Piece):
            pieces.append(whole)
            continue
        path = contexts.path(whole.headings)
        for start, end in cutter.cut(whole.start, whole.end, partial(contexts.tokens_within, whole)):
            context = contexts.within(whole, start)
            pieces.append(_piece(start, end, whole.type_of(start, end), context.text, path))
    return pieces


def _piece(start: int, end: int, kind: PieceType, context: str, path: tuple[str, ...]) -> Piece:
    metadata = {"code_language": kind.language} if kind.language else {}
    return Piece(start=start, end=end, type=kind.name, context=context, heading_path=path, metadata=metadata)


def _whole(work: Work, section: _Section, contexts: SectionContexts) -> tuple[int, int] | None:
    """The section without the white space around it, where that is one window; None where it has to be cut."""
    text, start, end = work.document.text, section.start, section.end
    if end - start >= GULF:
        return None
    end = trim_end(text, start, end)
    start = next_start(text, start, end)
    if work.measure.furthest(start, work.limits.size) < end:
        return None
    if work.cap is not None:
        room = max(1, work.cap.tokens - contexts.of(section.headings, start).tokens)
        if work.cap.measure.furthest(start, room) < end:
            return None
    return start, end


def _blocks(work: Work) -> Iterator[Block]:
    document = work.document
    if isinstance(document.layout, HeadingLayout):
        yield from blocks_under_headings(document.text, document.layout)
        return
    if document.body_start:
        yield Block(BlockKind.OTHER, 0, document.body_start)
    yield from parse(document.text, document.body_start)


def _sections(work: Work, blocks: Iterable[Block]) -> Iterator[_Section]:
    max_level = int(work.options["max_heading_level"])
    most = _most(work)
    heading = BlockKind.HEADING
    start = 0
    above: Block | None = None
    path: tuple[Block, ...] = ()
    inside: list[Block] = []
    for count, block in enumerate(blocks):
        if not count % _CHECKED:
            work.checkpoint()
        if block.kind is not heading or block.level > max_level:
            inside.append(block)
            continue
        begins, level = block.start, block.level
        if above is not None and above.end == begins and work.measure.length(start, begins) <= most:
            # Right below another heading: that one has no text, as most that have none.
            inside.append(block)
        else:
            if begins > start:
                yield _Section(start, begins, path, inside)
            start, inside = begins, [block]
        if above is not None and above.level >= level:
            path = (*[outer for outer in path if outer.level < level], block)
        else:
            path = (*path, block)
        above = block
    yield _Section(start, len(work.document.text), path, inside)


def _most(work: Work) -> int:
    """How long headings that nothing follows may be together to go with the next section."""
    return max(1, work.limits.size // 2)


def _joined(work: Work, sections: Iterator[_Section]) -> Iterator[_Section]:
    """The sections, those without a text joined to the next, and at the end to the last that has one."""
    most = _most(work)
    held: _Section | None = None
    start = -1
    blocks: list[Block] = []
    for section in sections:
        begins = section.start if start < 0 else start
        if _is_bare(work, section) and work.measure.length(begins, section.end) <= most:
            start = begins
            blocks.extend(section.blocks)
            continue
        if held is not None:
            yield held
        held = section
        if start >= 0:
            section.start, section.blocks = begins, blocks + section.blocks
            start, blocks = -1, []
    if start >= 0:
        # What is left are headings that nothing follows.
        end = len(work.document.text)
        if held is None:
            held = _Section(start, end, (), blocks)
        else:
            held.end = end
            held.blocks = held.blocks + blocks
    if held is not None:
        yield held


def _is_bare(work: Work, section: _Section) -> bool:
    """Whether a section has no text below its heading."""
    text, end = work.document.text, section.end
    if section.headings:
        own = section.headings[-1]
        start, body, alone = own.start, own.end, section.blocks[-1] is own
        titled = own.title[:1].isalnum()
    else:
        start, body, alone = section.start, work.document.body_start, len(section.blocks) < 2
        titled = False
    # What has no block, as the definition of a link, is a text too.
    if alone and (body >= end or skip_blank(text, body, end) >= end):
        return True
    # What is punctuation alone, as a line above the first heading, is no text.
    return not titled and substance_end(text, start, end) is None
