"""Notebooks of Jupyter (nbformat 3, 4): Markdown cells as Markdown, code cells as code, the text of their outputs."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbmesh_rpc.errors import DocumentUnreadable, Reason

from kbmesh_chunker.context import SEPARATOR as BETWEEN_HEADINGS
from kbmesh_chunker.documents.block import BlockKind
from kbmesh_chunker.documents.decoding import decode
from kbmesh_chunker.documents.markdown import parse
from kbmesh_chunker.documents.media_type import MARKDOWN, NOTEBOOK, PLAIN, SOURCE_CODE, parse_media_type
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    Grammar,
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

MAX_OUTPUT = 2_000
"""Characters of the outputs of a cell that are kept: the first half of them and the last."""
MAX_WARNINGS = 16
"""Cells that are named one by one where they cannot be read."""
DEFAULT_LANGUAGE = "python"
"""Of notebooks that name none: those of IPython, before there were others."""

_BETWEEN_CELLS = "\n\n"
_MAX_NAME = 80
# A lone surrogate is no character, and NUL is one that databases refuse.
_NO_TEXT = re.compile("[\ud800-\udfff\x00]")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_OBJECT = re.compile(r"<[\w.]+[^<>\n]*>")
_KERNEL = re.compile(r"[a-z+#]+")
_KERNELS = {"ir": "r", "conda": "python", "ipython": "python", "xpython": "python", "xcpp": "c++", "gophernotes": "go"}
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_OTHER_LANGUAGES = {
    "bash": "bash", "sh": "bash", "script": "bash", "javascript": "javascript", "js": "javascript", "ruby": "ruby",
    "perl": "perl", "r": "r", "sql": "sql", "julia": "julia", "html": "", "svg": "", "latex": "", "markdown": "",
    "writefile": "", "file": "",
}  # fmt: skip
"""Of cells that begin with such a magic; empty where it is none that is known. Others are in the notebook's own."""


@dataclass(frozen=True, kw_only=True)
class _Cell:
    number: int
    """From 1, in the order of the notebook."""
    grammar: Grammar
    text: str
    language: str = ""
    output: str = ""


@dataclass(kw_only=True)
class _LeftOut:
    """What is not in the text."""

    characters: int = 0
    """Of outputs that are text."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Outputs that are none, by their media type."""

    def warnings(self) -> tuple[Warning, ...]:
        """One that names all of it, where there is any."""
        told = [f"{count} of {kind}" for kind, count in self.kinds.items()]
        if self.characters:
            told.append(f"{self.characters} characters of text")
        if not told:
            return ()
        metadata = {"left_out": ", ".join(self.kinds), "characters": str(self.characters)}
        message = f"outputs of cells were left out of the text: {', '.join(told)}"
        return (Warning(reason=Reason.CONTENT_LEFT_OUT, message=message, metadata=metadata),)


