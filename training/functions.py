"""Functions of Python sources, each with what its docstring says first."""

import ast
import re
from dataclasses import dataclass

_SENTENCE = re.compile(r"(.+?)(?:[.:](?=\s|$)|\n\s*\n|$)", re.DOTALL)
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[A-Za-z]+[0-9]*")

LINES = range(4, 45)
"""Of a function, its docstring included."""
WORDS = range(4, 26)
"""Of the sentence."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function that says what it does."""

    name: str
    sentence: str
    """The first of its docstring, without markup and its full stop."""
    whole: str
    """Its source."""
    bare: str
    """Its source without the docstring."""

    @property
    def asked(self) -> str:
        """Its name, as someone would ask a search engine for it."""
        return "python " + " ".join(word.lower() for word in _WORD.findall(self.name.replace("_", " ")))


def functions_of(source: str) -> list[Function]:
    """In order. What cannot be parsed has none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = source.splitlines()
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        documented = ast.get_docstring(node)
        first = node.body[0]
        if not documented or len(node.body) < 2 or node.end_lineno - node.lineno + 1 not in LINES:
            continue
        sentence = _first_sentence(documented)
        if sentence is None or node.name.startswith(("test", "__")) or first.end_lineno is None:
            continue
        whole = _outdented(lines[node.lineno - 1 : node.end_lineno])
        bare = _outdented([*lines[node.lineno - 1 : first.lineno - 1], *lines[first.end_lineno : node.end_lineno]])
        found.append(Function(name=node.name, sentence=sentence, whole=whole, bare=bare))
    return found


def _first_sentence(documented: str) -> str | None:
    """None where it is no sentence in plain words."""
    matched = _SENTENCE.match(documented.strip())
    if matched is None:
        return None
    sentence = _SPACE.sub(" ", re.sub(r":[a-z]+:|[`*]+", "", matched[1])).strip()
    words = sentence.split()
    if len(words) not in WORDS or not sentence.isascii() or sentence.startswith((">>>", ":", "@", "-", "=")):
        return None
    return sentence


def _outdented(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)
