"""CODE cuts no function that fits, and what it must cut, it cuts into even parts that say what they are of."""

import asyncio
from concurrent.futures import Executor
from functools import cache

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from chunker.test_code import code, texts
from chunker.test_code_bounds import FILES
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.code.definition import Definition
from kbmesh_chunker.code.grammar import parse
from kbmesh_chunker.code.languages import language_by_name
from kbmesh_chunker.code.outline import Outline
from kbmesh_chunker.code.syntax import Role, syntax_of
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.errors import Cancelled, Reason

LANGUAGES = {"java": "java", "tsx": "tsx", "cs": "csharp", "go": "go", "py": "python", "php": "php", "kt": "kotlin",
             "rs": "rust", "cpp": "cpp", "ts": "typescript"}  # fmt: skip
PARSED = sorted(name for name in FILES if name.rpartition(".")[2] in LANGUAGES and name != "index.php")


@cache
def functions(name: str) -> list[tuple[int, int, int]]:
    """Start with the comments above, start, and end of the functions of a file that hold no other."""
    text = FILES[name].decode()
    language = language_by_name(LANGUAGES[name.rpartition(".")[2]])
    assert language is not None
    tree = parse(text, language, lambda: None)
    assert tree is not None
    outline = Outline(text, tree.root_node, syntax_of(language))
    found: list[tuple[int, int, int]] = []
    waiting: list[Definition] = list(outline.definitions)
    while waiting:
        definition = waiting.pop()
        inner = outline.open(definition)
        waiting.extend(inner)
        if definition.role is Role.FUNCTION and not inner:
            end = definition.node.start_byte + len(text[definition.node.start_byte : definition.node.end_byte].rstrip())
            found.append((definition.start, definition.node.start_byte, end))
    return found


def check_functions(executor: Executor, name: str, size: int, minimum: int) -> None:
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)
    request = ConfigRequest(strategy=Strategy.CODE, size=size, minimum=min(minimum, size))
    source = SourceDocument(content=FILES[name], filename=name)
    chunked = asyncio.run(chunker.chunk(source, request, deadline=None))
    check_laws(chunked)
    spans = [(each.piece.start, each.piece.end) for each in chunked.chunks]
    for commented, start, end in functions(name):
        # With the comments above it where both fit, to the last character; else the function alone is whole.
        begin = commented if end - commented <= size else start
        if end - begin <= size:
            assert any(first <= begin and end <= last for first, last in spans), chunked.document.text[start:end]


@given(name=st.sampled_from(PARSED), size=st.integers(20, 3_000), minimum=st.sampled_from([0, 0, 200, 1_000]))
@example(name="checkout_main.go", size=1_500, minimum=500)
@example(name="AdService.java", size=1_352, minimum=0)
@example(name="AdService.java", size=1_392, minimum=1_000)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_function_that_fits_is_cut(executor: Executor, name: str, size: int, minimum: int) -> None:
    check_functions(executor, name, size, minimum)


FIRST_OF_A_CLASS = """class AdService {{
  private static final Logger logger = LogManager.getLogger();

  /**
   * Serves ads.
   {comment}
   */
  void serve() {{
{body}  }}
}}
"""


