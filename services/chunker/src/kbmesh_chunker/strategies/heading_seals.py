"""Lines that begin like a heading of Markdown, and what holds them to what follows."""

import re

_HEADING_AND_NEXT = re.compile(r"(#{1,6}[ \t][^\r\n]{0,200}\r?\n\s*)[^\r\n]{0,80}")
_LINE_END = re.compile(r"[\r\n]")
HEADING_LINE = 512
"""A line that begins like a heading and what it is held to are shorter, or it is none."""


def find_heading_seals(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """What holds lines of text[start:end] that begin like a heading to what follows, whatever the text is."""
    seals = []
    sign = text.find("#", start, end)
    while sign >= 0:
        before = text[max(start, sign - 4) : sign]
        line = len(before) - len(before.rstrip(" \t"))
        following = sign + 1
        if line < 4 and (line == len(before) or before[-1 - line] in "\r\n"):
            found = _HEADING_AND_NEXT.match(text, sign, end)
            if found is not None:
                seals.append((sign - line, found.end()))
                following = found.end(1)
        elif (line_end := _LINE_END.search(text, sign, end)) is None:
            break
        else:
            # One look at a line is enough, however many signs it has.
            following = line_end.end()
        sign = text.find("#", following, end)
    return seals
