"""DOCUMENT: sections under their headings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
from kbmesh_chunker.strategies.section_layout import SectionLayout, breaks_of, type_of


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


@dataclass(kw_only=True, slots=True)
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
    sections = list(_joined(work, _sections(work, _blocks(work))))
    contexts = SectionContexts(work)
    whole = [_whole(work, section, contexts) for section in sections]
    # Most sections are a piece as they are: where the others may be cut is looked for in those alone.
    layouts = [
        SectionLayout(text, section.blocks, section.end)
        for section, span in zip(sections, whole, strict=True)
        if span is None
    ]
    cutter = work.cutter(breaks_of(text, layouts)) if layouts else None
    following = iter(layouts)
    pieces: list[Piece] = []
    for section, span in zip(sections, whole, strict=True):
        path = tuple([heading.title for heading in section.headings])
        if span is not None:
            start, end = span
            if start < end:
                kind, language = type_of(section.blocks)
                context = contexts.of(section.headings, start)
                pieces.append(_piece(start, end, kind, context.text, path, language))
        elif cutter is not None:
            layout = next(following)
            within = contexts.within(section.headings, layout)
            for start, end in cutter.cut(section.start, section.end, within.tokens):
                kind, language = layout.type_of(start, end)
                pieces.append(_piece(start, end, kind, within.text(start), path, language))
    return pieces


def _piece(start: int, end: int, kind: str, context: str, path: tuple[str, ...], language: str) -> Piece:
    metadata = {"code_language": language} if language else {}
    return Piece(start=start, end=end, type=kind, context=context, heading_path=path, metadata=metadata)


def _whole(work: Work, section: _Section, contexts: SectionContexts) -> tuple[int, int] | None:
    """The section without the white space around it, where that is one window; None where it has to be cut."""
    work.checkpoint()
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
    heading = BlockKind.HEADING
    start = 0
    path: tuple[Block, ...] = ()
    inside: list[Block] = []
    for block in blocks:
        if block.kind is not heading or block.level > max_level:
            inside.append(block)
            if len(inside) % 256 == 0:
                work.checkpoint()
            continue
        if block.start > start:
            work.checkpoint()
            yield _Section(start=start, end=block.start, headings=path, blocks=inside)
        level = block.level
        path = (*[above for above in path if above.level < level], block)
        start, inside = block.start, [block]
    yield _Section(start=start, end=len(work.document.text), headings=path, blocks=inside)


def _joined(work: Work, sections: Iterator[_Section]) -> Iterator[_Section]:
    """The sections, those without a text joined to the next, and at the end to the last that has one."""
    most = max(1, work.limits.size // 2)
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
            held = _Section(start=start, end=end, headings=(), blocks=blocks)
        else:
            held.end = end
            held.blocks = held.blocks + blocks
    if held is not None:
        yield held


def _is_bare(work: Work, section: _Section) -> bool:
    """Whether a section has no text below its heading."""
    text, blocks, end = work.document.text, section.blocks, section.end
    if len(blocks) < 2:
        # What has no block, as the definition of a link, is a text too.
        body = section.headings[-1].end if section.headings else work.document.body_start
        if skip_blank(text, body, end) >= end:
            return True
    # What is punctuation alone, as a line above the first heading, is no text.
    return substance_end(text, section.start, end) is None
