"""What counts as nothing, and how it is kept off the ends of a chunk."""

import re
from collections.abc import Iterator

import regex

from kbmesh_chunker import graphemes

GULF = 262_144
"""So much white space and more is longer than any window may be: what is before and after it is cut alone."""
GULF_EDGE = 64
"""Of a gulf, what is kept before the text after it, which may be indented."""
MAX_INDENT = 32
"""White space before the first line of a chunk is kept up to this width: in code and nested lists it has a meaning."""

FIRST_SPACE = regex.compile(r"\s")
_NEAR = 64
_LOWEST_MARK = "\u0300"
_BLANK = re.compile(r"\s*")
_VISIBLE = regex.compile(r"[^\s\p{Z}\p{Cc}\p{Cf}]")
_SUBSTANCE = regex.compile(r"[\p{L}\p{N}\p{M}\p{So}\p{Sc}\p{Co}\p{Cn}]")
_LAST_SUBSTANCE = regex.compile(r"(?r)[\p{L}\p{N}\p{M}\p{So}\p{Sc}\p{Co}\p{Cn}]")


def is_visible(text: str) -> bool:
    """Whether there is anything to read: more than white space, controls and invisible marks."""
    return _VISIBLE.search(text) is not None


def substance_end(text: str, start: int, end: int) -> int | None:
    """One past the first letter, number or pictograph in text[start:end]; None where all is punctuation."""
    if start < end and text[start].isalnum():
        return start + 1
    found = _SUBSTANCE.search(text, start, end)
    return found.end() if found else None


def last_substance(text: str, start: int, end: int) -> int | None:
    """Where the last letter, number or pictograph of text[start:end] begins; None where all is punctuation."""
    found = _LAST_SUBSTANCE.search(text, start, end)
    return graphemes.floor(text, found.start(), start) if found else None


def skip_blank(text: str, position: int, end: int) -> int:
    """The first position at or after the boundary `position` that is not white space; `end` where all is."""
    if position >= end:
        return end
    if not text[position].isspace():
        return position
    if position + 1 < end and text[position] < _LOWEST_MARK and "!" <= text[position + 1] < "\x7f":
        return position + 1
    found = _BLANK.match(text, position, end)
    first = found.end() if found else position
    if first >= end:
        return end
    # White space may carry a combining mark, and is then the base of a character.
    return graphemes.floor(text, first, position)


def next_start(text: str, position: int, end: int) -> int:
    """Like `skip_blank`, but keeps the indentation of the line that it finds."""
    if position >= end:
        return end
    if position > 0 and not text[position].isspace():
        return position
    first = skip_blank(text, position, end)
    if first >= end:
        return end
    if first == position + 1 and position > 0:
        # One character of white space is a line's end or no indentation, unless a line began before it.
        return position if text[position - 1] == "\n" and text[position] != "\n" else first
    line = text.rfind("\n", max(0, position - 1), first) + 1
    at_line_start = line > 0 or first - position == first
    line = max(line, position)
    return line if at_line_start and first - line <= MAX_INDENT else first


def trim_end(text: str, start: int, end: int) -> int:
    """The end of text[start:end] without the white space that closes it."""
    if start < end and not text[end - 1].isspace():
        return end
    if start + 1 < end and text[end - 1] == "\n" and not text[end - 2].isspace():
        return end - 1
    last, width = end, _NEAR
    while last > start:
        # What is looked at grows with the white space that is found, so that a short run costs little.
        first = max(start, last - width)
        kept = first + len(text[first:last].rstrip())
        if kept > first:
            return end if kept >= end else graphemes.ceiling(text, kept, start)
        last, width = first, width * 4
    return end if start >= end else graphemes.ceiling(text, start, start)


def stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of text[start:end] between its gulfs: runs of white space that no window can span."""
    first = position = start
    while position < end:
        probe = position + GULF - 1
        if probe >= end:
            break
        if not text[probe].isspace():
            # A gulf that begins after `position` and before the probe would hold it.
            position = probe + 1
            continue
        run_start = trim_end(text, first, probe + 1)
        run_end = skip_blank(text, probe, end)
        if run_end - run_start >= GULF:
            if run_start > first:
                yield first, run_start
            first = max(run_start, run_end - GULF_EDGE)
        position = run_end
    if first < end:
        yield first, end
