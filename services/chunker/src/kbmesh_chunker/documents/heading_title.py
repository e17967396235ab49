"""A heading as it reads: without its markup."""

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_TITLE = 200
MAX_INLINE = 1_000
"""Characters of a line that are looked at. Of a longer heading, what is left is not shown anyway."""

_MARKUP = re.compile(r"[*_`\[<&\\]")
_PLAIN = r"[^*_`\[\]<&\\\n]"
_WORDS = rf"(?=[^\W_]){_PLAIN}++(?<=[^\W_])"
# Code, bold words and links that no other markup is near, as in most headings that have some. An underscore within a
# word is no markup.
_SIMPLE = re.compile(
    rf"(?:{_PLAIN}|(?<=[^\W_])_(?=[^\W_])|`[^`\s](?:[^`\n]*[^`\s])?`(?!`)"
    rf"|(?<![^\s])(?:\*\*{_WORDS}\*\*|\*{_WORDS}\*)(?![^\s])"
    rf"|(?<!!)\[{_PLAIN}++\]\((?:https?://|[\w.#/-])[\w.#/?=%-]*\))++"
)
_SIMPLE_MARKS = re.compile(r"`([^`]*)`|\*\*?([^*`]*)\*\*?|\[([^\[\]]*)\]\([^()]*\)")
_INLINE = MarkdownIt("commonmark")


def heading_title(content: str) -> str:
    """The title of a heading, from what stands between its marks."""
    content = content[:MAX_INLINE].strip()
    if _MARKUP.search(content):
        if _SIMPLE.fullmatch(content):
            content = _SIMPLE_MARKS.sub(_marked, content)
        else:
            content = "".join(_read(token) for token in _INLINE.parseInline(content)[0].children or [])
    title = " ".join(content.split())
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"


def without_closing(content: str) -> str:
    """The text of a heading without the marks that may close it."""
    content = content.rstrip(" \t")
    opened = content.rstrip("#")
    return opened if opened[-1:] in {" ", "\t"} else content


def _marked(found: re.Match[str]) -> str:
    return found.group(found.lastindex or 0)


def _read(token: Token) -> str:
    if token.type in {"text", "code_inline", "text_special"}:
        return token.content
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return "".join(_read(child) for child in token.children or [])
