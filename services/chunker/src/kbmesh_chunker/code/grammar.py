"""Parsing source code with tree-sitter."""

import importlib
import re
import time
from collections.abc import Callable
from functools import cache

import tree_sitter

from kbmesh_chunker.code.languages import Language

_EFFORT = 120_000
"""What parsing may take, in calls of the parser's progress callback: it calls after every hundred steps. A megabyte of
ordinary code takes 5,000, of code without white space 25,000. Counted and not timed, so that the same document always
gives the same chunks."""
_EFFORT_AT_FIRST = 1_000
_CHARACTERS_PER_EFFORT = 16
"""How far the parser has to come with each of these calls, but for the first: what is not code holds it up."""
_ERRORS_AT_FIRST = 100
_CHARACTERS_PER_ERROR = 3_000
"""How far it has to come with each call in which it looks for a way around an error, but for the first. In code with a
bracket too many or too few it takes one in 5,000 characters, in what is no code one in 500."""
_SECONDS = 2.0
_SECONDS_PER_CHARACTER = 1e-6
"""What the processor may take besides: there is text of which each step takes longer than the one before. Ordinary code
takes a sixth of the second of these and nothing of the first."""
_CALLS_BETWEEN_CHECKS = 8
_PAGE = 16 * 1024
_MOST_OPEN = 400
"""Angle brackets that are opened in one statement and not closed. Where they may enclose the arguments of a type, the
parser takes all of them for both, and its memory grows with the square of their number."""
_WITH_ARGUMENTS = frozenset({"csharp", "java", "cpp", "typescript", "tsx", "kotlin", "rust"})
_STATEMENT = re.compile(rb"[^;{}]{%d,}" % _MOST_OPEN)
_BLANKS = "\ufeff\0\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\u200b\u2060" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_CONTINUATIONS = bytes(range(0x80, 0xC0))
_LETTERS = bytes(range(0x80)) + b"z" * 0x80


@cache
def grammar_of(language: Language) -> tree_sitter.Language:
    """The grammar of a language that has one; loaded when it is first needed."""
    assert language.grammar is not None
    module, function = language.grammar
    return tree_sitter.Language(getattr(importlib.import_module(module), function)())


class ParsingStopped(Exception):
    """Parsing takes too much."""

    def __init__(self, position: int, *, broken: bool = False) -> None:
        super().__init__(f"parsing was stopped at {position}")
        self.position = position
        """What is before may be parsed alone; what is wrong is not far behind it, as far as is known."""
        self.broken = broken
        """Whether it takes too much because it is not in the language."""


def parse(
    text: str,
    language: Language,
    checkpoint: Callable[[], None],
    *,
    source: bytes | None = None,
    clock: Callable[[], float] = time.thread_time,
) -> tree_sitter.Tree:
    """The syntax tree of a text, in which a byte is a code point of the text. Raises ParsingStopped.

    `checkpoint` is called now and then, and may raise. `source` is `single_bytes` of the text where that is known, or
    what is to be parsed in its place. `clock` tells the seconds that this thread had.
    """
    if source is None:
        source = single_bytes(text)
    if language.name in _WITH_ARGUMENTS and (place := _too_many_open(source)) is not None:
        raise ParsingStopped(place)
    calls, errors, wrong, stopped = 0, 0, -1, -1
    latest = clock() + _SECONDS + len(source) * _SECONDS_PER_CHARACTER

    def progress(offset: int, has_error: bool) -> bool:
        nonlocal calls, errors, wrong, stopped
        calls += 1
        if has_error:
            errors += 1
            wrong = offset if wrong < 0 else wrong
            if errors > _ERRORS_AT_FIRST and errors > _ERRORS_AT_FIRST + offset // _CHARACTERS_PER_ERROR:
                stopped = offset
        if not calls % _CALLS_BETWEEN_CHECKS:
            checkpoint()
            allowed = min(_EFFORT, _EFFORT_AT_FIRST + offset // _CHARACTERS_PER_EFFORT)
            if calls > allowed or clock() > latest:
                stopped = offset
        return stopped >= 0

    parser = tree_sitter.Parser(grammar_of(language))
    try:
        return parser.parse(lambda offset, _point: source[offset : offset + _PAGE], progress_callback=progress)
    except ValueError:
        # What the binding raises where the progress callback asked it to stop.
        if stopped < 0:
            raise
    raise ParsingStopped(wrong if wrong >= 0 else stopped // 2, broken=errors > _ERRORS_AT_FIRST)


def _too_many_open(source: bytes) -> int | None:
    """Where a statement begins that opens more angle brackets than a parser can bear; None where there is none."""
    if source.count(b"<") <= _MOST_OPEN:
        return None
    for statement in _STATEMENT.finditer(source):
        written = statement.group()
        if written.count(b"<") - 2 * written.count(b"<<") - written.count(b">") > _MOST_OPEN:
            return statement.start()
    return None


def single_bytes(text: str) -> bytes:
    """The text with one byte for each code point, so that a parser's offsets are positions in the text.

    Code is written in ASCII but for names, strings and comments, so that a letter stands for any other character, and
    a space for any other white space.
    """
    if "\r" in text:
        text = _LONE_RETURN.sub("\n", text)
    if text.isascii():
        return text.replace("\0", " ").encode()
    for blank in _BLANKS:
        text = text.replace(blank, " ")
    return text.encode("utf-8", "surrogatepass").translate(_LETTERS, _CONTINUATIONS)
