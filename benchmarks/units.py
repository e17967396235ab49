"""What should not be cut: sentences, functions, rows of tables and headings, found without kbmesh.

Sentences by pysbd, functions by Python's `ast` and by tree-sitter's grammars, tables and headings by markdown-it-py.
All positions are code points of the file's text.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from markdown_it import MarkdownIt

from benchmarks.corpus import CorpusFile, Kind

MIN_WORDS = 3
"""What has fewer words is no sentence but a label."""
FOLLOWER_CHARACTERS = 40
"""How much of what follows a heading must be in a chunk with it, at most; its first line, if that is shorter."""

_BLANK_LINES = re.compile(r"(?:\r\n?|\n)[ \t]*(?:(?:\r\n?|\n)[ \t]*)+")
_LINE_END = re.compile(r"\r\n?|\n")
_MARKS = re.compile(r"[\s>*+#|-]*(?:\d+[.)]\s+)?")
_ENDS = re.compile(r"[.!?][\"'”’)\]*_`]*$")
_LAYOUT = re.compile(r"[\r\n]\s*(?:[|+*•-]|\d+[.)]\s)")
"""A line of a drawn table or an item of a list: what spans it is no sentence, whatever a splitter of sentences says."""
_CELL = re.compile(r"(?<!\\)\|")
_WORD = re.compile(r"\w+")
_GRAMMARS = {
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "kotlin": ("tree_sitter_kotlin", "language"),
    "bash": ("tree_sitter_bash", "language"),
    "python": ("tree_sitter_python", "language"),
}
_FUNCTIONS = {
    "function_declaration",
    "function_definition",
    "function_item",
    "generator_function_declaration",
    "method_declaration",
    "method_definition",
    "constructor_declaration",
    "local_function_statement",
    "method",
    "singleton_method",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A stretch of a text that should stay whole."""

    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row of a table, below its header."""

    start: int
    end: int
    header_start: int
    header_end: int
    header_cells: tuple[str, ...]
    """Those that hold a word, in lower case, white space made one space."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """What a file holds that should not be cut."""

    sentences: Sequence[Span] = ()
    functions: Sequence[Span] = ()
    rows: Sequence[Row] = ()
    headings: Sequence[Span] = ()
    """From the start of a heading to the first characters of what follows it."""


def find_units(file: CorpusFile) -> Units:
    """The units of a file. Sentences of English prose alone; functions of languages whose grammar is installed."""
    if file.kind is Kind.CODE:
        return Units(functions=list(_functions(file)))
    if file.kind is Kind.PROSE:
        return Units(sentences=list(_sentences(file, _paragraphs(file.text))))
    lines = _lines(file.text)
    tokens = MarkdownIt("commonmark").enable("table").parse(_LINE_END.sub("\n", file.text))
    blocks = [token for token in tokens if token.map]
    paragraphs = [
        (lines[token.map[0]][0], lines[token.map[1] - 1][1])
        for token in blocks
        if token.map and token.type == "paragraph_open"
    ]
    return Units(
        sentences=list(_sentences(file, paragraphs)),
        rows=list(_rows(file.text, blocks, lines)),
        headings=list(_headings(file.text, blocks, lines)),
    )


def missing_units() -> dict[str, str]:
    """What cannot be measured here, and why."""
    missing = {}
    if _segmenter() is None:
        missing["sentences"] = "pysbd is not installed"
    grammars = sorted(language for language in _GRAMMARS if language != "python" and parser(language) is None)
    if grammars:
        missing["functions"] = f"no tree-sitter grammar is installed for {', '.join(grammars)}"
    return missing


@cache
def parser(language: str) -> Any:
    """A tree-sitter parser from the wheel of a single grammar; None where it is not installed."""
    if language not in _GRAMMARS:
        return None
    module, function = _GRAMMARS[language]
    try:
        tree_sitter = import_module("tree_sitter")
        return tree_sitter.Parser(tree_sitter.Language(getattr(import_module(module), function)()))
    except ImportError:
        return None


@cache
def _segmenter() -> Callable[[str], list[str]] | None:
    try:
        pysbd = import_module("pysbd")
    except ImportError:
        return None
    segment: Callable[[str], list[str]] = pysbd.Segmenter(language="en", clean=False).segment
    return segment


def _lines(text: str) -> list[tuple[int, int]]:
    """Start and end of each line, without what ends it."""
    lines = []
    start = 0
    for found in _LINE_END.finditer(text):
        lines.append((start, found.start()))
        start = found.end()
    lines.append((start, len(text)))
    return lines


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for found in _BLANK_LINES.finditer(text):
        if found.start() > start:
            yield start, found.start()
        start = found.end()
    yield start, len(text)


def _sentences(file: CorpusFile, paragraphs: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> Iterator[Span]:
    segment = _segmenter()
    if segment is None or not file.english:
        return
    for start, end in paragraphs:
        marks = _MARKS.match(file.text, start, end)
        start = marks.end() if marks else start
        # pysbd ends a sentence at each line; the characters keep their places.
        content = re.sub(r"[\r\n]", " ", file.text[start:end])
        position = 0
        sentence: Span | None = None
        for piece in segment(content):
            piece = piece.strip()
            found = content.find(piece, position) if piece else -1
            if found < 0:
                continue
            position = found + len(piece)
            if sentence is not None and piece[0].islower():
                # It takes "3.5 in. long" for two.
                sentence = Span(start=sentence.start, end=start + position)
                continue
            if sentence is not None and _is_sentence(file.text, sentence):
                yield sentence
            sentence = Span(start=start + found, end=start + position)
        if sentence is not None and _is_sentence(file.text, sentence):
            yield sentence


def _is_sentence(text: str, span: Span) -> bool:
    content = text[span.start : span.end]
    if _ENDS.search(content) is None or _LAYOUT.search(content) is not None:
        return False
    return len(_WORD.findall(content)) >= MIN_WORDS


def _functions(file: CorpusFile) -> Iterator[Span]:
    yield from _python_functions(file.text) if file.language == "python" else _parsed_functions(file)


def _python_functions(text: str) -> Iterator[Span]:
    lines = _lines(text)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            start, end = lines[first - 1]
            while start < end and text[start] in " \t":
                start += 1
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            last_start, last_end = lines[node.end_lineno - 1]
            tail = text[last_start:last_end].encode()[: node.end_col_offset].decode()
            yield Span(start=start, end=last_start + len(tail))


def _parsed_functions(file: CorpusFile) -> Iterator[Span]:
    parsing = parser(file.language)
    if parsing is None:
        return
    data = file.text.encode()
    pending = [parsing.parse(data).root_node]
    while pending:
        node = pending.pop()
        pending.extend(node.children)
        if node.is_named and node.type in _FUNCTIONS:
            start = len(data[: node.start_byte].decode())
            yield Span(start=start, end=start + len(data[node.start_byte : node.end_byte].decode()))


def _rows(text: str, blocks: Sequence[Any], lines: Sequence[tuple[int, int]]) -> Iterator[Row]:
    header: tuple[int, int] = (0, 0)
    in_body = False
    for token in blocks:
        if token.type == "thead_open":
            header, in_body = lines[token.map[0]], False
        elif token.type == "tbody_open":
            in_body = True
        elif token.type == "tr_open" and in_body:
            start, end = lines[token.map[0]]
            cells = (" ".join(cell.split()).casefold() for cell in _CELL.split(text[header[0] : header[1]]))
            yield Row(
                start=start,
                end=end,
                header_start=header[0],
                header_end=header[1],
                header_cells=tuple(cell for cell in cells if _WORD.search(cell)),
            )


def _headings(text: str, blocks: Sequence[Any], lines: Sequence[tuple[int, int]]) -> Iterator[Span]:
    for token in blocks:
        if token.type != "heading_open" or token.level:
            continue
        after = token.map[1]
        while after < len(lines) and not text[slice(*lines[after])].strip():
            after += 1
        if after < len(lines):
            start, end = lines[after]
            start += len(text[start:end]) - len(text[start:end].lstrip())
            yield Span(start=lines[token.map[0]][0], end=min(end, start + FOLLOWER_CHARACTERS))
