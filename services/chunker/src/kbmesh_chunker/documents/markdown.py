"""How a Markdown text is built: headings, tables, code and other blocks, by CommonMark with GitHub's tables."""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_TITLE = 200
_MAX_INLINE = 1_000
_FIRST_HEADING_WITHIN = 65_536
_LINE_END = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(r"[*_`\[\]<>&!\\~]")
_ROW = re.compile(r"[ \t]{0,3}\|.*\|[ \t]*$")

# Only blocks are wanted: inline text is parsed for headings alone.
_BLOCKS = MarkdownIt("commonmark").enable("table")
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])
_INLINE = MarkdownIt("commonmark")


class BlockKind(StrEnum):
    """What a block is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    TABLE = "table"
    CODE = "code"
    LIST = "list"
    QUOTE = "quote"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block that stands in no other. Positions are code points of the whole text, ends are exclusive."""

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    """Of a heading, 1 to 6."""
    title: str = ""
    """Of a heading, as it reads: without its markup."""
    language: str = ""
    """Of fenced code, as its fence says."""
    inner: tuple[tuple[int, int], ...] = ()
    """Where its parts start and how welcome a cut is there: (position, strength), strength 1 to 3."""
    header_end: int = 0
    """Of a table: where its first row after the header and the delimiter row starts."""


def parse(text: str, start: int = 0) -> Iterator[Block]:
    """The outermost blocks of text[start:], in order. Every character that is not white space or a link reference
    definition is in one."""
    body = text[start:] if start else text
    if body.startswith("\ufeff"):
        body = " " + body[1:]
    lines = _line_starts(body, start)
    tokens = _BLOCKS.parse(body)
    pending: Block | None = None
    for block in _outermost(text, tokens, lines):
        if pending is not None and block.kind is BlockKind.TABLE and _heads(text, pending, block):
            # GitHub's tables have one header row; rows above it are a paragraph to the parser.
            block = _with_header_rows(pending, block)
            pending = None
        if pending is not None:
            yield pending
        pending = block
    if pending is not None:
        yield pending


def first_heading(text: str, start: int = 0) -> str:
    """The title of the first heading near the start of text[start:]; empty where there is none."""
    head = text[start : start + _FIRST_HEADING_WITHIN]
    return next((block.title for block in parse(head) if block.kind is BlockKind.HEADING and block.title), "")


def _line_starts(body: str, offset: int) -> "array[int]":
    starts = array("Q", [offset])
    starts.extend(offset + end.end() for end in _LINE_END.finditer(body))
    starts.append(offset + len(body))
    return starts


def _outermost(text: str, tokens: list[Token], lines: "array[int]") -> Iterator[Block]:
    index = 0
    while index < len(tokens):
        token = tokens[index]
        closing = _closing(tokens, index)
        if token.map is not None:
            start, end = lines[token.map[0]], lines[min(token.map[1], len(lines) - 1)]
            if end > start:
                yield _block(text, tokens[index : closing + 1], start, end, lines)
        index = closing + 1


def _closing(tokens: list[Token], index: int) -> int:
    """The index of the token that closes the block that tokens[index] opens."""
    if tokens[index].nesting != 1:
        return index
    for closing in range(index + 1, len(tokens)):
        if tokens[closing].level == tokens[index].level and tokens[closing].nesting == -1:
            return closing
    return len(tokens) - 1


def _block(text: str, tokens: list[Token], start: int, end: int, lines: "array[int]") -> Block:
    token = tokens[0]
    match token.type:
        case "heading_open":
            return Block(
                kind=BlockKind.HEADING, start=start, end=end, level=int(token.tag[1:]), title=_title(tokens[1].content)
            )
        case "table_open":
            rows = [lines[row.map[0]] for row in tokens if row.type == "tr_open" and row.map is not None]
            # The delimiter row is no token: the first body row comes after it.
            header_end = rows[1] if len(rows) > 1 else end
            return Block(
                kind=BlockKind.TABLE,
                start=start,
                end=end,
                inner=tuple((row, 2) for row in rows[1:]),
                header_end=header_end,
            )
        case "fence" | "code_block":
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            return Block(
                kind=BlockKind.CODE,
                start=start,
                end=end,
                language=language,
                inner=tuple(_code_lines(token, text, lines)),
            )
        case "bullet_list_open" | "ordered_list_open":
            return Block(kind=BlockKind.LIST, start=start, end=end, inner=tuple(_parts(tokens, lines)))
        case "blockquote_open":
            return Block(kind=BlockKind.QUOTE, start=start, end=end, inner=tuple(_parts(tokens, lines)))
        case "paragraph_open":
            return Block(kind=BlockKind.PARAGRAPH, start=start, end=end)
        case _:
            return Block(kind=BlockKind.OTHER, start=start, end=end)


def _parts(tokens: list[Token], lines: "array[int]") -> Iterator[tuple[int, int]]:
    """Starts of items, and of paragraphs and the like within them; the deeper, the weaker."""
    outer = tokens[0].level
    for token in tokens[1:]:
        if token.map is not None and token.nesting >= 0 and token.type not in {"inline", "thead_open", "tbody_open"}:
            yield lines[token.map[0]], 3 if token.level <= outer + 1 else 2 if token.level <= outer + 3 else 1


def _code_lines(token: Token, text: str, lines: "array[int]") -> Iterator[tuple[int, int]]:
    """Starts of lines; those after an empty line are more welcome."""
    if token.map is None:
        return
    for line in range(token.map[0] + 1, token.map[1]):
        start = lines[line]
        above = text[lines[line - 1] : start]
        yield start, 2 if not above.strip() else 1


def _heads(text: str, paragraph: Block, table: Block) -> bool:
    """Whether a paragraph is made of further header rows of the table right below it."""
    if paragraph.kind is not BlockKind.PARAGRAPH or paragraph.end != table.start:
        return False
    rows = _LINE_END.split(text[paragraph.start : min(paragraph.end, paragraph.start + _MAX_INLINE)].rstrip())
    return all(_ROW.match(row) for row in rows)


def _with_header_rows(paragraph: Block, table: Block) -> Block:
    return Block(
        kind=BlockKind.TABLE, start=paragraph.start, end=table.end, inner=table.inner, header_end=table.header_end
    )


def _title(content: str) -> str:
    """A heading as it reads."""
    # Long headings are cut before they are parsed: what is left of them is not shown anyway.
    content = content[:_MAX_INLINE]
    if _MARKUP.search(content):
        content = "".join(_read(token) for token in _INLINE.parseInline(content)[0].children or [])
    title = " ".join(content.split())
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1].rstrip() + "…"


def _read(token: Token) -> str:
    if token.type in {"text", "code_inline", "text_special"}:
        return token.content
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return "".join(_read(child) for child in token.children or [])
