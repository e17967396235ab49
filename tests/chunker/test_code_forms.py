"""CODE and the many forms in which languages write a function: each is one, with all that belongs to it."""

import pytest
from chunker.conftest import Chunk
from chunker.test_code import code, symbols, texts

FORMS = {
    "a.py": ("double = lambda x: x * 2\n", "double"),
    "a.js": ("const a = () => 1, b = () => 2;\nlet c = function* () { yield 1; };\n", "a, b, c"),
    "a.ts": ("class A { run = (a: B) => { a(); }; private b = 1; }\n", "A, A.run"),
    "a.go": (
        "package a\n\nvar handle = func(a int) int {\n\treturn a\n}\n\nvar (\n\tb = func() int { return 1 }\n)\n",
        "handle, b",
    ),
    "A.java": (
        "class A {\n  F f = x -> x + 1;\n  R r = new R() { public void run() { } };\n  int n = 1;\n}\n",
        "A, A.f, A.r, A.r.run",
    ),
    "a.rs": ("pub const RUN: fn(i32) -> i32 = |x| { x + 1 };\n", "RUN"),
    "a.cpp": (
        "auto run = [](int x) { return x; };\n"
        "class C {\n  C(int x) {}\n  C(const C&) = delete;\n  ~C() = default;\n};\n",
        "run, C, C::C, C::~C",
    ),
    "a.cs": ("class A\n{\n    F<int, int> f = x => x + 1;\n    int Size => 2;\n}\n", "A, A.f, A.Size"),
    "a.rb": ("add = ->(a, b) { a + b }\ndef double(x) = x * 2\n", "add, double"),
    "a.php": (
        "<?php\nreturn new class extends Migration {\n    public function up(): void {}\n"
        "    public function down(): void {}\n};\n",
        "up, down",
    ),
    "a.sh": ("function hello { echo hello; }\nfunction with-dash() ( echo dash )\n", "hello, with-dash"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
async def test_functions_in_every_form_are_symbols(chunk: Chunk, name: str) -> None:
    text, expected = FORMS[name]
    chunked = await code(chunk, text, name)
    assert set(symbols(chunked)) == set(expected.split(", "))
    assert chunked.warnings == []


OVERLOADS = {
    "a.ts": "/** Gets it. */\nexport function get(a: string): string;\nexport function get(a: number): number;\n"
    "export function get(a: any): any {\n  return a;\n}",
    "b.ts": "/** Gets it. */\nfunction get(a: string): string;\nfunction get(a: any): any {\n  return a;\n}",
    "a.py": "# Gets it.\n@overload\ndef get(a: int) -> int: ...\n@overload\ndef get(a: str) -> str: ...\n"
    "def get(a):\n    return a",
}


@pytest.mark.parametrize("name", OVERLOADS)
async def test_the_signatures_of_a_function_stay_with_its_body(chunk: Chunk, name: str) -> None:
    before, after = ("const a = 1;\n\n", "\n\nfunction other() { }\n")
    if name.endswith(".py"):
        before, after = ("a = 1\n\n", "\n\n\ndef other():\n    pass\n")
    chunked = await code(chunk, before + OVERLOADS[name] + after, name)
    assert OVERLOADS[name] in texts(chunked)
    assert symbols(chunked) == ["get", "other"]


async def test_signatures_without_a_body_stand_for_themselves(chunk: Chunk) -> None:
    listed = "".join(f"  /** Event {number}. */\n  on(event: 'e{number}'): void;\n" for number in range(80))
    chunked = await code(chunk, f"interface Events {{\n{listed}}}\n", "a.ts", size=400)
    assert all(len(text) <= 400 and text.count("/**") == text.count("*/") for text in texts(chunked))
    assert all(text.count("/** Event") == text.count("on(event") for text in texts(chunked)[1:])


ANNOTATED = {
    "A.java": ('@Entity\n@Table(name = "carts", schema = "shop_of_the_year")\npublic class Cart {{\n{}}}\n',
               "  @Get\n  int run{}() {{ return 1; }}\n\n", "public class Cart"),
    "a.kt": ('@Entity\n@Table(name = "carts", schema = "shop_of_the_year")\nclass Cart {{\n{}}}\n',
             "  @Get\n  fun run{}(): Int {{ return 1 }}\n\n", "class Cart"),
    "a.cs": ('[Entity]\n[Table("carts", Schema = "shop_of_the_year")]\npublic class Cart\n{{\n{}}}\n',
             "  [Get]\n  int Run{}() {{ return 1; }}\n\n", "public class Cart"),
    "a.php": ("<?php\n#[Entity]\n#[Table(name: 'carts', schema: 'shop_of_the_year')]\nfinal class Cart\n{{\n{}}}\n",
              "  #[Get]\n  function run{}() {{ return 1; }}\n\n", "final class Cart"),
    "a.ts": ("@Injectable({{ providedIn: 'root', of: 'shop_of_the_year' }})\nexport class Cart {{\n{}}}\n",
             "  @Get()\n  run{}() {{ return 1; }}\n\n", "export class Cart"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANNOTATED)
async def test_a_class_introduces_itself_by_its_name_and_not_by_its_annotations(chunk: Chunk, name: str) -> None:
    around, member, signature = ANNOTATED[name]
    text = around.format("".join(member.format(number) for number in range(20)))
    chunked = await code(chunk, text, name, size=300)
    contexts = [each.piece.context for each in chunked.chunks if each.piece.heading_path == ("Cart",)]
    assert set(contexts[1:]) == {signature}
    assert all(found.count("Get") == found.lower().count("run") for found in texts(chunked)[1:])
