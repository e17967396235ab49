"""Parsing block by block finds what markdown-it-py finds in the whole document."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from chunker.conftest import DOCUMENTS
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.documents import plain_blocks
from kbmesh_chunker.documents.commonmark import MAX_BLOCK_LINES
from kbmesh_chunker.documents.markdown import BlockKind, blocks
from kbmesh_chunker.documents.plain_blocks import PlainBlocks
from markdown_it import MarkdownIt

WHOLE = MarkdownIt("commonmark").enable("table")
WHOLE.core.ruler.enableOnly(["normalize", "block"])
LINES = st.sampled_from(
    [
        "", "# a", "a", "===", "---", "- b", "  c", "    d", "> e", "```", "~~~~", "1. f", "| g |", "|---|", "<div>",
        "[h]: i", "\t- j", "* k", "2) l", "   - m", "      n", "- - o", "-", "## C# ##", "***", "<!-- p", "-->", "a|b",
        "-|-", "- > q", "- [r]: s", "``` t", "--", "   ", "\u00a0", "<pre>", "10. u", "plain text", "**v** w", "- item",
        "  - nested", "    - deeper", "   1. x", "  two more", "> more", ">", "[a](b) c", "[d]: e f", "<br>text",
        "</div>", "- [ ] task", "|---|---|", "| y | z |", "  ```", "   ```",
        "  - x", "   * y", " 1) z", "   # h", "   ~~~", "  text", ":::", ":::{tip}", ":-", ": x", "<details>",
        "</details>", "\tcode", "   para", "  ---", "    ```",
        "- > in an item", "  > in it", "1. > x", "   > y", "- > > z", "    > deep", "      > far", "  >",
    ]
)  # fmt: skip


KINDS = {
    "heading_open": BlockKind.HEADING,
    "paragraph_open": BlockKind.PARAGRAPH,
    "table_open": BlockKind.TABLE,
    "fence": BlockKind.CODE,
    "code_block": BlockKind.CODE,
    "bullet_list_open": BlockKind.LIST,
    "ordered_list_open": BlockKind.LIST,
    "blockquote_open": BlockKind.QUOTE,
}


@dataclass(frozen=True, kw_only=True)
class Told:
    """A block as either of the two tells it, by lines."""

    kind: BlockKind
    first: int
    last: int
    level: int
    inner: list[tuple[int, int]]


def by_library(text: str) -> list[Told]:
    """The outermost blocks, by the library's own loop. What is in code and tables is not its concern."""
    told: list[Told] = []
    outer = last = 0
    for token in WHOLE.parse(text):
        if token.map is None or token.nesting < 0 or token.type == "inline":
            continue
        if token.level == 0:
            kind = KINDS.get(token.type, BlockKind.OTHER)
            level = int(token.tag[1:]) if kind is BlockKind.HEADING else 0
            told.append(Told(kind=kind, first=token.map[0], last=token.map[1], level=level, inner=[]))
            outer, last = token.level, -1
        elif told[-1].kind in {BlockKind.LIST, BlockKind.QUOTE} and token.map[0] != last:
            last = token.map[0]
            told[-1].inner.append((last, 3 if token.level <= outer + 1 else 2 if token.level <= outer + 3 else 1))
    return told


def found(text: str) -> list[Told]:
    """The blocks that are found here."""
    starts = [0, *(end.end() for end in re.finditer(r"\r\n?|\n", text)), len(text) + 1]

    def line(position: int) -> int:
        return bisect_left(starts, position)

    told = []
    for block in blocks(text):
        inner = block.inner if block.kind in {BlockKind.LIST, BlockKind.QUOTE} else ()
        first, last = line(block.start), line(block.end)
        parts = [(line(position), strength) for position, strength in inner]
        told.append(Told(kind=block.kind, first=first, last=last, level=block.level, inner=parts))
    return told


def assert_as_by_library(text: str) -> None:
    told, expected = found(text), by_library(text)
    assert [block.kind for block in told] == [block.kind for block in expected]
    for ours, theirs in zip(told, expected, strict=True):
        assert ours == theirs


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith(".md")])
def test_real_files(name: str) -> None:
    text = DOCUMENTS[name].decode()
    assert len(found(text)) > 20
    assert_as_by_library(text)


@given(lines=st.lists(LINES, max_size=14), end=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=400, deadline=None)
def test_any_lines(lines: list[str], end: str) -> None:
    assert_as_by_library(end.join(lines))


QUOTING = st.sampled_from(
    [
        "- a", "- > a", "  > b", "  c", "d", "", "1. > x", "2. > y", "   > z", "- > > q", "  - > n", "    > m", "> out",
        "   > w", "      > far", "* > o", "  ```", "# h", "  >", "  >  t", "  >    u", "- >  v", "-  > w", "  > - l",
        "  > > z", " > s", "2) p", "  2. r", "- > [a]: b", "  > ===", "  > ---", "-", "- >", "- >\ttab", "- > c|d",
    ]
)  # fmt: skip


@given(lines=st.lists(QUOTING, min_size=1, max_size=10))
@settings(max_examples=400, deadline=None)
def test_quotes_in_lists(lines: list[str]) -> None:
    assert_as_by_library("\n".join(["- > a", *lines]))


@pytest.mark.parametrize(
    "item", ["- > a\n", "1. > a\n", "- a\n  > b\n  > c\n", "- > > a\n  > b\n\n  > c\n", "- a\n  - > b\n"]
)
def test_quotes_in_lists_need_no_parser(item: str) -> None:
    """It takes fifteen seconds for a megabyte of them."""
    assert PlainBlocks(item * 200).at(0) is not None


def test_no_group_stands_within_a_possessive_loop() -> None:
    """Python 3.11 may raise SystemError where such a group has to be given back (python/cpython#101955)."""
    parser = import_module("re._parser")

    def groups(parsed: Any, *, within: bool) -> Iterator[int]:
        for operation, argument in parsed:
            inside = within or str(operation) in {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}
            if str(operation) == "SUBPATTERN" and within and argument[0] is not None:
                yield argument[0]
            for part in argument if isinstance(argument, tuple) else (argument,):
                for nested in part if isinstance(part, list) else (part,):
                    if isinstance(nested, parser.SubPattern):
                        yield from groups(nested, within=inside)

    patterns = [value for value in vars(plain_blocks).values() if isinstance(value, re.Pattern)]
    assert len(patterns) > 10
    for pattern in patterns:
        assert not list(groups(parser.parse(pattern.pattern, pattern.flags), within=False)), pattern.pattern


def test_what_is_longer_than_a_part_is_parsed_in_parts() -> None:
    """A fence stays whole; a list goes on in a second list, and headings in its code are not taken for real ones."""
    count = MAX_BLOCK_LINES + 500
    fence = "```\n" + "# not a heading\n" * count + "```\n"
    items = "- item\n\n  ```\n  # not a heading\n  ```\n\n" * count
    kinds = [block.kind for block in found(f"{fence}\n{items}\n# A heading\n")]
    assert kinds[0] is BlockKind.CODE
    assert kinds[-1] is BlockKind.HEADING
    assert set(kinds[1:-1]) == {BlockKind.LIST}
    assert len(kinds) > 4
