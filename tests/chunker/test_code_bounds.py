"""CODE holds the laws for whatever is called code: real files, broken ones, huge and hostile ones."""

import ast
import asyncio
import textwrap
from concurrent.futures import Executor
from pathlib import Path

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.test_code import code, texts
from chunker.test_code_languages import SOURCES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable, Reason

FILES = {path.name: path.read_bytes() for path in sorted((Path(__file__).parent.parent / "data" / "code").iterdir())}
CONFIGS = [
    {},
    {"size": 1},
    {"size": 40},
    {"size": 300, "overlap": 60},
    {"size": 600, "minimum": 200},
    {"size": 400, "minimum": 400},
    {"size": 100_000},
    {"size": 90, "unit": "tokens", "embedding_model": "word-pieces"},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("name", FILES)
async def test_real_files(chunk: Chunk, name: str, config: dict[str, object]) -> None:
    await code(chunk, FILES[name], name, **config)


async def test_no_function_that_fits_is_cut_and_every_definition_parses(chunk: Chunk) -> None:
    text = FILES["httpx_models.py"].decode()
    lines = text.splitlines(keepends=True)
    functions = [
        "".join(lines[min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1 : node.end_lineno]).strip()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    for size in (700, 1500, 4000):
        chunked = await code(chunk, text, "models.py", size=size)
        found = texts(chunked)
        for function in functions:
            assert len(function) > size - 16 or any(function in each for each in found)
        for each in chunked.chunks:
            if each.piece.type == "definition" and "part" not in each.piece.metadata:
                ast.parse(textwrap.dedent(each.text))


async def test_lines_are_those_of_the_file(chunk: Chunk) -> None:
    for newline in ("\n", "\r\n", "\r"):
        text = FILES["checkout_main.go"].decode().replace("\n", newline)
        lines = text.split(newline)
        for each in (await code(chunk, text, "main.go", size=500)).chunks:
            first, last = int(each.piece.metadata["start_line"]), int(each.piece.metadata["end_line"])
            assert each.text.split(newline)[0].strip() in lines[first - 1]
            assert each.text.split(newline)[-1].strip() in lines[last - 1]
            assert last - first == each.text.count(newline)


HOSTILE = {
    "parentheses.py": "x = " + "(" * 20_000 + ")" * 20_000,
    "open.js": "(" * 20_000,
    "braces.c": "void f() {" + "{" * 20_000 + "}" * 20_000 + "}",
    "classes.java": "class A{" * 5_000 + "}" * 5_000,
    "functions.py": "".join(" " * depth + f"def f{depth}():\n" for depth in range(300)) + " " * 300 + "pass\n",
    "else_if.js": "if(a){function f(){}}" + "else if(b){x()}" * 5_000,
    "objects.js": "export const d = " + '{"a":' * 5_000 + "1" + "}" * 5_000,
    "plus.py": "x = " + " + ".join(["aaaa"] * 20_000),
    "string.py": "x = '" + "abc def " * 20_000 + "'",
    "comment.c": "/*" + "abc def " * 20_000 + "*/\nint x;",
    "small.js": "function a(b,c){return b+c*2;}var x={a:1,b:[1,2,3]};" * 2_000,
    "names.py": "class " + "A" * 5_000 + ":\n" + "".join(f"    def f{n}(self): pass\n" for n in range(500)),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_files(chunk: Chunk, name: str) -> None:
    chunked = await code(chunk, HOSTILE[name], name)
    for each in chunked.chunks:
        assert sum(len(key) + len(value) for key, value in each.piece.metadata.items()) < 8_000
        assert len(each.piece.context) <= 450


async def test_what_is_no_code_at_all_is_cut_between_lines(chunk: Chunk) -> None:
    text = "It is a truth universally acknowledged, that a single man must be in want of a wife; alas!\n" * 40
    chunked = await code(chunk, text, "novel.java")
    assert [warning.reason for warning in chunked.warnings] == [Reason.DOCUMENT_UNREADABLE]
    assert {each.piece.metadata["fallback"] for each in chunked.chunks} == {"lines"}


async def test_a_long_text_that_has_hardly_a_line_is_not_parsed(executor: Executor) -> None:
    text = "function a(b,c){return b+c*2;}var x={a:1,b:[1,2,3]};" * 25_000
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)
    source = SourceDocument(content=text, filename="bundle.min.js")
    chunked = await chunker.chunk(source, ConfigRequest(strategy=Strategy.CODE), deadline=None)
    assert [warning.reason for warning in chunked.warnings] == [Reason.DOCUMENT_TOO_LARGE]
    assert all(each.piece.metadata["fallback"] == "lines" and len(each.text) <= 1500 for each in chunked.chunks)


async def test_definitions_beside_an_error_are_found(chunk: Chunk) -> None:
    good = "def good(value):\n    return value\n\n\n"
    chunked = await code(chunk, good * 3 + "x = = 3 )\n\n\n" + good, "main.py")
    assert [each.piece.metadata.get("symbol") for each in chunked.chunks].count("good") == 4
    assert [warning.reason for warning in chunked.warnings] == [Reason.DOCUMENT_UNREADABLE]
    assert any("fallback" in each.piece.metadata for each in chunked.chunks)


TRICKY = st.sampled_from(
    [*"{}()[]<>:;,.\"'`#@\\\n\r\t =+", "\r\n", "\n\n", "\u0301", "\u200d", "🇩🇪", "é", "\u00a0", "\u2028", "\ufeff",
     "def f():\n    pass\n", "class A {", "end\n", "/*", "*/", "//", '"""', "<?php ", "?>", "#ifdef X\n", "#endif\n"]
)  # fmt: skip


@given(
    name=st.sampled_from(sorted(SOURCES)),
    edits=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 60), st.lists(TRICKY, max_size=4)), max_size=6),
    size=st.integers(1, 300),
    minimum=st.integers(0, 300),
    overlap=st.integers(0, 299),
)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_code_with_anything_in_it(
    executor: Executor,
    name: str,
    edits: list[tuple[int, int, list[str]]],
    size: int,
    minimum: int,
    overlap: int,
) -> None:
    text = SOURCES[name][0]
    for place, removed, added in edits:
        place %= len(text) + 1
        text = text[:place] + "".join(added) + text[place + removed :]
    check(executor, text, name, size, minimum, overlap)


@given(text=st.lists(TRICKY, max_size=80).map("".join), name=st.sampled_from(sorted(SOURCES)), size=st.integers(1, 60))
@example(text="\r\r{", name="A.java", size=1)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_as_code(executor: Executor, text: str, name: str, size: int) -> None:
    check(executor, text, name, size, 0, 0)


def check(executor: Executor, text: str, name: str, size: int, minimum: int, overlap: int) -> None:
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)
    request = ConfigRequest(
        strategy=Strategy.CODE, size=size, minimum=min(minimum, size), overlap=min(overlap, size - 1)
    )
    try:
        chunked = asyncio.run(chunker.chunk(SourceDocument(content=text, filename=name), request, deadline=None))
    except (DocumentEmpty, DocumentUnreadable):
        return
    check_laws(chunked)
