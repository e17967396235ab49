"""A shorter way to the windows that most texts are made of.

Where windows are counted in characters and begin and end among letters below U+0300, most of what the cutter asks has
one answer. The windows are those that the cutter finds; whatever is not so plain is left to it.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbmesh_chunker.blank import FIRST_SPACE, next_start, skip_blank, trim_end
from kbmesh_chunker.measure import CharacterMeasure
from kbmesh_chunker.sentences import SENTENCE_CLOSERS, Script, sentence_ends, sentence_ends_backwards

if TYPE_CHECKING:
    from kbmesh_chunker.cutter import Cutter, Step

PUNCTUATION_TAIL = 256
"""A rest of the text that is shorter may be punctuation alone."""
_WORD = re.compile("[A-Za-z0-9]")
_JOINING = "\u0300"
"""From here on there are characters that join those before them."""

PlainStep = Callable[[int, int, int], "Step | None"]
"""(start, start of the new text, end of the text) to the window and its follower; None where it is not plain."""


def plain_steps(cutter: "Cutter", step: "type[Step]", script: Script) -> PlainStep | None:
    """The shorter way for a cutter; None where it has a limit in tokens, or its measure is not characters."""
    if cutter.cap is not None or not isinstance(cutter.measure, CharacterMeasure):
        return None
    text, breaks, limits = cutter.text, cutter.breaks, cutter.limits
    size, overlap, minimum = limits.size, limits.overlap, limits.minimum
    structured = breaks.any_within(0, len(text))
    news = max(minimum, overlap)
    rest_at_least = max(minimum, PUNCTUATION_TAIL + 1)

    def plain_step(start: int, fresh: int, end: int) -> "Step | None":
        limit = start + size
        if limit >= end:
            return None
        visible = fresh
        if text[fresh].isspace():
            visible = skip_blank(text, fresh, end)
            if visible >= limit or text[visible] >= _JOINING:
                return None
        lowest = start + minimum
        if start < fresh:
            lowest = max(lowest, fresh + min((limit - fresh) // 2, news))
        lowest = min(max(lowest, visible + 1), limit)
        word = _WORD.search(text, fresh, limit)
        if word is None or word.end() > lowest:
            return None
        if not structured:
            return by_sentence(start, end, lowest, limit)
        cut = breaks.strongest(lowest, limit)
        if cut is not None:
            return by_structure(start, end, cut)
        return None if breaks.any_within(start + 1, limit) else by_sentence(start, end, lowest, limit)

    def by_structure(start: int, end: int, cut: int) -> "Step | None":
        if end - cut < rest_at_least or text[cut] >= _JOINING or text[cut - 1] != "\n":
            return None
        rest = next_start(text, cut, end) if text[cut].isspace() else cut
        if not _says(text, rest, min(end, rest + size)):
            return None
        closing = trim_end(text, start, cut)
        following = rest if not overlap or breaks.parts(rest) else overlapping_lines(start, closing, rest)
        return step(start, closing, following, rest) if following else None

    def by_sentence(start: int, end: int, lowest: int, limit: int) -> "Step | None":
        if not _parted(text, limit) or breaks.sealed(limit):
            return None
        preferred = max(lowest, start + size // 2)
        cut = next(sentence_ends_backwards(text, preferred, limit, script), 0)
        whole = cut > 0
        if not whole:
            cut = text.rfind("\n", preferred, limit) + 1
        if not cut or not _parted(text, cut) or breaks.sealed(cut):
            return None
        rest = _next_word(text, cut) or next_start(text, cut, end)
        if end - rest < rest_at_least or not _says(text, rest, min(end, rest + size)):
            return None
        if structured and (rest > limit or breaks.parts(rest)):
            return None
        closing = cut if whole else trim_end(text, start, cut)
        following = rest if not overlap else overlapping(start, closing, rest)
        return step(start, closing, following, rest) if following else None

    def overlapping_lines(start: int, closing: int, rest: int) -> int:
        """Where the next window starts within the end of this one, at a line; 0 where that is not plain."""
        earliest = max(start + 1, closing - overlap)
        if earliest >= closing or not _parted(text, earliest):
            return 0
        line = breaks.first(earliest, closing - 1)
        if line is not None and not _parted(text, line):
            return 0
        within = max(start, earliest - 4)
        if script.candidate.search(text, within, closing if line is None else line) is not None:
            for sentence in sentence_ends(text, within, closing, script):
                if sentence >= closing or (line is not None and sentence > line):
                    break
                if not _parted(text, sentence):
                    return 0
                following = _next_word(text, sentence) or skip_blank(text, sentence, closing)
                if earliest <= following < closing and (line is None or following <= line):
                    return repeating(following, closing, rest)
        if line is None:
            # What ends with a line repeats whole ones or nothing.
            return rest if breaks.at(rest) else 0
        return repeating(skip_blank(text, line, closing) if text[line].isspace() else line, closing, rest)

    def overlapping(start: int, closing: int, rest: int) -> int:
        """Where the next window starts within the end of this one, at a sentence or else a word; 0 where that is not
        plain."""
        earliest = max(start + 1, closing - overlap)
        if earliest >= closing or not _parted(text, earliest):
            return 0
        for sentence in sentence_ends(text, max(start, earliest - 4), closing, script):
            if sentence >= closing:
                break
            if not _parted(text, sentence):
                return 0
            following = _next_word(text, sentence) or skip_blank(text, sentence, closing)
            if earliest <= following < closing:
                return repeating(following, closing, rest)
        if text[closing - 1] in SENTENCE_CLOSERS:
            # What ends with a sentence repeats whole ones or nothing.
            return rest
        space = FIRST_SPACE.search(text, earliest, closing)
        if space is None or not _parted(text, space.start()):
            return 0
        following = skip_blank(text, space.start(), closing)
        return repeating(following, closing, rest) if following < closing else rest

    def repeating(following: int, closing: int, rest: int) -> int:
        """`following` if a window from there on brings news without a doubt; 0 if not."""
        visible = skip_blank(text, rest, len(text)) if text[rest].isspace() else rest
        plain = visible < following + size and _parted(text, visible + 1)
        return following if plain and _WORD.search(text, following, closing) is not None else 0

    return plain_step


def _next_word(text: str, position: int) -> int:
    """Where the word begins that a single space parts from `position`; 0 where there is none."""
    return position + 1 if text[position] == " " and text[position + 1].isalnum() else 0


def _says(text: str, start: int, end: int) -> bool:
    """Whether there is a letter or a number that ends within text[start:end], with all that is joined to it."""
    word = _WORD.search(text, start, end)
    return word is not None and text[word.end() : word.end() + 1] < _JOINING


def _parted(text: str, position: int) -> bool:
    """Whether two characters end and begin at `position` without a doubt."""
    before, after = text[position - 1], text[position]
    return before < _JOINING and after < _JOINING and not (before == "\r" and after == "\n")
