"""Where code may be cut whose structure is not known: between its lines."""

import re

_BLANK_LINE_OUTSIDE = 4
_OUTSIDE = 3
_BLANK_LINE = 2
_LINE = 1
_LINE_START = re.compile(r"[^\r\n]+")
# Lines that close what is above them, or go on with it.
_CLOSING = re.compile(
    r"[ \t]*(?:[)\]}>;,.]|(?:end|else|elif|elsif|except|rescue|ensure|finally|catch|fi|done|esac)\b|\*/)"
)
# Lines that belong to the line below them.
_LEADING = re.compile(r"[ \t]*(?:#|//|--|;|%|/\*|\*|@|\"\"\"|\[\w+[^\]\r\n]*\]\s*$)")


def line_breaks(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Starts of lines within text[start:end], with their strengths for a cutter: the best is a line without
    indentation after a blank one."""
    breaks: list[tuple[int, int]] = []
    previous = start
    leading = False
    for line in _LINE_START.finditer(text, start, end):
        begin = line.start()
        content = text[begin : min(line.end(), begin + 256)]
        if not content or content.isspace():
            continue
        gap = text[previous:begin]
        blank = gap.count("\n") > 1 or gap.count("\r") > 1 + gap.count("\n")
        if begin > start and not (leading and not blank) and not _CLOSING.match(content):
            if content[0] in " \t":
                strength = _BLANK_LINE if blank else _LINE
            else:
                strength = _BLANK_LINE_OUTSIDE if blank else _OUTSIDE
            breaks.append((begin, strength))
        leading = _LEADING.match(content) is not None
        previous = line.end()
    return breaks
