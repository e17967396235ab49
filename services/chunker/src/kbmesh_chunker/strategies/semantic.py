"""SEMANTIC: whole paragraphs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work

MAX_BLANK_LINES = 10
_HEADING_CHARACTERS = 100
_NEXT_PARAGRAPH = 2
_ATX = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]|$)")
_SETEXT = re.compile(r"[^\n]*\S[^\n]*\n[ \t]{0,3}(?:=+|-+)[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:[-*+•·>|]|\d+[.)][ \t])")
_BOLD = re.compile(r"[ \t]{0,3}(?:\*\*(?=\S)[^*\n]*[^*\s]\*\*|__(?=\S)[^_\n]*[^_\s]__)[:：]?")
_NUMBERED = re.compile(r"[ \t]{0,3}\d{1,3}(?:\.\d{1,3})*[.)]?[ \t]+(?=\S)")
_NO_HEADING_ENDS = tuple(".!?。！？…,;，；、|>)]}\"'`*_~:：")
_LEADS_ON = (":", "：")


class Semantic:
    """Whole paragraphs, gathered up to the size."""

    strategy = Strategy.SEMANTIC
    description = "Whole paragraphs, gathered up to the size; a heading stays with what it heads."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = ANY_GRAMMAR

    def options(self, given: Options, path: str) -> Options:
        blank_lines = given.get("paragraph_blank_lines", 1)
        if not isinstance(blank_lines, int) or not 1 <= blank_lines <= MAX_BLANK_LINES:
            raise InvalidField(f"{path}.paragraph_blank_lines", f"must be 1 to {MAX_BLANK_LINES}, is {blank_lines}")
        return {"paragraph_blank_lines": blank_lines}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_semantic, work)


def cut_semantic(work: Work) -> list[Piece]:
    """All of the text, cut between paragraphs where that is possible."""
    text = work.document.text
    cutter = work.cutter(paragraph_breaks(text, int(work.options["paragraph_blank_lines"])))
    context = work.context()
    return [
        Piece(start=start, end=end, type="paragraph", context=context.text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]


@dataclass(frozen=True, kw_only=True)
class _Paragraph:
    start: int
    end: int
    """Where its text ends."""
    opens: bool
    """Whether it begins with a line that is marked as a heading."""
    marked: bool
    """Whether it is nothing but such a line."""
    headlike: bool
    """Whether it is short and unfinished, as headings of plain text are, or bold from end to end."""
    item: bool
    """Whether it begins as an item of a list does, by a number or a mark."""
    leads_on: bool
    """Whether it ends with a colon."""


def paragraph_breaks(
    text: str, blank_lines: int, *, breaks: Iterable[tuple[int, int]] = (), seals: Iterable[tuple[int, int]] = ()
) -> Breaks:
    """Breaks between the paragraphs of a text, and seals between headings and their text; and those that are given."""
    breaks, seals = list(breaks), list(seals)
    previous: _Paragraph | None = None
    for paragraph in _paragraphs(text, blank_lines):
        breaks.append((paragraph.start, PARTING if paragraph.opens else _NEXT_PARAGRAPH))
        if previous is not None:
            heads = previous.marked or (previous.headlike and not paragraph.headlike and not paragraph.opens)
            # Numbered lines one after the other are a list.
            heads = heads and not (previous.item and paragraph.item)
            if heads:
                seals.append((previous.start, paragraph.start))
            elif previous.leads_on:
                seals.append((previous.end - 1, paragraph.start))
        previous = paragraph
    return Breaks(breaks, seals)


def _paragraphs(text: str, blank_lines: int) -> Iterator[_Paragraph]:
    gap = re.compile(rf"(?:\r\n?|\n)(?:[^\S\r\n]*(?:\r\n?|\n)){{{blank_lines},}}|\u2029\s*")
    start = 0
    for found in gap.finditer(text):
        if found.start() > start:
            yield _paragraph(text, start, found.start())
        start = found.end()
    if start < len(text):
        yield _paragraph(text, start, len(text))


def _paragraph(text: str, start: int, end: int) -> _Paragraph:
    opens = _ATX.match(text, start, end) is not None
    last = text[max(start, end - 8) : end].rstrip()
    leads_on = last.endswith(_LEADS_ON)
    item = _ITEM.match(text, start, end) is not None
    if end - start > 2 * _HEADING_CHARACTERS:
        return _Paragraph(start=start, end=end, opens=opens, marked=False, headlike=False, leads_on=leads_on, item=item)
    content = text[start:end].replace("\r\n", "\n").rstrip()
    one_line = "\n" not in content
    marked = (one_line and opens) or _SETEXT.fullmatch(content) is not None
    headlike = (
        one_line
        and len(content) <= _HEADING_CHARACTERS
        and any(character.isalpha() for character in content)
        and (
            _BOLD.fullmatch(content) is not None
            or (not content.endswith(_NO_HEADING_ENDS) and (not item or _NUMBERED.match(content) is not None))
        )
    )
    return _Paragraph(
        start=start, end=end, opens=opens or marked, marked=marked, headlike=headlike, leads_on=leads_on, item=item
    )
