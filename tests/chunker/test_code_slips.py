"""CODE and files that are not quite right: one slip does not cost the structure of all that is around it."""

import pytest
from chunker.conftest import Chunk
from chunker.test_code import code, symbols, texts
from kbmesh_chunker.code.brackets import repaired
from kbmesh_chunker.code.grammar import ParsingStopped, parse, single_bytes
from kbmesh_chunker.code.languages import LANGUAGES
from kbmesh_rpc.errors import Reason

KOTLIN = """package shop

object Shop { fun open() = 1 }

interface Shape { fun area(): Double
    fun name() = "shape" }

enum class State { OPEN { override fun code() = 1 }, CLOSED; open fun code() = 0 }

fun interface Step { fun take() }

val told = "a }"

class Cart(val size: Int) {
    // Doubles it.
    fun double() = Cart(size * 2)
    companion object { fun empty() = Cart(0) }
}
"""


async def test_kotlin_may_close_a_bracket_on_the_line_of_a_statement(chunk: Chunk) -> None:
    chunked = await code(chunk, KOTLIN, "shop.kt")
    assert chunked.warnings == []
    assert symbols(chunked) == [
        "Shop", "Shop.open", "Shape", "Shape.area", "Shape.name", "State", "State.code", "Step", "Step.take",
        "Cart", "Cart.double", "Cart.empty",
    ]  # fmt: skip
    assert not any("fallback" in each.piece.metadata for each in chunked.chunks)


MEMBERS = {
    "a.kt": ("class Cart {\n", "    fun run{n}(a: Int): Int {\n        step(a)\n        return a\n    }\n\n", "}\n"),
    "a.rs": ("impl Cart {\n", "    fn run{n}(a: i32) -> i32 {\n        step(a);\n        a\n    }\n\n", "}\n"),
    "a.cs": ("class Cart\n{\n", "    int Run{n}(int a)\n    {\n        Step(a);\n        return a;\n    }\n\n", "}\n"),
    "a.ts": ("class Cart {\n", "  run{n}(a: number) {\n    step(a);\n    return a;\n  }\n\n", "}\n"),
    "a.go": ("package a\n\n", "func Run{n}(a int) int {\n\tstep(a)\n\treturn a\n}\n\n", ""),
    "a.sh": ("set -e\n\n", "run{n}() {\n  step $(echo a)\n  echo {1}\n}\n\n", ""),
    "a.py": ("class Cart:\n", "    def run{n}(self, a):\n        step(a)\n        return [a]\n\n", ""),
    "a.php": ("<?php\nclass Cart\n{\n", "    function run{n}($a)\n    {\n        step($a);\n    }\n\n", "}\n"),
}


# In a script of a shell a brace that closes a function stands on a line of its own, for which there is no room.
SLIPS = [(name, slip) for name in MEMBERS for slip in ("step(", "step)", "brace") if (name, slip) != ("a.sh", "brace")]


@pytest.mark.parametrize(("name", "slip"), SLIPS)
async def test_one_bracket_without_a_partner_costs_its_function_alone(chunk: Chunk, name: str, slip: str) -> None:
    head, member, tail = MEMBERS[name]
    members = [member.replace("{n}", str(number)) for number in range(12)]
    if slip == "step(":
        members[4] = members[4].replace("(a)\n", "(a\n").replace("(a);", "(a;").replace("($a);", "($a;")
    elif slip == "step)":
        members[4] = members[4].replace("return", "return)").replace(" a\n", " a)\n").replace("echo {", "echo }")
    else:
        members[4] = members[4].replace("}\n\n", "\n")
    chunked = await code(chunk, head + "".join(members) + tail, name)
    found = {symbol.rpartition(".")[2].lower() for symbol in symbols(chunked)}
    assert {f"run{number}" for number in range(12) if number not in {4, 5}} <= found
    broken = {warning.reason for warning in chunked.warnings}
    assert broken <= {Reason.DOCUMENT_UNREADABLE}
    assert not any(each.piece.type == "lines" for each in chunked.chunks)


async def test_magics_of_notebooks_are_no_slips(chunk: Chunk) -> None:
    text = "%matplotlib inline\n!pip install pumps\n\ndef power(flow):\n    return flow\n"
    chunked = await code(chunk, text, "a.py")
    assert chunked.warnings == []
    assert symbols(chunked) == ["power"]


async def test_a_mended_text_has_its_old_length() -> None:
    text = "class A { fun f() = 1 }\nfun interface B { }\nfun g( {\n  x(]\n\nfun h() { }\n"
    source = single_bytes(text)
    for mended in repaired(source, LANGUAGES["kotlin"]):
        assert len(mended.source) == len(source)


@pytest.mark.parametrize("name", ["a.cs", "a.java", "a.cpp", "a.ts", "a.kt", "a.rs"])
async def test_what_may_be_types_or_comparisons_without_end_is_not_parsed(chunk: Chunk, name: str) -> None:
    for unit in ("A<", "A<\n"):
        chunked = await code(chunk, unit * 20_000, name)
        assert [warning.reason for warning in chunked.warnings] == [Reason.DOCUMENT_TOO_LARGE]
        assert all(each.piece.metadata["fallback"] == "lines" for each in chunked.chunks)


async def test_comparisons_and_shifts_are_parsed(chunk: Chunk) -> None:
    flags = "".join(f"  F{number} = 1 << {number % 31},\n" for number in range(600))
    rows = "".join(f"  if (a < {number}) {{ b(); }}\n" for number in range(600))
    chunked = await code(chunk, f"enum Flags {{\n{flags}}};\nvoid run(int a) {{\n{rows}}}\n", "a.cpp")
    assert chunked.warnings == []
    assert symbols(chunked) == ["Flags", "run"]


def test_parsing_stops_where_the_parser_does_not_come_on() -> None:
    garbage = "?)}]%$ = ( ) def ,, :: 3x <<< ]]\n" * 2_000
    with pytest.raises(ParsingStopped) as stopped:
        parse(garbage, LANGUAGES["java"], lambda: None)
    assert stopped.value.position < len(garbage)


def test_parsing_stops_when_its_time_is_over() -> None:
    seconds = iter(range(1_000))
    with pytest.raises(ParsingStopped):
        parse(
            "def good(value):\n    return value\n\n\n" * 500, LANGUAGES["python"], lambda: None, clock=seconds.__next__
        )


async def test_a_text_that_stops_the_parser_keeps_what_is_before(chunk: Chunk) -> None:
    good = "".join(f"class Good{number} {{ int size() {{ return 1; }} }}\n\n" for number in range(200))
    chunked = await code(chunk, good + "f(a)(" * 20_000, "A.java")
    assert "Good150" in symbols(chunked)
    assert {warning.reason for warning in chunked.warnings} == {Reason.DOCUMENT_UNREADABLE}
    assert texts(chunked)[-1].endswith("f(a)(")
