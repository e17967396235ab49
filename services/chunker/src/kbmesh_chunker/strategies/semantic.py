"""SEMANTIC: whole paragraphs."""

import re
from collections.abc import Iterator, Sequence

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.blank import stretches, trim_end
from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, Options, Sizes, Strategy
from kbmesh_chunker.documents.source import Grammar
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.heading_seals import HEADING_LINE, find_heading_seals
from kbmesh_chunker.strategies.port import ANY_GRAMMAR, Work
from kbmesh_chunker.strategies.tables import NO_TABLES, Tables

MAX_BLANK_LINES = 10
_LINE_END = r"(?:\r\n|\n|\r(?!\n))"
_HEADING_CHARACTERS = 100
_MOST_HEADINGS = 3
"""Lines one above the other that head a paragraph together, such as a number, a title and a subtitle."""
_HELD = 80
"""So much of a paragraph stays with the heading above it."""
_LONG_PARAGRAPH = 800
"""From so many characters on a paragraph is looked into for the items of a list."""
_NEXT_ITEM = 1
_NEXT_PARAGRAPH = 2
_PARAGRAPH_END = 16
_ATX = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]|$)")
_SETEXT = re.compile(r"[^\n]*\S[^\n]*\n[ \t]{0,3}(?:=+|-+)[ \t]*$")
_ITEM_LINE = re.compile(r"^[ \t]*(?:[-*+•·]|\d+[.)])[ \t]", re.MULTILINE)
_ITEM = re.compile(r"[ \t]*(?:[-*+•·>|]|\d+[.)][ \t])")
_BOLD = re.compile(r"[ \t]{0,3}(?:\*\*(?=\S)[^*\n]*[^*\s]\*\*|__(?=\S)[^_\n]*[^_\s]__)[:：]?")
_NUMBERED = re.compile(r"[ \t]{0,3}\d{1,3}(?:\.\d{1,3})*[.)]?[ \t]+(?=\S)")
_NO_HEADING_ENDS = frozenset(".!?。！？…,;，；、|>)]}\"'`*_~:：")
_LEADS_ON = (":", "：")


class Semantic:
    """Whole paragraphs, gathered up to the size."""

    strategy = Strategy.SEMANTIC
    description = "Whole paragraphs, gathered up to the size; a heading stays with what it heads."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = ANY_GRAMMAR
    piece_type = "paragraph"

    def options(self, given: Options, path: str) -> Options:
        blank_lines = given.get("paragraph_blank_lines", 1)
        if not isinstance(blank_lines, int) or not 1 <= blank_lines <= MAX_BLANK_LINES:
            raise InvalidField(f"{path}.paragraph_blank_lines", f"must be 1 to {MAX_BLANK_LINES}, is {blank_lines}")
        return {"paragraph_blank_lines": blank_lines}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_semantic, work)

    def structure(self, text: str, start: int, end: int, options: Options) -> tuple[Breaks, int]:
        """Breaks and seals of text[start:end], and up to where they are the same whatever follows."""
        breaks: list[tuple[int, int]] = []
        seals: list[tuple[int, int]] = []
        before, last = find_paragraphs(text, start, end, int(options["paragraph_blank_lines"]), breaks, seals)
        # The last paragraph may go on. Where it is long, that changes nothing but its end.
        seals += find_heading_seals(text, start, end)
        known = end - _PARAGRAPH_END if end - last > 2 * _HEADING_CHARACTERS else before
        return Breaks(breaks, seals), min(known, end - HEADING_LINE)


def cut_semantic(work: Work) -> list[Piece]:
    """All of the text, cut between paragraphs where that is possible."""
    text = work.document.text
    tables = Tables(text) if work.document.grammar is Grammar.MARKDOWN else NO_TABLES
    cutter = work.cutter(paragraph_breaks(text, int(work.options["paragraph_blank_lines"]), tables))
    context = work.context()
    return [
        Piece(start, end, "paragraph", tables.context(work, start, context).text)
        for start, end in cutter.cut(0, len(text), context.at)
    ]


