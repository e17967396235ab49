"""EMAIL: whole mails, or their parts."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.blank import next_start, substance_end, trim_end
from kbmesh_chunker.breaks import PARTING, Breaks
from kbmesh_chunker.config import CHARACTER_SIZES, MAX_SIZE, Options, Sizes, Strategy
from kbmesh_chunker.context import Context
from kbmesh_chunker.documents.source import Grammar, MailLayout, MailSection, MailSectionKind
from kbmesh_chunker.mail_labels import sections_within
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.semantic import find_paragraphs

WHOLE_BELOW = 2000
"""Characters. The default goes down with a smaller size: no mail that stays whole for it is over the size plus the
minimum. Any other value is taken as it is."""
_NEXT_QUOTE = PARTING - 1
_NEXT_PARAGRAPH = 2
_NEXT_LINE = 1
_QUOTED_BLANK = re.compile(r"^[ \t]*>[> \t]*(?:\r\n|\r|\n)", re.MULTILINE)
_QUOTED_LINE = re.compile(r"^ ?>[^\r\n]*", re.MULTILINE)
_FIELD = re.compile(r"^[A-Za-z][A-Za-z0-9-]{1,60}:[ \t][^\r\n]*(?:(?:\r\n|\r|\n)[ \t]+[^\s>][^\r\n]*)*", re.MULTILINE)
_MAX_LINE_END = 2


class Email:
    """Whole mails; long ones by what their author wrote, what is quoted and how they are signed."""

    strategy = Strategy.EMAIL
    description = "Short mails whole, long ones by paragraphs; quotes and signatures are labelled, never left out."
    sizes: Sizes = CHARACTER_SIZES
    needs_embedder = False
    grammars = frozenset({Grammar.MAIL})

    def options(self, given: Options, path: str) -> Options:
        whole_below = given.get("whole_below", WHOLE_BELOW)
        if not isinstance(whole_below, int) or not 0 <= whole_below <= MAX_SIZE:
            raise InvalidField(f"{path}.whole_below", f"must be 0 to {MAX_SIZE}, is {whole_below}")
        return {"whole_below": whole_below, "exclude_quotes": bool(given.get("exclude_quotes", False))}

    async def cut(self, work: Work) -> Sequence[Piece]:
        return await work.aside(cut_email, work)


def cut_email(work: Work) -> list[Piece]:
    """All of a mail's text."""
    text = work.document.text
    layout = _layout(work)
    context = work.context()
    if _stays_whole(work, context):
        end = trim_end(text, 0, len(text))
        spans = [(next_start(text, 0, end), end)]
    else:
        quoted = _quoted_lines(text)
        cutter = work.cutter(_breaks(work, layout, quoted))
        spans = [
            span
            for start, end in _stretches(work, layout)
            for span in _repeating_lines(text, quoted, cutter.cut(start, end, context.at))
        ]
    return [
        Piece(
            start=start,
            end=end,
            type=kind,
            context=context.text,
            left_out=_left_out(layout, start, end) if work.options["exclude_quotes"] else (),
        )
        for (start, end), kind in zip(spans, _types(layout, spans), strict=True)
    ]


def _layout(work: Work) -> MailLayout:
    layout = work.document.layout
    if isinstance(layout, MailLayout):
        return layout
    return MailLayout(sections=(MailSection(kind=MailSectionKind.BODY, start=0, end=len(work.document.text)),))


def _stays_whole(work: Work, context: Context) -> bool:
    length, whole_below = len(work.document.text), int(work.options["whole_below"])
    if length >= whole_below:
        return False
    if whole_below == WHOLE_BELOW and work.measure.length(0, length) > work.limits.size + work.limits.minimum:
        return False
    return work.cap is None or work.cap.measure.length(0, length) + context.tokens <= work.cap.tokens


def _stretches(work: Work, layout: MailLayout) -> list[tuple[int, int]]:
    """What is cut apart: what the author wrote from what is quoted, unless the quote is tiny and answered below.

    A short signature goes with what it signs, and what is only punctuation with what is before it.
    """
    stretches: list[list[MailSection]] = []
    for section in layout.sections:
        if stretches and (_goes_with(work, stretches[-1][-1], section) or not _says(work, stretches[-1])):
            stretches[-1].append(section)
        else:
            stretches.append([section])
    if len(stretches) > 1 and not _says(work, stretches[-1]):
        last = stretches.pop()
        stretches[-1] += last
    return [(sections[0].start, sections[-1].end) for sections in stretches]


