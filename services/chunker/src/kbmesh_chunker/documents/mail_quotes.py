"""Which stretches of a mail's text its author quoted, and which are a signature.

Only what is certain is marked: words of the author that are taken for a quote are a worse fault than a quote that is
taken for words of the author.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from kbmesh_chunker.documents.mail_phrases import (
    ATTRIBUTIONS,
    BEGIN_FORWARDED,
    DISCLAIMER,
    LIST_FOOTER,
    MOBILE,
    OPENED_ATTRIBUTION,
    SEPARATOR,
    field_kind,
)
from kbmesh_chunker.documents.source import MailSection, MailSectionKind

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_PROMPT = re.compile(r">>> \S")
_ESCAPED_FROM = re.compile(r">From ")
_MAX_ATTRIBUTION_LINES = 4
_MAX_ATTRIBUTION_CHARACTERS = 400

_RULE = re.compile(r"[ \t]*(?:_{5,}|-{5,}|\*(?: ?\*){2,}|- - -)[ \t]*")
_FOOTER_RULE = re.compile(r"[ \t]*_{20,}[ \t]*")
_MAX_FOOTER_LINES = 10
_LOOSE_SIGNS = ("--", "\\--", "\\-- ")
_MAX_LOOSE_SIGNATURE_LINES = 10
_MAX_HEADER_LINES = 16
_MAX_MOBILE_CHARACTERS = 200


class _TextLine(NamedTuple):
    start: int
    content: str
    blank: bool


def find_sections(text: str, *, quotes: bool = True) -> tuple[MailSection, ...]:
    """The sections of a mail's text, in order, which cover it; none where it is empty.

    With `quotes` false all of it is the body.
    """
    if not text:
        return ()
    if not quotes:
        return (MailSection(kind=MailSectionKind.BODY, start=0, end=len(text)),)
    lines = _lines(text)
    kinds = [MailSectionKind.BODY] * len(lines)
    _mark_quoted_lines(lines, kinds)
    _mark_quoted_mails(lines, kinds)
    _mark_signatures(lines, kinds)
    return _joined(lines, kinds, len(text))


def _lines(text: str) -> list[_TextLine]:
    lines = []
    for found in _LINE.finditer(text):
        content = found.group(1)
        if found.start() < len(text):
            lines.append(_TextLine(start=found.start(), content=content, blank=not content.strip()))
    return lines


def _mark_quoted_lines(lines: Sequence[_TextLine], kinds: list[MailSectionKind]) -> None:
    """Runs of lines that begin with `>`, with the blank lines between them and the line that says who wrote them."""
    index = 0
    while index < len(lines):
        if not _is_quoted(lines[index]):
            index += 1
            continue
        first = last = index
        while index < len(lines) and (lines[index].blank or _is_quoted(lines[index])):
            if not lines[index].blank:
                last = index
            index += 1
        if _is_escaped(lines, first, last):
            continue
        attribution = _attribution_start(lines, kinds, first)
        if attribution is None and _is_session(lines, first, last):
            continue
        for place in range(first if attribution is None else attribution, last + 1):
            kinds[place] = MailSectionKind.QUOTE


def _is_quoted(line: _TextLine) -> bool:
    return line.content.startswith((">", " >"))


def _is_session(lines: Sequence[_TextLine], first: int, last: int) -> bool:
    """Whether lines with `>` are a session with Python."""
    told = [line.content for line in lines[first : last + 1] if not line.blank]
    return _PROMPT.match(told[0]) is not None and all(line.startswith(">>>") for line in told)


def _is_escaped(lines: Sequence[_TextLine], first: int, last: int) -> bool:
    """Whether a mailbox put the mark before a line that begins with "From "."""
    return first == last and _ESCAPED_FROM.match(lines[first].content) is not None


def _attribution_start(lines: Sequence[_TextLine], kinds: Sequence[MailSectionKind], quote: int) -> int | None:
    """The line with which an attribution begins that ends above a quote; None where there is none."""
    last = quote - 1
    while last >= 0 and quote - last <= 3 and lines[last].blank:
        last -= 1
    if last < 0 or quote - last > 3 or lines[last].blank or kinds[last] is not MailSectionKind.BODY:
        return None
    if not lines[last].content.rstrip().rstrip("*_").endswith((":", "：")):
        return None
    best = None
    joined = ""
    for first in range(last, max(-1, last - _MAX_ATTRIBUTION_LINES), -1):
        if lines[first].blank or kinds[first] is not MailSectionKind.BODY:
            break
        joined = " ".join(f"{lines[first].content.strip().strip('*_')} {joined}".split())
        if len(joined) > _MAX_ATTRIBUTION_CHARACTERS:
            break
        patterns = ATTRIBUTIONS if first == last else ATTRIBUTIONS[:1]
        if any(pattern.fullmatch(joined) for pattern in patterns) and _looks_told(joined, first == last):
            best = first
            if OPENED_ATTRIBUTION.fullmatch(joined):
                break
    return best


def _looks_told(attribution: str, one_line: bool) -> bool:
    """Whether a line that ends in "wrote:" tells who and when, and is no sentence of the author."""
    if any(character.isdigit() for character in attribution) or "@" in attribution:
        return True
    return one_line and len(attribution.split()) <= 8


def _mark_quoted_mails(lines: Sequence[_TextLine], kinds: list[MailSectionKind]) -> None:
    """What follows a separator such as "-----Original Message-----" or a header within the text: all the rest."""
    for index, line in enumerate(lines):
        if line.blank or kinds[index] is not MailSectionKind.BODY:
            continue
        if not _opens_mail(lines, index):
            continue
        first, above = index, index - 1
        while above >= 0 and lines[above].blank:
            above -= 1
        if above >= 0 and _RULE.fullmatch(lines[above].content) and kinds[above] is MailSectionKind.BODY:
            first = above
        for place in range(first, len(lines)):
            kinds[place] = MailSectionKind.QUOTE
        return


def _opens_mail(lines: Sequence[_TextLine], index: int) -> bool:
    """Whether a line is the first of a mail within the text."""
    content = lines[index].content
    if len(content) > _MAX_ATTRIBUTION_CHARACTERS:
        return False
    if SEPARATOR.fullmatch(content):
        return True
    if field_kind(content) == "from":
        return {"from", "subject"} < _header_kinds(lines, index)
    return (
        content.rstrip().endswith((":", "："))
        and BEGIN_FORWARDED.fullmatch(content.strip()) is not None
        and bool(_header_kinds(lines, index + 1) & {"from", "date", "subject"})
    )


def _header_kinds(lines: Sequence[_TextLine], start: int) -> set[str]:
    """Which kinds of fields the header has that stands at or just after a line; empty where none stands there."""
    found: set[str] = set()
    others = 0
    begun = False
    for place in range(start, min(len(lines), start + _MAX_HEADER_LINES)):
        line = lines[place]
        if line.blank:
            if begun and len(found) >= 3:
                break
            others += 1
            if others > 3:
                break
            continue
        kind = field_kind(line.content)
        if kind == "from" and kind in found:
            break
        if kind:
            begun, others = True, 0
            found.add(kind)
        else:
            # A long list of addresses takes several lines.
            others += 1
            if not begun or others > 3:
                break
    return found


def _mark_signatures(lines: Sequence[_TextLine], kinds: list[MailSectionKind]) -> None:
    """Signatures stand at the end of what an author wrote: at the end of the text, or above what is quoted."""
    end = len(lines)
    while end > 0:
        if kinds[end - 1] is not MailSectionKind.BODY:
            end -= 1
            continue
        start = end
        while start > 0 and kinds[start - 1] is MailSectionKind.BODY:
            start -= 1
        first = _signature_start(lines, start, end)
        for place in range(first, end):
            kinds[place] = MailSectionKind.SIGNATURE
        end = start


def _signature_start(lines: Sequence[_TextLine], start: int, end: int) -> int:
    first = next((place for place in range(start, end) if lines[place].content == "-- "), end)
    if first == end:
        # Without its blank it may be a rule: only where little follows.
        told, place = 0, end
        while place > start and told <= _MAX_LOOSE_SIGNATURE_LINES:
            place -= 1
            if lines[place].content in _LOOSE_SIGNS:
                first = place
            told += not lines[place].blank
    while True:
        above = _closing_start(lines, start, first)
        if above == first:
            return first
        first = above


def _closing_start(lines: Sequence[_TextLine], start: int, end: int) -> int:
    """Where a closing paragraph begins that no author writes anew: of a phone, a list or a lawyer; else `end`."""
    last = end - 1
    while last >= start and lines[last].blank:
        last -= 1
    if last < start:
        return end
    if len(lines[last].content) <= _MAX_MOBILE_CHARACTERS and MOBILE.fullmatch(
        lines[last].content.strip().strip("[]*_")
    ):
        return last
    for place in range(last, max(start - 1, last - _MAX_FOOTER_LINES), -1):
        if _FOOTER_RULE.fullmatch(lines[place].content):
            footer = "\n".join(lines[below].content for below in range(place + 1, last + 1))
            return place if LIST_FOOTER.search(footer) else end
    first = last
    while first > start and not lines[first - 1].blank and last - first < 40:
        first -= 1
    paragraph = "\n".join(lines[place].content[:_MAX_ATTRIBUTION_CHARACTERS] for place in range(first, last + 1))
    return first if DISCLAIMER.match(paragraph.strip()) else end


def _joined(lines: Sequence[_TextLine], kinds: Sequence[MailSectionKind], length: int) -> tuple[MailSection, ...]:
    """The sections; blank lines go with what is before them."""
    starts: list[tuple[int, MailSectionKind]] = []
    for line, kind in zip(lines, kinds, strict=True):
        if line.blank and starts:
            continue
        if not starts or starts[-1][1] is not kind:
            starts.append((line.start if starts else 0, kind))
    ends = [start for start, _ in starts[1:]] + [length]
    return tuple(MailSection(kind=kind, start=start, end=end) for (start, kind), end in zip(starts, ends, strict=True))
