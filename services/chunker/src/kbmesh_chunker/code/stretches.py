"""Which stretches of source code become pieces of their own."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import tree_sitter

from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import MAX_INDENT, next_start, trim_end
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.lines import line_breaks
from kbmesh_chunker.code.merging import CLOSING_CHARACTERS, Merging
from kbmesh_chunker.code.outline import MAX_DEPTH, Outline, body_of
from kbmesh_chunker.code.packing import Packing
from kbmesh_chunker.code.signature import doc_sentence, signature
from kbmesh_chunker.code.statements import statement_breaks
from kbmesh_chunker.code.stretch import Stretch, joined
from kbmesh_chunker.code.syntax import Role, Syntax
from kbmesh_chunker.config import SizeUnit
from kbmesh_chunker.context import BUDGET_SHARE, Context
from kbmesh_chunker.strategies.port import Work

_SMALL_SHARE = 6
_DEEP_SHARE = 3
_CLOSING = re.compile(r"[\s)\]};,]*(?:(?:end|fi|done|esac|#[ \t]*endif)\b)?[\s)\]};,]*(?:(?://|/\*|#)[^\n]*)?")
_TOKEN = re.compile(r"\w{1,5}|[^\w\s]")
_DEEPEST_PATH = 8


class Stretches:
    """Takes the code of one document apart."""

    def __init__(self, work: Work, outline: Outline, syntax: Syntax) -> None:
        self._work = work
        self._text = work.document.text
        self._outline = outline
        self._syntax = syntax
        self._contexts: dict[tuple[int, bool], Context] = {}
        """By the innermost definition whose signature they have, which tells all that are around it, and by whether
        they have what is written about it."""
        self._plain = text_is_plain(work.document.text)
        self._error_starts = [start for start, _ in outline.errors]
        self._window = _window(work)
        self._small = max(1, self._window // _SMALL_SHARE)

    def all(self) -> list[Stretch]:
        """All of the text, in order."""
        found = list(self._scope(0, len(self._text), self._outline.definitions, ()))
        return Merging(self._work, self._outline, self._syntax, self, self._window).all(found)

    def context(self, stretch: Stretch) -> Context:
        """The signatures of what a stretch is in, those that it does not hold itself."""
        return self.context_of(stretch.path, stretch.start, stretch.end)

    def context_of(self, path: Sequence[Definition], start: int, end: int) -> Context:
        """The signatures of `path` that text[start:end] does not hold itself."""
        above = len(path)
        while above and start <= path[above - 1].head < end:
            above -= 1
        if not above:
            return self._known_context((), False)
        innermost = path[above - 1]
        # The comment above a definition has what is written about it.
        return self._known_context(path[:above], innermost.role is Role.FUNCTION and innermost.head < start)

    def _known_context(self, path: Sequence[Definition], documented: bool) -> Context:
        key = (id(path[-1]) if path else 0, documented)
        context = self._contexts.get(key)
        if context is None:
            lines = [signature(self._text, definition) for definition in path[-_DEEPEST_PATH:]]
            context = self._work.context(*lines)
            if documented and (sentence := doc_sentence(self._text, path[-1])):
                longer = self._work.context(*lines, sentence)
                if longer.text.endswith("\n" + sentence) and longer.text.startswith(context.text):
                    context = longer
            if self._work.cap is not None:
                # Marks, of which signatures have many, are tokens of their own.
                context = replace(context, tokens=max(context.tokens, len(_TOKEN.findall(context.text))))
            self._contexts[key] = context
        return context

    def broken(self, stretch: Stretch) -> bool:
        """Whether a stretch is not what the tree made it: it holds what the grammar could not make sense of."""
        if not self._error_starts:
            return False
        about = stretch.about
        if stretch.whole and about is not None:
            # What is wrong within a body leaves the definition what it is.
            body = body_of(about.holder)
            return self._error_within(stretch.start, stretch.end if body is None else body.start_byte)
        return self._error_within(stretch.start, stretch.end)

    def _error_within(self, start: int, end: int) -> bool:
        index = bisect_left(self._error_starts, end) - 1
        return index >= 0 and self._outline.errors[index][1] > start

    def fits(self, start: int, end: int, path: Sequence[Definition]) -> bool:
        """Whether text[start:end] fits into a piece, with the context that it has within `path`."""
        work = self._work
        if work.measure.length(start, end) > work.limits.size:
            return False
        if work.cap is None:
            return True
        return work.cap.measure.length(start, end) + self.context_of(path, start, end).tokens <= work.cap.tokens

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
        rest = self._text[start:end].strip() if end - start <= 4 * CLOSING_CHARACTERS else ""
        return 0 < len(rest) <= CLOSING_CHARACTERS and _CLOSING.fullmatch(rest) is not None

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
        if start >= end:
            return
        begin, end = self._trim(start, end)
        if begin >= end:
            return
        if self.fits(begin, end, around):
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
        if not definition.apart and self.fits(begin, end, around):
            yield Stretch(start=begin, end=end, around=around, about=definition, whole=True)
            return
        path = (*around, definition)
        if not definition.apart and (kept := self._with_comments(definition, begin, end, around)) is not None:
            # What is around it has no room beside it: the head of a class, or the mark that closes one.
            yield from self._gap(begin, kept[0], around)
            yield Stretch(start=kept[0], end=kept[1], around=around, about=definition, whole=True)
            yield from self._gap(kept[1], end, around)
            return
        if not definition.apart and (bare := self._bare(definition, begin, end, around)) is not None:
            # What is written above it is long: it goes before it.
            yield from self._lead(definition, begin, bare[0], around)
            yield Stretch(start=bare[0], end=bare[1], around=around, about=definition, whole=True)
            yield from self._gap(bare[1], end, around)
            return
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

    def _with_comments(
        self, definition: Definition, start: int, end: int, around: tuple[Definition, ...]
    ) -> tuple[int, int] | None:
        """A definition with the comments above it and without what text[start:end] has besides, where it fits so."""
        begin = self._line_start(definition.start, start)
        own_end = trim_end(self._text, definition.node.start_byte, min(end, definition.node.end_byte))
        for finish in dict.fromkeys((end, own_end)):
            if begin < finish and self.fits(begin, finish, around):
                found = self._trim(begin, finish)
                return found if found[0] < found[1] else None
        return None

    def _bare(
        self, definition: Definition, start: int, end: int, around: tuple[Definition, ...]
    ) -> tuple[int, int] | None:
        """A definition without the comments above it, and what else it may do without, where it fits so."""
        node, text = definition.node, self._text
        above, attributed = node.prev_named_sibling, node.start_byte
        while above is not None and start <= above.start_byte and self._is_attribute(above):
            attributed = above.start_byte
            above = above.prev_named_sibling
        function = definition.holder.start_byte if definition.role is Role.FUNCTION else node.start_byte
        # A body may end with the line break after it.
        own_end = trim_end(text, node.start_byte, min(end, node.end_byte))
        for place in dict.fromkeys((attributed, node.start_byte, function)):
            for begin in dict.fromkeys((self._line_start(place, start), place)):
                for finish in dict.fromkeys((end, own_end)):
                    if start <= begin < finish and self.fits(begin, finish, around):
                        found = self._trim(begin, finish)
                        return found if found[0] < found[1] else None
        return None

    def _is_attribute(self, node: tree_sitter.Node) -> bool:
        meaning = self._syntax.meanings.get(node.kind_id)
        return meaning is not None and meaning.role is Role.LEAD

    def _lead(self, definition: Definition, start: int, end: int, around: tuple[Definition, ...]) -> Iterator[Stretch]:
        """The comments above a definition that has no room for them."""
        start, end = self._trim(start, end)
        if start >= end:
            return
        path = (*around, definition)
        packing = Packing(self._work, line_breaks(self._text, start, end), plain=self._plain)
        for first, last in packing.windows(start, end, self._tokens_of(path)):
            yield Stretch(start=first, end=last, around=around, about=definition)

    def _tokens_of(self, path: tuple[Definition, ...]) -> Callable[[int], int]:
        """The tokens of the context of a window by its start, wherever it ends."""

        def tokens(start: int) -> int:
            return max(self.context_of(path, start, start).tokens, self.context_of(path, start, start + 1).tokens)

        return tokens

    def _trim(self, start: int, end: int) -> tuple[int, int]:
        """text[start:end] without white space at its ends, and with no character cut in two."""
        text = self._text
        if self._plain and start < end and text[start] > " " and text[end - 1] > " ":
            return start, end
        if not self._plain:
            start = graphemes.ceiling(text, start)
            end = graphemes.ceiling(text, end)
        start = next_start(text, start, end)
        return (start, trim_end(text, start, end)) if start < end else (end, end)

    def _cut(self, start: int, end: int, path: tuple[Definition, ...]) -> Iterator[tuple[int, int]]:
        """Windows over what does not fit, between statements where it can be."""
        work = self._work
        node = path[-1].node if path else self._outline.root
        breaks = statement_breaks(
            self._text, self._syntax, node, start, end, self._window // _DEEP_SHARE, self._within_size, work.checkpoint
        )
        if self._error_within(start, end):
            breaks += line_breaks(self._text, start, end)
        yield from Packing(work, breaks, plain=self._plain).windows(start, end, self._tokens_of(path))

    def _within_size(self, start: int, end: int) -> bool:
        work = self._work
        if work.measure.length(start, end) > work.limits.size:
            return False
        return work.cap is None or work.cap.measure.length(start, end) <= work.cap.tokens * (1 - BUDGET_SHARE)

    def _gather(self, found: Sequence[Stretch], path: tuple[Definition, ...]) -> list[Stretch]:
        """Puts small members of a class together, up to the size."""
        groups: list[list[Stretch]] = []
        for stretch in found:
            last = groups[-1] if groups else None
            if (
                last is not None
                and self._are_beside(last[-1], stretch, path)
                and self.fits(last[0].start, stretch.end, path)
            ):
                last.append(stretch)
                continue
            groups.append([stretch])
            if len(groups) > 2:
                self._balance(groups[-3], groups[-2], path)
        if len(groups) > 1:
            self._balance(groups[-2], groups[-1], path)
        return [reduce(joined, group) for group in groups]

    def _are_beside(self, first: Stretch, second: Stretch, path: tuple[Definition, ...]) -> bool:
        return not first.parts and not second.parts and first.around == path and second.around == path

    def _balance(self, first: list[Stretch], second: list[Stretch], path: tuple[Definition, ...]) -> None:
        """Gives the second of two groups some of the first, where it is small."""
        while (
            len(first) > 1
            and self._are_beside(first[-1], second[0], path)
            and second[-1].end - first[-1].start <= first[-1].end - first[0].start
            and self.fits(first[-1].start, second[-1].end, path)
        ):
            second.insert(0, first.pop())


def text_is_plain(text: str) -> bool:
    """Whether every place in a text is between two characters."""
    return text.isascii() and "\r" not in text


def _window(work: Work) -> int:
    """About how many characters a piece may have."""
    size, tokens = work.limits.size, work.tokens
    if tokens is None or not tokens.total:
        return size
    characters = len(work.document.text) / tokens.total
    if work.unit is SizeUnit.TOKENS:
        size = int(size * characters)
    if work.cap is not None:
        size = min(size, int(work.cap.tokens * characters))
    return max(1, size)