def _goes_with(work: Work, above: MailSection, section: MailSection) -> bool:
    quote, signature = MailSectionKind.QUOTE, MailSectionKind.SIGNATURE
    if section.kind is signature:
        return above.kind is not quote and _is_tiny(work, section)
    return (section.kind is quote and _is_tiny(work, section)) or (above.kind is quote and _is_tiny(work, above))


def _is_tiny(work: Work, section: MailSection) -> bool:
    return work.measure.length(section.start, section.end) < work.limits.minimum


def _says(work: Work, sections: Sequence[MailSection]) -> bool:
    return substance_end(work.document.text, sections[0].start, sections[-1].end) is not None


def _quoted_lines(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in _QUOTED_LINE.finditer(text)]


def _fields(text: str) -> list[tuple[int, int]]:
    """Fields that stand together, as a delivery report has them."""
    fields = [found.span() for found in _FIELD.finditer(text)]
    ends = [-_MAX_LINE_END - 1, *(end for _, end in fields)]
    starts = [*(start for start, _ in fields), len(text) + _MAX_LINE_END + 1]
    return [
        (start, end)
        for place, (start, end) in enumerate(fields)
        if start - ends[place] <= _MAX_LINE_END or starts[place + 1] - end <= _MAX_LINE_END
    ]


def _repeating_lines(
    text: str, quoted: Sequence[tuple[int, int]], spans: Iterator[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The windows; one that would begin by repeating the end of a quoted line repeats whole lines only, or nothing."""
    last_start, last_end = -1, 0
    for start, end in spans:
        if start < last_end:
            fresh = next_start(text, last_end, end)
            place = bisect_left(quoted, (start, 0)) - 1
            if place >= 0 and start < quoted[place][1]:
                start = min(fresh, next_start(text, quoted[place][1], end))
            if start <= last_start:
                start = fresh
        yield start, end
        last_start, last_end = start, end


def _breaks(work: Work, layout: MailLayout, quoted: Sequence[tuple[int, int]]) -> Breaks:
    """Between paragraphs, also quoted ones, and before a quote; a short quote is held to the answer below it.

    Quoted lines and fields can be read only from their start. Nothing is repeated before a field, which would be one
    of another report, or where that would leave too little room for a quoted line.
    """
    text = work.document.text
    fields = _fields(text)
    room = (work.limits.size - work.limits.overlap) // 2
    alone = [*fields, *(line for line in quoted if work.measure.length(*line) > room)]
    # A solid begins after its first position, and no window repeats anything at the start of such a line either.
    solids = sorted((max(0, start - 1), end) for start, end in alone)
    breaks = [(start, _NEXT_LINE) for start, _ in (*fields, *quoted)]
    breaks += [(found.end(), _NEXT_PARAGRAPH) for found in _QUOTED_BLANK.finditer(text)]
    seals: list[tuple[int, int]] = []
    find_paragraphs(text, 0, len(text), 1, breaks, seals)
    for section, following in zip(layout.sections, (*layout.sections[1:], None), strict=True):
        if section.kind is MailSectionKind.QUOTE:
            breaks.append((section.start, _NEXT_QUOTE))
            if following is not None and following.kind is MailSectionKind.BODY and _is_tiny(work, section):
                seals.append((section.start, following.start))
    return Breaks(breaks, seals, solids)


def _types(layout: MailLayout, spans: Sequence[tuple[int, int]]) -> list[str]:
    if len(spans) == 1:
        return ["complete_email"]
    kinds = [{section.kind for section in sections_within(layout, start, end)} for start, end in spans]
    own = [place for place, found in enumerate(kinds) if MailSectionKind.BODY in found]
    types = []
    for place, found in enumerate(kinds):
        if place not in own[:1] + own[-1:] and MailSectionKind.BODY in found:
            types.append("email_body")
        elif MailSectionKind.BODY in found:
            types.append("email_start" if place == own[0] else "email_end")
        else:
            types.append("email_signature" if found == {MailSectionKind.SIGNATURE} else "email_quote")
    return types


def _left_out(layout: MailLayout, start: int, end: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (section.start, section.end)
        for section in sections_within(layout, start, end)
        if section.kind is not MailSectionKind.BODY
    )
