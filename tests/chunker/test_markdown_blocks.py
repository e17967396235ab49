"""Parsing block by block finds what markdown-it-py finds in the whole document."""

import pytest
from chunker.conftest import DOCUMENTS
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.documents import commonmark
from kbmesh_chunker.documents.commonmark import parse_blocks
from markdown_it import MarkdownIt

WHOLE = MarkdownIt("commonmark").enable("table")
WHOLE.core.ruler.enableOnly(["normalize", "block"])
LINES = st.sampled_from(
    [
        "", "# a", "a", "===", "---", "- b", "  c", "    d", "> e", "```", "~~~~", "1. f", "| g |", "|---|", "<div>",
        "[h]: i", "\t- j", "* k", "2) l", "   - m", "      n", "- - o", "-", "## C# ##", "***", "<!-- p", "-->", "a|b",
        "-|-", "- > q", "- [r]: s", "``` t", "--", "   ", "\u00a0", "<pre>", "10. u",
    ]
)  # fmt: skip


def outermost(text: str) -> list[tuple[str, list[int] | None]]:
    """Type and lines of the outermost blocks, by the library's own loop."""
    return [(token.type, token.map) for token in WHOLE.parse(text) if token.level == 0 and token.nesting >= 0]


def insides(text: str) -> list[list[tuple[str, list[int], int]]]:
    """What stands in each outermost block, by the library's own loop: type, lines and level. Tables are one thing."""
    blocks: list[list[tuple[str, list[int], int]]] = []
    for token in WHOLE.parse(text):
        if token.map is None or token.nesting < 0 or token.type == "inline" or token.type[:2] in {"tr", "th", "tb"}:
            continue
        if token.level == 0:
            blocks.append([])
        blocks[-1].append((token.type.replace("table_open", commonmark.TABLE), token.map, token.level))
    return blocks


def found_insides(text: str) -> list[list[tuple[str, list[int] | None, int]]]:
    return [
        [
            (token.type, token.map, token.level)
            for token in tokens
            if token.map is not None and token.nesting >= 0 and token.type != "inline"
        ]
        for tokens in parse_blocks(text)
    ]


def found(text: str) -> list[tuple[str, list[int] | None]]:
    return [
        ("table_open" if tokens[0].type == commonmark.TABLE else tokens[0].type, tokens[0].map)
        for tokens in parse_blocks(text)
    ]


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.endswith(".md")])
def test_real_files(name: str) -> None:
    text = DOCUMENTS[name].decode()
    assert len(found(text)) > 20
    assert found(text) == outermost(text)
    assert found_insides(text) == insides(text)


@given(lines=st.lists(LINES, max_size=14), end=st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=400, deadline=None)
def test_any_lines(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert found(text) == outermost(text)
    assert found_insides(text) == insides(text)


def test_what_is_longer_than_a_part_is_parsed_in_parts() -> None:
    """A fence stays whole; a list goes on in a second list, and headings in its code are not taken for real ones."""
    count = commonmark.MAX_BLOCK_LINES + 500
    fence = "```\n" + "# not a heading\n" * count + "```\n"
    items = "- item\n\n  ```\n  # not a heading\n  ```\n\n" * count
    kinds = [kind for kind, _ in found(f"{fence}\n{items}\n# A heading\n")]
    assert kinds[0] == "fence"
    assert kinds[-1] == "heading_open"
    assert set(kinds[1:-1]) == {"bullet_list_open"}
    assert len(kinds) > 4
