"""How a Markdown text is built: headings, tables, code and other blocks, by CommonMark with GitHub's tables."""

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.token import Token

from kbmesh_chunker.documents import commonmark
from kbmesh_chunker.documents.block_scanner import BlockToken
from kbmesh_chunker.documents.commonmark import parse_blocks

MAX_TITLE = 200
_MAX_INLINE = 1_000
_FIRST_HEADING_NEAR = 2_048
_FIRST_HEADING_WITHIN = 65_536
_LINE_END = re.compile(r"\r\n?|\n")
_MARKUP = re.compile(r"[*_`\[\]<>&!\\~]")
_ROW = re.compile(r"[ \t]{0,3}\|.*\|[ \t]*$")

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


@dataclass(frozen=True, kw_only=True, slots=True)
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
    pending: Block | None = None
    for tokens in parse_blocks(body):
        block = _block(text, tokens, lines)
        if block is None:
            continue
        if pending is not None and block.kind is BlockKind.TABLE and _heads(text, pending, block):
            # GitHub's tables have one header row; rows above it are a paragraph to the parser.
            block = replace(block, start=pending.start)
            pending = None
        if pending is not None:
            yield pending
        pending = block
    if pending is not None:
        yield pending


def first_heading(text: str, start: int = 0) -> str:
    """The title of the first heading near the start of text[start:]; empty where there is none."""
    for size in (_FIRST_HEADING_NEAR, _FIRST_HEADING_WITHIN):
        head = text[start : start + size]
        for block in parse(head):
            # What ends with the part that is looked at may go on after it.
            if size < _FIRST_HEADING_WITHIN and block.end >= len(head) < len(text) - start:
                break
            if block.kind is BlockKind.HEADING and block.title:
                return block.title
    return ""


def _line_starts(body: str, offset: int) -> "array[int]":
    if "\r" in body:
        starts = array("Q", [offset])
        starts.extend(offset + end.end() for end in _LINE_END.finditer(body))
    else:
        starts = array("Q", accumulate((len(line) + 1 for line in body.split("\n")[:-1]), initial=offset))
    starts.append(offset + len(body))
    return starts


def _block(text: str, tokens: Sequence[BlockToken | Token], lines: "array[int]") -> Block | None:
    token = tokens[0]
    if token.map is None:
        return None
    first, last = token.map
    start, end = lines[first], lines[min(last, len(lines) - 1)]
    if end <= start:
        return None
    match token.type:
        case "heading_open":
            level = int(token.tag[1:])
            return Block(kind=BlockKind.HEADING, start=start, end=end, level=level, title=_title(tokens[1].content))
        case commonmark.TABLE:
            rows = tuple((lines[line], 2) for line in range(first + 2, last))
            header_end = rows[0][0] if rows else end
            return Block(kind=BlockKind.TABLE, start=start, end=end, inner=rows, header_end=header_end)
        case "fence" | "code_block":
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            inner = tuple(_code_lines(text, first, last, lines))
            return Block(kind=BlockKind.CODE, start=start, end=end, language=language, inner=inner)
        case "bullet_list_open" | "ordered_list_open":
            return Block(kind=BlockKind.LIST, start=start, end=end, inner=tuple(_parts(tokens, lines)))
        case "blockquote_open":
            return Block(kind=BlockKind.QUOTE, start=start, end=end, inner=tuple(_parts(tokens, lines)))
        case "paragraph_open":
            return Block(kind=BlockKind.PARAGRAPH, start=start, end=end)
        case _:
            return Block(kind=BlockKind.OTHER, start=start, end=end)


def _parts(tokens: Sequence[BlockToken | Token], lines: "array[int]") -> Iterator[tuple[int, int]]:
    """Starts of items, and of paragraphs and the like within them; the deeper, the weaker."""
    outer = tokens[0].level
    last = -1
    for token in tokens[1:]:
        if token.map is not None and token.nesting >= 0 and token.type != "inline" and token.map[0] != last:
            # Of those that begin on one line the outermost comes first.
            last = token.map[0]
            yield lines[last], 3 if token.level <= outer + 1 else 2 if token.level <= outer + 3 else 1


def _code_lines(text: str, first: int, last: int, lines: "array[int]") -> Iterator[tuple[int, int]]:
    """Starts of lines; those after an empty line are more welcome."""
    for line in range(first + 1, last):
        start = lines[line]
        above = text[lines[line - 1] : start]
        yield start, 2 if above.isspace() else 1


def _heads(text: str, paragraph: Block, table: Block) -> bool:
    """Whether a paragraph is made of further header rows of the table right below it."""
    if paragraph.kind is not BlockKind.PARAGRAPH or paragraph.end != table.start:
        return False
    rows = _LINE_END.split(text[paragraph.start : min(paragraph.end, paragraph.start + _MAX_INLINE)].rstrip())
    return all(_ROW.match(row) for row in rows)


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