@pytest.mark.parametrize("size", [400, 1_000, 1_500])
@pytest.mark.parametrize("room", [0, 1, 40, 60])
async def test_the_comment_of_the_first_method_leaves_the_head_of_the_class_and_not_the_method(
    chunk: Chunk, size: int, room: int
) -> None:
    """Comment and method fit into a piece with so many characters to spare, and not with the head of the class."""
    comment = "* " + "x" * (size // 5)
    line = "    step();\n"

    def method(body: str) -> tuple[str, int]:
        text = FIRST_OF_A_CLASS.format(comment=comment, body=body)
        return text, text.rindex("  }\n}") + len("  }") - text.index("  /**")

    body = ""
    while method(body + line)[1] <= size - room:
        body += line
    body = body[: -len(line)] + "    step(" + "1" * (size - room - method(body)[1]) + ");\n"
    text, length = method(body)
    assert length == size - room
    chunked = await code(chunk, text, "AdService.java", size=size)
    (whole,) = [each for each in texts(chunked) if "void serve" in each]
    assert whole.lstrip().startswith("/**")
    assert whole.rstrip("}\n ").endswith(");")
    assert texts(chunked)[0].startswith("class AdService")


COMMENTED = [
    (
        "main.go",
        "// Run runs. It is\n" * 40 + "func Run() error {\n" + "\tstep()\n" * 30 + "\treturn nil\n}\n",
        "func Run",
    ),
    ("main.py", "# Runs. It is\n" * 40 + "@cache\ndef run():\n" + "    step()\n" * 30, "@cache\ndef run"),
    (
        "main.rs",
        "/// Runs. It is\n" * 40 + "#[inline]\npub fn run() {\n" + "    step();\n" * 30 + "}\n",
        "#[inline]\npub fn run",
    ),
]


@pytest.mark.parametrize(("name", "text", "start"), COMMENTED)
async def test_a_long_comment_goes_before_the_function_that_it_is_of(
    chunk: Chunk, name: str, text: str, start: str
) -> None:
    chunked = await code(chunk, text, name, size=500)
    assert texts(chunked)[-1].startswith(start)
    assert texts(chunked)[-1].count("step()") == 30
    assert {each.piece.metadata["symbol"].lower() for each in chunked.chunks} == {"run"}
    assert all("un()" in each.piece.context for each in chunked.chunks[:-1])
    assert "part" not in chunked.chunks[-1].piece.metadata


@pytest.mark.parametrize("good", [600, 10_000])
async def test_garbage_after_good_code_is_cut_between_lines(chunk: Chunk, good: int) -> None:
    head = "".join(f"def good{number}(value):\n    return value\n\n\n" for number in range(good))
    garbage = "?)}]%$ = ( ) def ,, :: 3x <<< ]]\n" * 17_000
    chunked = await code(chunk, head + garbage, "main.py")
    (warning,) = chunked.warnings
    assert warning.reason is Reason.DOCUMENT_UNREADABLE
    found = [each for each in chunked.chunks if each.piece.metadata.get("symbol", "").startswith("good")]
    whole = sum("fallback" not in each.piece.metadata for each in found)
    assert whole > good * 0.9
    assert int(warning.metadata["line"]) <= good * 4 + 1
    assert all("fallback" in each.piece.metadata for each in chunked.chunks if each.piece.start >= len(head))


def test_parsing_stops_when_the_caller_has_gone() -> None:
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Cancelled

    language = language_by_name("python")
    assert language is not None
    with pytest.raises(Cancelled):
        parse("def good(value):\n    return value\n\n\n" * 2_000, language, checkpoint)
    assert calls == 3


async def test_what_is_tiny_stands_with_what_is_before_it(chunk: Chunk) -> None:
    text = "import a from 'a';\n\nfunction main() {\n  run();\n}\n\nmain();\n\nfunction other() {\n  stop();\n}\n"
    chunked = await code(chunk, text, "main.js")
    assert [each.piece.type for each in chunked.chunks] == ["statements", "definition", "definition"]
    assert texts(chunked)[1].startswith("function main")
    assert texts(chunked)[1].endswith("main();")
    assert chunked.chunks[1].piece.metadata["symbol"] == "main"


async def test_the_small_methods_of_a_type_stand_together(chunk: Chunk) -> None:
    text = "package a\n\n" + "".join(f"func (s *Shop) Get{name}() int {{ return 1 }}\n\n" for name in "ABC")
    chunked = await code(chunk, text + "func Free() int { return 2 }\n", "a.go")
    assert [each.piece.metadata.get("symbols") for each in chunked.chunks] == [
        None, "Shop.GetA, Shop.GetB, Shop.GetC", "Free",
    ]  # fmt: skip
