"""A heading reads as CommonMark renders it, whichever way it was read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.documents import heading_title as module
from kbmesh_chunker.documents.heading_title import heading_title
from markdown_it import MarkdownIt
from markdown_it.token import Token

INLINE = MarkdownIt("commonmark")
PARTS = st.sampled_from(
    [
        "`", "``", "*", "**", "_", "[", "]", "](", "(x)", ")", "!", "&", "&amp;", "<", "<b>", "\\", " ", "a", "b1", "é",
        "漢", "[a](b)", "[a b](http://x.y/c_d?e=f)", "`x`", "`a b`", "**a**", "*b c*", " `x` ", " **q r** ", "a_b",
        "__", ".", "[a](javascript:b)", "(",
    ]
)  # fmt: skip


def rendered(content: str) -> str:
    """What a reader sees, by the library alone."""
    return " ".join("".join(shown(token) for token in INLINE.parseInline(content)[0].children or []).split())


def shown(token: Token) -> str:
    if token.type in {"text", "code_inline", "text_special"}:
        return token.content
    return " " if token.type.endswith("break") else "".join(shown(child) for child in token.children or [])


@pytest.mark.parametrize("content", [" [a](b)\n", " The `Client` class \n", "**Bold** start  \n"])
def test_the_end_of_a_line_is_no_reason_for_the_parser(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rendered(content.strip())
    monkeypatch.setattr(module, "_INLINE", None)
    assert heading_title(content) == expected


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("The `Client` class", "The Client class"),
        ("**Bold** start", "Bold start"),
        ("See [the docs](https://example.com/a_b)", "See the docs"),
        ("snake_case_name", "snake_case_name"),
        ("AT&T and R&D", "AT&T and R&D"),
        ("[Optional] step", "[Optional] step"),
    ],
)
def test_usual_headings(content: str, title: str) -> None:
    assert heading_title(content) == title == rendered(content)


@given(parts=st.lists(PARTS, min_size=1, max_size=9))
@settings(max_examples=500, deadline=None)
def test_any_heading(parts: list[str]) -> None:
    content = "".join(parts).strip()
    assert heading_title(content) == rendered(content)