def paragraph_breaks(text: str, blank_lines: int, tables: Tables = NO_TABLES) -> Breaks:
    """Breaks between the paragraphs of a text and the rows of its tables, and seals between headings and their text."""
    breaks: list[tuple[int, int]] = []
    seals: list[tuple[int, int]] = []
    for start, end in stretches(text, 0, len(text)):
        last = trim_end(text, start, end)
        find_paragraphs(text, start, last, blank_lines, breaks, seals)
        seals += find_heading_seals(text, start, last)
    return Breaks(breaks + tables.breaks, seals, tables.solids)


def find_paragraphs(
    text: str,
    start: int,
    end: int,
    blank_lines: int,
    breaks: list[tuple[int, int]],
    seals: list[tuple[int, int]],
) -> tuple[int, int]:
    """Adds the breaks and seals of text[start:end]. Gives the start of its fourth last paragraph and of its last."""
    fourth = third = second = previous = start
    previous_end = start
    previous_heads = previous_marked = previous_leads = False
    headings = 0
    for first, last in _paragraphs(text, start, end, blank_lines):
        opens = text[first] in "# \t" and _ATX.match(text, first, last) is not None
        marked = headlike = False
        if last - first <= 2 * _HEADING_CHARACTERS:
            marked, headlike = _heading(text, first, last, opens)
        breaks.append((first, PARTING if opens or marked else _NEXT_PARAGRAPH))
        if last - first > _LONG_PARAGRAPH:
            breaks.extend((item.start(), _NEXT_ITEM) for item in _ITEM_LINE.finditer(text, first + 1, last))
        heads = previous_marked or (previous_heads and not headlike and not opens and not marked)
        # Numbered lines one after the other are a list.
        if heads and not (_ITEM.match(text, previous, previous_end) and _ITEM.match(text, first, last)):
            # Of many short lines only the last can be meant as a heading.
            above = headings if headings <= _MOST_HEADINGS and not previous_marked else 1
            seals.append(((previous, previous, second, third)[above], min(first + _HELD, last)))
        elif previous_leads and not opens and not marked:
            seals.append((previous_end - 1, first))
        headings = headings + 1 if headlike and not marked else 0
        fourth, third, second, previous = third, second, previous, first
        previous_end, previous_marked, previous_heads = last, marked, headlike
        closing = text[last - 1]
        previous_leads = closing in _LEADS_ON or (
            closing.isspace() and text[max(first, last - 8) : last].rstrip().endswith(_LEADS_ON)
        )
    return fourth, previous


def _paragraphs(text: str, start: int, end: int, blank_lines: int) -> Iterator[tuple[int, int]]:
    """Starts and ends; white space alone is none."""
    position = start
    for gap in _gap(text, blank_lines).finditer(text, start, end):
        first, last = gap.span()
        if first > position:
            yield position, first
        position = last
    if position < end:
        yield position, end


def _gap(text: str, blank_lines: int) -> re.Pattern[str]:
    """What ends a paragraph. The fewer kinds of line ends a pattern knows, the faster it is."""
    if "\u2029" not in text:
        if "\r" not in text:
            return re.compile(rf"\n(?:[^\S\n]*\n){{{blank_lines},}}")
        if text.count("\r\n") == text.count("\r") == text.count("\n"):
            return re.compile(rf"\r\n(?:[^\S\r\n]*\r\n){{{blank_lines},}}")
    return re.compile(rf"{_LINE_END}(?:[^\S\r\n]*{_LINE_END}){{{blank_lines},}}|\u2029\s*")


def _heading(text: str, start: int, end: int, opens: bool) -> tuple[bool, bool]:
    """Of a short paragraph, whether it is a line marked as a heading, and whether it looks like one that is not."""
    content = text[start:end].rstrip()
    if "\n" in content:
        return content[-1] in "=-" and _SETEXT.fullmatch(content.replace("\r\n", "\n")) is not None, False
    if opens:
        return True, False
    if len(content) > _HEADING_CHARACTERS:
        return False, False
    if content[-1:] in _NO_HEADING_ENDS:
        return False, _BOLD.fullmatch(content) is not None and any(map(str.isalpha, content))
    # An item of a list is none, but a numbered line may be one.
    headlike = _ITEM.match(content) is None or _NUMBERED.match(content) is not None
    return False, headlike and any(map(str.isalpha, content))
