"""Parsing source code with tree-sitter."""

import importlib
import re
from collections.abc import Callable
from functools import cache

import tree_sitter

from kbmesh_chunker.code.languages import Language

_EFFORT = 120_000
"""What parsing may take, in calls of the parser's progress callback: it calls after every hundred steps. A megabyte of
ordinary code takes 5,000, of code without white space 25,000. Counted and not timed, so that the same document always
gives the same chunks."""
_EFFORT_WITH_ERRORS = 8
"""How much a call costs, in these, once the parser looks for ways around an error."""
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


def parse(text: str, language: Language, checkpoint: Callable[[], None]) -> tree_sitter.Tree | None:
    """The syntax tree of a text, in which a byte is a code point of the text. None where it takes too much.

    `checkpoint` is called now and then, and may raise.
    """
    source = single_bytes(text)
    effort = 0

    def progress(_offset: int, has_error: bool) -> bool:
        nonlocal effort
        effort += _EFFORT_WITH_ERRORS if has_error else 1
        checkpoint()
        return effort > _EFFORT

    parser = tree_sitter.Parser(grammar_of(language))
    try:
        return parser.parse(lambda offset, _point: source[offset:], progress_callback=progress)
    except ValueError:
        # What the binding raises where the progress callback asked it to stop.
        if effort > _EFFORT:
            return None
        raise


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
