"""Which neighbouring stretches of source code are better off in one piece."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from kbmesh_chunker.blank import substance_end
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.outline import Outline
from kbmesh_chunker.code.stretch import Stretch, joined, shared
from kbmesh_chunker.code.syntax import Role, Syntax
from kbmesh_chunker.context import Context
from kbmesh_chunker.strategies.port import Work

CLOSING_CHARACTERS = 64
"""What only closes something has these at most."""
_TINY_SHARE = 12
_MEMBER_SHARE = 4


class Room(Protocol):
    """Tells what fits into a piece."""

    def fits(self, start: int, end: int, path: Sequence[Definition]) -> bool:
        """Whether text[start:end] fits with the context that it has within `path`."""

    def context_of(self, path: Sequence[Definition], start: int, end: int) -> Context:
        """The context of text[start:end] within `path`."""


class Merging:
    """Joins stretches of one text."""

    def __init__(self, work: Work, outline: Outline, syntax: Syntax, room: Room, window: int) -> None:
        """`window` is about how many characters a piece may have."""
        self._work = work
        self._text = work.document.text
        self._outline = outline
        self._syntax = syntax
        self._room = room
        self._window = window

    def all(self, found: Sequence[Stretch]) -> list[Stretch]:
        """The stretches of a text, in order, without those that should not stand alone."""
        return self._merge_small(self._merge_tiny(self._merge_stubs(found)))

    def _merge_stubs(self, found: Sequence[Stretch]) -> list[Stretch]:
        """Lets nothing stand alone that is only punctuation, and keeps together what is on one line, as all is in code
        that a machine made small."""
        merged: list[Stretch] = []
        for stretch in found:
            if merged and self._belongs(merged[-1], stretch) and self._may_join(merged[-1], stretch):
                merged[-1] = joined(merged[-1], stretch)
            else:
                merged.append(stretch)
        return merged

    def _belongs(self, first: Stretch, second: Stretch) -> bool:
        if "\n" not in self._text[first.end : second.start + 1] and not (first.parts and second.parts):
            return True
        return self._stub(second) or self._stub(first)

    def _stub(self, stretch: Stretch) -> bool:
        return (
            stretch.end - stretch.start <= CLOSING_CHARACTERS
            and substance_end(self._text, stretch.start, stretch.end) is None
        )

    def _merge_tiny(self, found: Sequence[Stretch]) -> list[Stretch]:
        """Lets no statement stand alone that says little, such as `main();`, and puts what is small and of one type
        together, where the language has its methods outside it."""
        merged: list[Stretch] = []
        for stretch in found:
            last = merged[-1] if merged else None
            if last is None or not last.whole or last.around != stretch.around or stretch.parts or last.parts:
                merged.append(stretch)
            elif stretch.about is None and not stretch.whole:
                if (
                    stretch.end - stretch.start <= self._window // _TINY_SHARE
                    and not self._is_comment(stretch)
                    and not self._outline.errors
                    and self._room.fits(last.start, stretch.end, last.around)
                ):
                    merged[-1] = replace(last, end=stretch.end)
                else:
                    merged.append(stretch)
            elif (
                self._is_owned(last, stretch)
                and min(last.end - last.start, stretch.end - stretch.start) <= self._window // _MEMBER_SHARE
                and self._room.fits(last.start, stretch.end, last.around)
            ):
                owner = _owner(stretch)
                about = last.about if last.about is not None and last.about.role is not Role.FUNCTION else None
                merged[-1] = replace(last, end=stretch.end, about=about, owner=owner)
            else:
                merged.append(stretch)
        return merged

    def _is_comment(self, stretch: Stretch) -> bool:
        """Whether a stretch is one comment, which speaks of what follows."""
        node = self._outline.root.named_descendant_for_byte_range(stretch.start, stretch.end)
        return node is not None and node.kind_id in self._syntax.leading

    def _is_owned(self, first: Stretch, second: Stretch) -> bool:
        """Whether two neighbours are of one type, beside which its methods stand."""
        return self._syntax.beside and bool(owner := _owner(second)) and _owner(first) == owner

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
                merged[-1] = joined(merged[-1], stretch)
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
        context = self._room.context_of(shared(first.path, second.path), first.start, second.end)
        return work.cap.measure.length(first.start, second.end) + context.tokens <= work.cap.tokens


def _owner(stretch: Stretch) -> str:
    """The type that a stretch is of."""
    about = stretch.about
    if about is None:
        return stretch.owner
    return about.name if about.role is not Role.FUNCTION else about.name.rpartition(".")[0]
