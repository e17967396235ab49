"""How much of a text its grammar understands."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kbmesh_chunker.code.brackets import repaired
from kbmesh_chunker.code.grammar import ParsingStopped, parse, single_bytes
from kbmesh_chunker.code.languages import Language
from kbmesh_chunker.code.outline import Outline
from kbmesh_chunker.code.syntax import syntax_of

_MOST_BROKEN = 0.35
"""Where more than this share of a file makes no sense to the grammar, its tree says nothing."""
_MOST_REPAIRED = 256 * 1024
"""Characters of a file whose brackets are looked at."""
_TRIES = 3
_LEAST = 1024
"""Characters of the start of a text that are worth parsing where the rest is not."""
_PRESSED = 1024 * 1024
_LONG_LINE = 5000
_NEAR = 16 * 1024


@dataclass(frozen=True, kw_only=True)
class Understanding:
    """What a grammar made of a text."""

    outline: Outline | None
    """What is wrong stands in its `errors`, up to the end of the text. None where it says nothing."""
    stopped: bool = False
    """Whether parsing all of it would take too long."""


def understand(text: str, language: Language, checkpoint: Callable[[], None]) -> Understanding:
    """The outline of a text, or of its start where the rest is no code or takes too long to parse.

    `checkpoint` is called now and then, and may raise.
    """
    if _is_pressed(text):
        return Understanding(outline=None, stopped=True)
    end = len(text)
    stopped = False
    for _ in range(_TRIES):
        if end < min(_LEAST, len(text)):
            break
        try:
            outline = _outline(text[:end], language, checkpoint)
        except ParsingStopped as error:
            stopped = stopped or not error.broken
            end = _line_before(text, min(error.position, end * 3 // 4))
            continue
        if is_broken(outline, end):
            # What is before the first error may be code all the same.
            end = _line_before(text, min(outline.errors[0][0], end - 1))
            continue
        if end < len(text):
            outline.errors.append((end, len(text)))
        return Understanding(outline=outline, stopped=stopped)
    return Understanding(outline=None, stopped=stopped)


def _outline(text: str, language: Language, checkpoint: Callable[[], None]) -> Outline:
    """Raises ParsingStopped."""
    source = single_bytes(text)
    syntax = syntax_of(language)
    outline = Outline(text, parse(text, language, checkpoint, source=source).root_node, syntax)
    if not outline.errors or len(text) > _MOST_REPAIRED:
        return outline
    places: tuple[tuple[int, int], ...] = ()
    for mended in repaired(source, language):
        try:
            root = parse(text, language, checkpoint, source=mended.source).root_node
        except ParsingStopped:
            continue
        other = Outline(text, root, syntax)
        if _broken(other) < _broken(outline):
            outline, places = other, mended.places
    outline.errors = _united([*outline.errors, *places])
    return outline


def _united(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, none of which touches another."""
    united: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def is_broken(outline: Outline, length: int) -> bool:
    """Whether most of a text makes no sense to the grammar and is in no definition that does."""
    return _broken(outline) > length * _MOST_BROKEN


def _broken(outline: Outline) -> int:
    """Characters that are in an error, and in no definition within it."""
    broken = sum(end - start for start, end in outline.errors)
    starts = [start for start, _ in outline.errors]
    for definition in outline.definitions:
        index = bisect_right(starts, definition.start) - 1
        if index >= 0 and definition.end <= outline.errors[index][1]:
            broken -= definition.end - definition.start
    return broken


def _is_pressed(text: str) -> bool:
    """Whether a text is long and has hardly any lines: a machine made it for machines, by the hundred thousand
    definitions."""
    return len(text) > _PRESSED and len(text) > _LONG_LINE * text.count("\n")


def _line_before(text: str, position: int) -> int:
    """The start of the last line before a position, of one without indentation after a blank line where there is one
    near."""
    near = max(0, position - _NEAR)
    place = text.rfind("\n", near, position) + 1
    while (blank := text.rfind("\n\n", near, position)) >= 0:
        if text[blank + 2 : blank + 3] not in {" ", "\t", "\n", "\r", "}", ")", "]"}:
            return blank + 2
        position = blank
    return place
