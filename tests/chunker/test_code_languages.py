"""CODE in every language that has a grammar: which definitions there are, and what belongs to them."""

from itertools import pairwise

import pytest
from chunker.conftest import Chunk
from chunker.test_code import code, symbols, texts
from kbmesh_rpc.errors import Reason

JAVASCRIPT = """import a from "a";
// Adds one.
export const inc = async (x) => {
  return x + 1;
};
module.exports = {
  first() { return 1; },
  second: function () { return 2; },
};
Cart.prototype.total = function () { return 0; };
export class Store extends Base {
  static #size = 1;
  get size() { return 1; }
  clear = () => { };
}
export default function () { return 3; }
const Memo = React.memo((props) => { return props.x; });
"""
TYPESCRIPT = """export interface Item { id: string; price(): number }
export type Pair = {
  left: Item;
  right: Item;
};
enum Colour { Red, Blue }
namespace Shop { export class Till { open(): void { } } }
@Injectable()
export abstract class Service<T> {
  @Get("/")
  async find(id: string) { return id; }
}
"""
GO = """package main

// Server serves.
type Server struct { port int }

type Runner interface { Run() error }

// Run runs it.
func (s *Server) Run(ctx context.Context) error { return nil }

func (s Stack[T]) Push(x T) {}

func main() {}
"""
JAVA = """package shop;

/** A cart. */
@Entity
public class Cart<T> extends Base {
  int size;

  Cart() { }

  @Override
  public int total() { return 0; }

  enum State { OPEN; void close() { } }

  record Line(int count) { }
}
"""
RUST = """use std::fmt;

/// A cart.
#[derive(Debug)]
pub struct Cart<T> { items: Vec<T> }

impl<T> Cart<T> {
    /// Counts.
    #[inline]
    pub fn count(&self) -> usize { 0 }
}

impl<T> fmt::Display for Cart<T> {
    fn fmt(&self) -> fmt::Result { Ok(()) }
}

pub trait Priced { fn price(&self) -> u64; }

mod inner {
    pub fn helper() {}
}

macro_rules! cart { () => {} }
"""
C = """#include <stdio.h>
#ifdef FAST
static int *find(int a) { return 0; }
#else
int slow(void) { return 1; }
#endif
typedef struct { int a; } Item;
struct Cart { int size; };
enum State { OPEN, CLOSED };
"""
CPP = """#include <vector>
namespace shop {
template <typename T>
class Cart : public Base {
 public:
  Cart();
  int total() const { return 1; }
  bool operator==(const Cart& other) const { return true; }
};
}  // namespace shop

int shop::Cart::size() { return 2; }

TEST(Cart, IsEmpty) { check(); }
"""
CSHARP = """using System;
namespace Shop
{
    /// <summary>A cart.</summary>
    [Serializable]
    public class Cart : ICart
    {
        public int Total { get; set; }
        public Cart() { }
        public void Clear() { }
        public int this[int index] => 1;
    }
    public record Line(int Count);
}
"""
RUBY = """require 'set'

# A shop.
module Shop
  class Cart < Base
    attr_reader :size
    def total
      1
    end

    def self.build; end
    private def secret; end
  end
end

Line = Struct.new(:count) do
  def twice = count * 2
end
"""
PHP = """<?php
namespace Shop;

/** A cart. */
#[Entity]
final class Cart extends Base
{
    public function __construct(private int $size) {}
    public static function build(): self { return new self(1); }
}
interface Priced { public function price(); }
trait Logs { function log() {} }
function total() { return 1; }
"""
KOTLIN = """package shop

/** A cart. */
@Entity
data class Cart(val size: Int) : Base() {
    fun total() = 1

    companion object {
        fun build() = Cart(1)
    }
}

object Shop {
    fun open() = 1
}

fun String.shout(): String = uppercase()
"""
BASH = """#!/usr/bin/env bash
set -e

# Says hello.
hello() {
  echo hello
}

function bye {
  echo bye
}

hello
"""

SOURCES = {
    "a.js": (JAVASCRIPT, "inc, exports, exports.first, exports.second, Cart.total, Store, Store.size, Store.clear, "
             "default, Memo"),
    "a.ts": (TYPESCRIPT, "Item, Item.price, Pair, Colour, Shop, Shop.Till, Shop.Till.open, Service, Service.find"),
    "a.go": (GO, "Server, Runner, Runner.Run, Server.Run, Stack.Push, main"),
    "A.java": (JAVA, "Cart, Cart.Cart, Cart.total, Cart.State, Cart.State.close, Cart.Line"),
    "a.rs": (RUST, "Cart, Cart.count, Cart.fmt, Priced, Priced.price, inner, inner.helper, cart"),
    "a.c": (C, "find, slow, Item, Cart, State"),
    "a.cpp": (CPP, "shop, shop::Cart, shop::Cart::total, shop::Cart::operator==, shop::Cart::size, "
              "TEST(Cart, IsEmpty)"),
    "a.cs": (CSHARP, "Shop, Shop.Cart, Shop.Cart.Total, Shop.Cart.Cart, Shop.Cart.Clear, Shop.Cart.this[], Shop.Line"),
    "a.rb": (RUBY, "Shop, Shop.Cart, Shop.Cart.total, Shop.Cart.build, Shop.Cart.secret, Line, Line.twice"),
    "a.php": (PHP, "Cart, Cart.__construct, Cart.build, Priced, Priced.price, Logs, Logs.log, total"),
    "a.kt": (KOTLIN, "Cart, Cart.total, Cart.build, Shop, Shop.open, String.shout"),
    "a.sh": (BASH, "hello, bye"),
}  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("name", SOURCES)
async def test_every_definition_is_a_symbol(chunk: Chunk, name: str, newline: str) -> None:
    text, expected = SOURCES[name]
    for config in ({}, {"size": 90}):
        chunked = await code(chunk, text.replace("\n", newline), name, **config)
        assert set(symbols(chunked)) == set(expected.split(", "))
        assert chunked.warnings == []


