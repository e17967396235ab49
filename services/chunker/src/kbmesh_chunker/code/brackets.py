"""Brackets that are open or closed where the layout of a text says otherwise.

A parser takes what is behind a bracket without a partner for what is in it, and may lose all of a file to one slip. How
its lines are indented tells mostly where the slip is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kbmesh_chunker.code.languages import Language

_PARTNERS = {b")": b"(", b"]": b"[", b"}": b"{"}
_CLOSERS = {opener: closer for closer, opener in _PARTNERS.items()}
_HASH_COMMENTS = frozenset({"python", "ruby", "bash", "php"})
_SHORT_QUOTES = frozenset({"rust", "c", "cpp", "csharp", "java", "kotlin", "go"})
"""Languages in which a single quote encloses a character, or none at all."""
_GOES_ON = re.compile(
    rb"[ \t]*(?:[.,:?|&+*/=<>)\]}-]|(?:case|default|public|private|protected|else|catch|finally)\b|#)"
)
_KOTLIN = re.compile(
    rb'"""(?s:.*?)(?:"""|\Z)|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.[^\'\n]{0,8}|[^\'\\\n])\'|//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)'
    rb"|(?P<close>(?<=[^\s{;]) (?= *\}))|(?P<fun>\bfun(?= +interface\b))"
)
_MAGIC = re.compile(rb"^([ \t]*)(?:%(?=%?[A-Za-z])|!(?=[A-Za-z./{]))", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A text whose slips are mended, of the same length."""

    source: bytes
    places: tuple[tuple[int, int], ...]
    """What was mended, and was wrong before."""


def repaired(source: bytes, language: Language) -> Iterator[Repaired]:
    """Ways to mend a text that its grammar does not understand; a parser tells which of them is one."""
    if language.name == "kotlin":
        # Its grammar wants a statement on a line to be ended before the bracket that closes what is around it, and
        # knows no interface of one function. Both are right, so that nothing is said about them.
        source = _KOTLIN.sub(_as_known, source)
        yield Repaired(source=source, places=())
    elif language.name == "python" and _MAGIC.search(source) is not None:
        # What only notebooks know, such as `%matplotlib inline` and `!pip install`.
        source = _MAGIC.sub(rb"\1#", source)
        yield Repaired(source=source, places=())
    mended, places = _balanced(source, language)
    if places:
        yield Repaired(source=mended, places=tuple(places))


def _as_known(found: "re.Match[bytes]") -> bytes:
    if found.group("close") is not None:
        return b"\n"
    return b"   " if found.group("fun") is not None else found.group()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Open:
    kind: bytes
    place: int
    indent: int
    """Of the line on which it is opened."""


def _balanced(source: bytes, language: Language) -> tuple[bytes, list[tuple[int, int]]]:
    """The text with a partner for each bracket, or without those that have none, and the lines on which they were."""
    mended = bytearray(source)
    places: list[tuple[int, int]] = []
    stack: list[_Open] = []

    def drop(place: int) -> None:
        mended[place : place + 1] = b" "
        places.append((source.rfind(b"\n", 0, place) + 1, _line_end(source, place)))

    def give_up(one: _Open, before: int) -> None:
        """A bracket that is still open where its line's indentation has ended."""
        room = len(source[:before].rstrip())
        if one.kind != b"{" or room >= before:
            drop(one.place)
            return
        mended[room : room + 1] = _CLOSERS[one.kind]
        places.append((source.rfind(b"\n", 0, room) + 1, _line_end(source, room)))

    line_start = indent = 0
    for token in _tokens(language).finditer(source):
        if token.lastgroup is None:
            continue
        place, written = token.start(), token.group()
        if token.lastgroup == "line":
            line_start = place
            indent = len(written)
            if not written and source[place : place + 1] in {b"", b"\n", b"\r"}:
                continue
            goes_on = _GOES_ON.match(source, place) is not None
            while (
                stack
                and not goes_on
                and indent <= stack[-1].indent
                and source[place + indent : place + indent + 1] != stack[-1].kind
            ):
                give_up(stack.pop(), place)
            continue
        if token.lastgroup == "open":
            stack.append(_Open(kind=written, place=place, indent=indent))
            continue
        if not stack or all(one.kind != _PARTNERS[written] for one in stack[-8:]):
            drop(place)
            continue
        first = not source[line_start:place].strip()
        if first and stack[-1].kind == _PARTNERS[written] and indent > stack[-1].indent and written == b"}":
            # It closes what was never opened: its partner stands further left.
            drop(place)
            continue
        while stack[-1].kind != _PARTNERS[written]:
            give_up(stack.pop(), line_start if first else place)
        stack.pop()
    for one in reversed(stack):
        give_up(one, len(source))
    return bytes(mended), places


def _line_end(source: bytes, place: int) -> int:
    end = source.find(b"\n", place)
    return len(source) if end < 0 else end


def _tokens(language: Language) -> "re.Pattern[bytes]":
    """Lines, brackets, and what has neither: strings and comments. Each ends at last where its line or the text does,
    so that nothing is looked at twice."""
    quoted = rb"'(?:\\.[^'\n]{0,8}|[^'\\\n])'" if language.name in _SHORT_QUOTES else rb"'(?:\\.|[^'\\\n])*+'?"
    long = rb"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)"
    comments = rb"#(?!\[)[^\n]*" if language.name in _HASH_COMMENTS else long
    return re.compile(
        rb'"""(?s:.*?)(?:"""|\Z)|' + (rb"'''(?s:.*?)(?:'''|\Z)|" if language.name == "python" else b"")
        + rb'"(?:\\.|[^"\\\n])*+"?|' + quoted + rb"|`[^`]*+(?:`|\Z)|" + comments
        + (b"|" + long if language.name == "php" else b"")
        + rb"|(?P<line>^[ \t]*)|(?P<open>[(\[{])|(?P<close>[)\]}])",
        re.MULTILINE,
    )  # fmt: skip