def read_notebook(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The cells of a notebook in order, those of one kind that follow each other in one document.

    The headings that stand above a document are its context. A cell that cannot be read fails alone. One document of
    no text where nothing is written in any. Raises DocumentUnreadable where it is no notebook.
    """
    declared = parse_media_type(source.media_type)
    warnings: tuple[Warning, ...] = ()
    text = source.content
    if isinstance(text, bytes):
        decoded = decode(text, charset=declared.charset, media_type=NOTEBOOK)
        text, warnings = decoded.text, decoded.warnings
    notebook = _load(text)
    metadata = notebook.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    left_out, broken = _LeftOut(), list[Warning]()
    cells = list(_cells(notebook, _language(metadata), left_out, broken, reading))
    documents = list(_documents(source, cells, reading))
    if not documents:
        documents = [_document(source, Grammar.MARKDOWN, "")]
    title = _text(metadata.get("title")) or next((one.title for one in documents if one.title), "")
    if len(broken) > MAX_WARNINGS:
        more = f"{len(broken) - MAX_WARNINGS} more cells were not read"
        broken[MAX_WARNINGS:] = [Warning(reason=Reason.DOCUMENT_UNREADABLE, message=more)]
    documents[0] = replace(
        documents[0],
        title=" ".join(title.split()),
        metadata={"cells": str(len(cells)), "language": _language(metadata)},
        warnings=(*warnings, *broken, *left_out.warnings()),
    )
    return documents


def _load(text: str) -> dict[str, Any]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentUnreadable(NOTEBOOK, f"it is no JSON: {str(error)[:200]}") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells", notebook.get("worksheets")), list):
        raise DocumentUnreadable(NOTEBOOK, "it is JSON and no notebook: it has no list of cells")
    return notebook


def _language(metadata: dict[str, Any]) -> str:
    for holder, key in (("language_info", "name"), ("kernelspec", "language"), ("kernelspec", "name")):
        held = metadata.get(holder)
        name = held.get(key) if isinstance(held, dict) else None
        if isinstance(name, str) and name.strip():
            name = name.strip().lower()[:_MAX_NAME]
            if key == "language" or holder == "language_info":
                return name
            # Of a kernel, such as `julia-1.9`.
            kernel = _KERNEL.match(name)
            return _KERNELS.get(kernel.group(), kernel.group()) if kernel is not None else name
    return DEFAULT_LANGUAGE


def _raw_cells(notebook: dict[str, Any]) -> Iterator[Any]:
    """The cells as they are written. Before nbformat 4 they stood in sheets."""
    if isinstance(notebook.get("cells"), list):
        yield from notebook["cells"]
        return
    for sheet in notebook["worksheets"]:
        if isinstance(sheet, dict) and isinstance(sheet.get("cells"), list):
            yield from sheet["cells"]
        else:
            yield None


def _cells(
    notebook: dict[str, Any], language: str, left_out: _LeftOut, broken: list[Warning], reading: Reading
) -> Iterator[_Cell]:
    """Those that can be read; a warning is added to `broken` for each of the others."""
    for number, raw in enumerate(_raw_cells(notebook), 1):
        reading.checkpoint()
        try:
            cell = _cell(number, raw, language, left_out)
        except ValueError as error:
            message = f"cell {number} was not read: {error}"
            broken.append(Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message, metadata={"cell": str(number)}))
            continue
        yield cell


def _cell(number: int, raw: Any, language: str, left_out: _LeftOut) -> _Cell:
    """Raises ValueError where it is none."""
    if not isinstance(raw, dict):
        raise ValueError("it is no object")
    kind = raw.get("cell_type")
    text = _text(raw.get("source", raw.get("input", "")), strict=True)
    if kind == "markdown":
        return _Cell(number=number, grammar=Grammar.MARKDOWN, text=text)
    if kind == "heading":
        level = raw.get("level")
        level = min(6, max(1, level)) if isinstance(level, int) else 1
        return _Cell(number=number, grammar=Grammar.MARKDOWN, text=f"{'#' * level} {' '.join(text.split())}")
    if kind == "code":
        own = raw.get("language")
        magic = _CELL_MAGIC.match(text)
        language = str(own).lower()[:_MAX_NAME] if isinstance(own, str) and own.strip() else language
        language = _OTHER_LANGUAGES.get(magic.group(1).lower(), language) if magic is not None else language
        output = _output(raw.get("outputs"), left_out)
        grammar = Grammar.CODE if language else Grammar.PLAIN
        return _Cell(number=number, grammar=grammar, text=text, language=language, output=output)
    if kind in ("raw", "html", "plaintext"):
        return _Cell(number=number, grammar=Grammar.PLAIN, text=text)
    raise ValueError(f"its type {str(kind)[:_MAX_NAME]!r} is not known")


def _text(value: Any, *, strict: bool = False) -> str:
    """Text, which notebooks hold whole or line by line. Raises ValueError where it is none and `strict`."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    if not isinstance(value, str):
        if strict:
            raise ValueError("its source is no text")
        return ""
    return _NO_TEXT.sub("\ufffd", value.replace("\r\n", "\n"))


def _output(outputs: Any, left_out: _LeftOut) -> str:
    """What a cell printed and gave, as a reader of the notebook saw it."""
    shown: list[str] = []
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        data = data if isinstance(data, dict) else output
        text = _text(output.get("text") or data.get("text/plain"))
        if isinstance(output.get("traceback"), list):
            text = f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
        others = [kind for kind in data if "/" in kind and kind != "text/plain"]
        others += [f"image/{kind}" for kind in ("png", "jpeg", "svg") if kind in output]
        for kind in others:
            left_out.kinds[kind[:_MAX_NAME]] = left_out.kinds.get(kind[:_MAX_NAME], 0) + 1
        if others and _OBJECT.fullmatch(text.strip()):
            # It names the object whose picture is shown.
            continue
        shown.append(_as_shown(text))
    written = "\n".join(text for text in shown if text.strip())
    if len(written) <= MAX_OUTPUT:
        return written
    half = MAX_OUTPUT // 2
    left_out.characters += len(written) - 2 * half
    return f"{written[:half].rstrip()}\n…\n{written[-half:].lstrip()}"


def _as_shown(text: str) -> str:
    """Output without what sets colours and moves the cursor: of a line that was written anew, what it said at last."""
    lines = _ESCAPE.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip("\n")


def _documents(source: SourceDocument, cells: Sequence[_Cell], reading: Reading) -> Iterator[TextDocument]:
    headings: list[tuple[int, str]] = []
    run: list[_Cell] = []
    for cell in [*cells, None]:
        together = cell is not None and run and not run[-1].output and _kind(run[-1]) == _kind(cell)
        if run and not together:
            yield from _run(source, run, headings, reading)
            run = []
        if cell is not None and (cell.text.strip() or cell.output):
            run.append(cell)


def _kind(cell: _Cell) -> tuple[Grammar, str]:
    return cell.grammar, cell.language


def _run(
    source: SourceDocument, run: Sequence[_Cell], headings: list[tuple[int, str]], reading: Reading
) -> Iterator[TextDocument]:
    """The document of cells of one kind, and that of what the last of them printed."""
    cells = [cell for cell in run if cell.text.strip()]
    if cells:
        text = _BETWEEN_CELLS.join(cell.text.strip("\r\n") for cell in cells)
        reading.spend_text(len(text))
        # What begins with a heading is not below those of its level.
        found = [block for block in parse(text) if block.kind is BlockKind.HEADING] if _is_markdown(cells) else []
        level = found[0].level if found and not text[: found[0].start].strip() else 7
        context = _path([one for one in headings if one[0] < level])
        title = found[0].title if found and not headings else ""
        yield _document(source, cells[0].grammar, text, context, _numbers(cells), cells[0].language, title)
        for block in found:
            headings[:] = [*(one for one in headings if one[0] < block.level), (block.level, block.title)]
    if run[-1].output:
        reading.spend_text(len(run[-1].output))
        told = f"Output of cell {run[-1].number}"
        context = (*_path(headings), told)
        yield _document(source, Grammar.PLAIN, run[-1].output, context, str(run[-1].number))


def _is_markdown(cells: Sequence[_Cell]) -> bool:
    return cells[0].grammar is Grammar.MARKDOWN


def _path(headings: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    path = BETWEEN_HEADINGS.join(title for _, title in headings if title)
    return (path,) if path else ()


def _numbers(cells: Sequence[_Cell]) -> str:
    first, last = cells[0].number, cells[-1].number
    return str(first) if first == last else f"{first}-{last}"


_MEDIA_TYPES = {Grammar.MARKDOWN: MARKDOWN, Grammar.CODE: SOURCE_CODE, Grammar.PLAIN: PLAIN}


def _document(
    source: SourceDocument,
    grammar: Grammar,
    text: str,
    context: tuple[str, ...] = (),
    numbers: str = "",
    language: str = "",
    title: str = "",
) -> TextDocument:
    return TextDocument(
        text=text,
        media_type=_MEDIA_TYPES[grammar],
        source_type=source.source_type or SourceType.FILE,
        grammar=grammar,
        filename=source.filename,
        language=language,
        title=title,
        context=context,
        chunk_metadata={"cells": numbers} if numbers else {},
    )