@pytest.mark.parametrize(
    ("name", "first", "definition"),
    [
        ("a.js", "// Adds one.\n", "export const inc"),
        ("a.ts", "@Injectable()\n", "abstract class Service"),
        ("a.go", "// Run runs it.\n", "func (s *Server) Run"),
        ("A.java", "/** A cart. */\n@Entity\n", "public class Cart"),
        ("a.rs", "/// A cart.\n#[derive(Debug)]\n", "pub struct Cart"),
        ("a.cpp", "template <typename T>\n", "class Cart"),
        ("a.cs", "/// <summary>A cart.</summary>\n    [Serializable]\n", "    public class Cart"),
        ("a.rb", "# A shop.\n", "module Shop"),
        ("a.php", "/** A cart. */\n#[Entity]\n", "final class Cart"),
        ("a.kt", "/** A cart. */\n@Entity\n", "data class Cart"),
        ("a.sh", "# Says hello.\n", "hello() {"),
    ],
)
async def test_what_is_above_a_definition_stays_with_it(chunk: Chunk, name: str, first: str, definition: str) -> None:
    found = texts(await code(chunk, SOURCES[name][0], name))
    assert any(first + definition in text.replace("export ", "", name == "a.ts") for text in found)


@pytest.mark.parametrize("name", SOURCES)
async def test_no_closing_bracket_stands_alone_where_there_is_room(chunk: Chunk, name: str) -> None:
    for size in (40, 60, 90, 200, 1500):
        found = texts(await code(chunk, SOURCES[name][0], name, size=size))
        for before, text in pairwise(found):
            # A function that fits stays whole, also where nothing else fits beside it.
            assert any(character.isalnum() for character in text) or len(before) + len(text) + 1 > size


async def test_the_parts_of_a_long_method_carry_their_class_and_signature(chunk: Chunk) -> None:
    body = "".join(f"        total += self.price({number})\n" for number in range(60))
    text = f"class Cart(Base):\n    size = 1\n\n    def total(self, tax: int) -> int:\n{body}        return total\n"
    chunked = await code(chunk, text, "cart.py", size=600)
    parts = [each for each in chunked.chunks if each.piece.metadata.get("symbol") == "Cart.total"]
    assert len(parts) > 2
    for number, part in enumerate(parts, 1):
        assert part.piece.metadata["part"] == f"{number}/{len(parts)}"
        assert part.piece.heading_path == ("Cart", "total")
        if number > 1:
            assert part.piece.context == "class Cart(Base):\ndef total(self, tax: int) -> int:"
    assert all(line in "".join(texts(chunked)) for line in body.splitlines())


async def test_a_language_without_a_grammar_is_cut_between_lines_and_says_so(chunk: Chunk) -> None:
    message = "message Cart {\n  string id = 1;\n}\n\n// A line.\nmessage Line {\n  int32 count = 1;\n}\n\n"
    chunked = await code(chunk, 'syntax = "proto3";\n\n' + message * 20, "shop.proto", size=200)
    assert all(each.piece.metadata["fallback"] == "lines" for each in chunked.chunks)
    assert all(each.piece.metadata["language"] == "protobuf" for each in chunked.chunks)
    assert [warning.reason for warning in chunked.warnings] == [Reason.FEATURE_UNSUPPORTED]
    assert all(text.startswith(("syntax", "message", "// A line.")) for text in texts(chunked))


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("run", "#!/usr/bin/env -S python3 -u\ndef main():\n    pass\n", "python"),
        ("run", "#!/bin/sh\nhello() { echo; }\n", "bash"),
        ("Rakefile", "def build\n  1\nend\n", "ruby"),
        ("a.h", "namespace shop { class Cart {}; }\n", "cpp"),
        ("a.h", "int main(void);\nint main(void) { return 0; }\n", "c"),
        ("a.mts", "export const f = (a: string) => { return a; };\n", "typescript"),
    ],
)
async def test_the_language_is_found_out(chunk: Chunk, name: str, text: str, language: str) -> None:
    assert (await code(chunk, text, name)).chunks[0].piece.metadata["language"] == language
