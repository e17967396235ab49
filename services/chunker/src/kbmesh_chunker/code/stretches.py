"""Which stretches of source code become pieces of their own."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import MAX_INDENT, next_start, substance_end, trim_end
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.lines import line_breaks
from kbmesh_chunker.code.outline import MAX_DEPTH, Outline, body_of
from kbmesh_chunker.code.statements import statement_breaks
from kbmesh_chunker.code.syntax import Role, Syntax
from kbmesh_chunker.context import Context
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.strategies.port import Work

_SMALL_SHARE = 6
_CLOSING_CHARACTERS = 64
_CLOSING = re.compile(r"[\s)\]};,]*(?:(?:end|fi|done|esac|#[ \t]*endif)\b)?[\s)\]};,]*(?:(?://|/\*|#)[^\n]*)?")
_DEEPEST_PATH = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A stretch of code that becomes a piece."""

    start: int
    end: int
    around: tuple[Definition, ...] = ()
    """What it is in, outermost first."""
    about: Definition | None = None
    """The one definition that it is, or is a part of."""
    whole: bool = False
    """Whether all of `about`, or of several definitions, is in it."""
    part: int = 0
    """Which part of a definition it is, from 1; 0 where it is not one of several."""
    parts: int = 0

    @property
    def path(self) -> tuple[Definition, ...]:
        """What it is in, and what it is about."""
        return self.around if self.about is None else (*self.around, self.about)


class Stretches:
    """Takes the code of one document apart."""

    def __init__(self, work: Work, outline: Outline, syntax: Syntax) -> None:
        self._work = work
        self._text = work.document.text
        self._outline = outline
        self._syntax = syntax
        self._contexts: dict[int, Context] = {}
        """By the innermost definition whose signature they have, which tells all that are around it."""
        self._plain = text_is_plain(work.document.text)
        self._error_starts = [start for start, _ in outline.errors]
        self._small = max(1, work.limits.size // _SMALL_SHARE)

    def all(self) -> list[Stretch]:
        """All of the text, in order."""
        found = list(self._scope(0, len(self._text), self._outline.definitions, ()))
        return self._merge_small(self._merge_stubs(found))

    def context(self, stretch: Stretch) -> Context:
        """The signatures of what a stretch is in, those that it does not hold itself."""
        return self._context(stretch.path, stretch.start)

    def _context(self, path: Sequence[Definition], start: int) -> Context:
        above = len(path)
        while above and path[above - 1].head >= start:
            above -= 1
        key = id(path[above - 1]) if above else 0
        context = self._contexts.get(key)
        if context is None:
            lines = [self._outline.signature(definition) for definition in path[max(0, above - _DEEPEST_PATH) : above]]
            context = self._contexts[key] = self._work.context(*lines)
        return context

    def broken(self, stretch: Stretch) -> bool:
        """Whether a stretch is not what the tree made it: it holds what the grammar could not make sense of."""
        about = stretch.about
        if stretch.whole and about is not None:
            # What is wrong within a body leaves the definition what it is.
            body = body_of(about.holder)
            return self._error_within(stretch.start, stretch.end if body is None else body.start_byte)
        return self._error_within(stretch.start, stretch.end)

    def _error_within(self, start: int, end: int) -> bool:
        index = bisect_left(self._error_starts, end) - 1
        return index >= 0 and self._outline.errors[index][1] > start

    def _fits(self, start: int, end: int, path: Sequence[Definition]) -> bool:
        work = self._work
        if work.measure.length(start, end) > work.limits.size:
            return False
        if work.cap is None:
            return True
        return work.cap.measure.length(start, end) + self._context(path, start).tokens <= work.cap.tokens

    def _scope(
        self, start: int, end: int, inner: Sequence[Definition], around: tuple[Definition, ...]
    ) -> Iterator[Stretch]:
        """The definitions of text[start:end], and what is between them."""
        position = start
        shown = [definition for definition in inner if not self._inline(definition)]
        if shown and around and self._closes(shown[-1].end, end):
            shown[-1].end = end
        for index, definition in enumerate(shown):
            begin = self._line_start(definition.start, position)
            finish = min(end, definition.end)
            if finish <= begin:
                continue
            if index == 0 and around and self._introduces(around[-1], position, begin):
                begin = position
            yield from self._gap(position, begin, around)
            yield from self._definition(definition, begin, finish, around)
            position = finish
        yield from self._gap(position, end, around)

    def _inline(self, definition: Definition) -> bool:
        """Whether a definition stays among the statements beside it: a name of a type on a line of its own."""
        return definition.role is Role.ALIAS and "\n" not in self._text[definition.head : definition.end]

    def _closes(self, start: int, end: int) -> bool:
        """Whether nothing but the closing marks of what is around is in text[start:end]."""
        rest = self._text[start:end].strip() if end - start <= 4 * _CLOSING_CHARACTERS else ""
        return 0 < len(rest) <= _CLOSING_CHARACTERS and _CLOSING.fullmatch(rest) is not None

    def _line_start(self, position: int, earliest: int) -> int:
        """The start of the line of a position, where there is but white space between."""
        line = self._text.rfind("\n", max(earliest, position - MAX_INDENT - 1), position) + 1
        if line and line < position and self._text[line:position].isspace():
            return line
        return max(position, earliest)

    def _introduces(self, around: Definition, start: int, end: int) -> bool:
        """Whether text[start:end] is the head of a namespace, a group or a class and nothing else."""
        if start > around.head or end - start > self._small:
            return False
        body = body_of(around.holder)
        if body is None:
            return around.role is Role.GROUP and "\n" not in self._text[around.head : end].strip()
        return not self._text[body.start_byte : end].strip().lstrip("{:").strip()

    def _gap(self, start: int, end: int, around: tuple[Definition, ...]) -> Iterator[Stretch]:
        """What is between definitions."""
        begin, end = self._trim(start, end)
        if begin >= end:
            return
        if self._fits(begin, end, around):
            yield Stretch(start=begin, end=end, around=around)
            return
        for window in self._cut(begin, end, around):
            yield Stretch(start=window[0], end=window[1], around=around)

    def _definition(
        self, definition: Definition, start: int, end: int, around: tuple[Definition, ...]
    ) -> Iterator[Stretch]:
        begin, end = self._trim(start, end)
        if begin >= end:
            return
        if not definition.apart and self._fits(begin, end, around):
            yield Stretch(start=begin, end=end, around=around, about=definition, whole=True)
            return
        path = (*around, definition)
        inner = self._outline.open(definition) if len(path) < MAX_DEPTH else ()
        if inner:
            found = list(self._scope(begin, end, inner, path))
            if not definition.apart:
                found = self._gather(found, path)
            if definition.role is Role.FUNCTION:
                found = [
                    replace(stretch, around=around, about=definition, whole=False)
                    if stretch.around == path and stretch.about is None
                    else stretch
                    for stretch in found
                ]
        else:
            found = [
                Stretch(start=first, end=last, around=around, about=definition)
                for first, last in self._cut(begin, end, path)
            ]
        own = [stretch for stretch in found if stretch.about is definition]
        if len(own) > 1:
            numbers = {id(stretch): number for number, stretch in enumerate(own, 1)}
            found = [
                replace(stretch, part=numbers[id(stretch)], parts=len(own)) if id(stretch) in numbers else stretch
                for stretch in found
            ]
        yield from found

    def _trim(self, start: int, end: int) -> tuple[int, int]:
        """text[start:end] without white space at its ends, and with no character cut in two."""
        text = self._text
        if not self._plain:
            start = graphemes.ceiling(text, start)
            end = graphemes.ceiling(text, end)
        start = next_start(text, start, end)
        return (start, trim_end(text, start, end)) if start < end else (end, end)

    def _cut(self, start: int, end: int, path: tuple[Definition, ...]) -> Iterator[tuple[int, int]]:
        """Windows over what does not fit, between statements where it can be."""
        work = self._work
        node = path[-1].node if path else self._outline.root
        breaks = statement_breaks(self._text, self._syntax, node, start, end, 2 * self._small, work.checkpoint)
        if self._error_within(start, end):
            breaks = [*breaks, *line_breaks(self._text, start, end)]
        yield from cutter_of(work, Breaks(breaks)).cut(
            start, end, lambda position: self._context(path, position).tokens
        )

    def _gather(self, found: Sequence[Stretch], path: tuple[Definition, ...]) -> list[Stretch]:
        """Puts small members of a class together, up to the size."""
        gathered: list[Stretch] = []
        for stretch in found:
            last = gathered[-1] if gathered else None
            if (
                last is not None
                and not last.parts
                and not stretch.parts
                and last.around == path
                and stretch.around == path
                and self._fits(last.start, stretch.end, path)
            ):
                gathered[-1] = _joined(last, stretch)
            else:
                gathered.append(stretch)
        return gathered

    def _merge_stubs(self, found: Sequence[Stretch]) -> list[Stretch]:
        """Lets nothing stand alone that is only punctuation, and keeps together what is on one line, as all is in code
        that a machine made small."""
        merged: list[Stretch] = []
        for stretch in found:
            if merged and self._belongs(merged[-1], stretch) and self._may_join(merged[-1], stretch):
                merged[-1] = _joined(merged[-1], stretch)
            else:
                merged.append(stretch)
        return merged

    def _belongs(self, first: Stretch, second: Stretch) -> bool:
        if "\n" not in self._text[first.end : second.start + 1] and not (first.parts and second.parts):
            return True
        return self._stub(second) or self._stub(first)

    def _stub(self, stretch: Stretch) -> bool:
        return (
            stretch.end - stretch.start <= _CLOSING_CHARACTERS
            and substance_end(self._text, stretch.start, stretch.end) is None
        )

    def _merge_small(self, found: list[Stretch]) -> list[Stretch]:
        """Joins what is shorter than the minimum to a neighbour."""
        minimum = self._work.limits.minimum
        if not minimum:
            return found
        length = self._work.measure.length
        merged: list[Stretch] = []
        for stretch in found:
            small = merged and (
                length(stretch.start, stretch.end) < minimum or length(merged[-1].start, merged[-1].end) < minimum
            )
            if small and self._may_join(merged[-1], stretch):
                merged[-1] = _joined(merged[-1], stretch)
            else:
                merged.append(stretch)
        return merged

    def _may_join(self, first: Stretch, second: Stretch) -> bool:
        work = self._work
        limits = work.limits
        if work.measure.length(first.start, second.end) > limits.size + limits.minimum:
            return False
        if work.cap is None:
            return True
        context = self._context(_shared(first.path, second.path), first.start)
        return work.cap.measure.length(first.start, second.end) + context.tokens <= work.cap.tokens


def text_is_plain(text: str) -> bool:
    """Whether every place in a text is between two characters."""
    return text.isascii() and "\r" not in text


def cutter_of(work: Work, breaks: Breaks) -> Cutter:
    """A cutter that leaves no small rest, where a stretch is too long for one window."""
    limits = work.limits
    small = limits.size // _SMALL_SHARE
    if limits.minimum < small:
        limits = Limits(
            size=limits.size - (small - limits.minimum),
            overlap=min(limits.overlap, limits.size - small + limits.minimum - 1),
            minimum=small,
        )
    return replace(work.cutter(breaks), limits=limits)


def _joined(first: Stretch, second: Stretch) -> Stretch:
    """Two neighbours in one."""
    if first.about is second.about and first.about is not None:
        return replace(first, end=second.end, whole=False)
    around = first.around if first.around == second.around else _shared(first.path, second.path)
    return Stretch(start=first.start, end=second.end, around=around, whole=first.whole or second.whole)


def _shared(first: Sequence[Definition], second: Sequence[Definition]) -> tuple[Definition, ...]:
    shared = []
    for one, other in zip(first, second, strict=False):
        if one is not other:
            break
        shared.append(one)
    return tuple(shared)
