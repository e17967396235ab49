"""How a Markdown text is built: headings, tables, code and other blocks, by CommonMark with GitHub's tables."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from markdown_it.token import Token

from kbmesh_chunker.documents import commonmark
from kbmesh_chunker.documents.block import Block as Block
from kbmesh_chunker.documents.block import BlockKind as BlockKind
from kbmesh_chunker.documents.block_scanner import BlockToken
from kbmesh_chunker.documents.commonmark import BlockParser
from kbmesh_chunker.documents.heading_title import MAX_INLINE, heading_title
from kbmesh_chunker.documents.plain_blocks import PlainBlocks

_FIRST_HEADING_NEAR = 2_048
_FIRST_HEADING_WITHIN = 65_536
_LINE_END = re.compile(r"\r\n?|\n")
_ROW = re.compile(r"[ \t]{0,3}\|.*\|[ \t]*$")


def parse(text: str, start: int = 0) -> Iterator[Block]:
    """The outermost blocks of text[start:], in order. Every character that is not white space or a link reference
    definition is in one."""
    pending: Block | None = None
    for block in blocks(text, start):
        if pending is not None:
            if block.kind is BlockKind.TABLE and _heads(text, pending, block):
                # GitHub's tables have one header row; rows above it are a paragraph to the parser.
                block = block._replace(start=pending.start)
            else:
                yield pending
        pending = block
    if pending is not None:
        yield pending


def first_heading(text: str, start: int = 0) -> str:
    """The title of the first heading near the start of text[start:]; empty where there is none."""
    for size in (_FIRST_HEADING_NEAR, _FIRST_HEADING_WITHIN):
        end = len(text) if start + size >= len(text) else text.rfind("\n", start, start + size) + 1
        head = text[start : end or start + size]
        for block in parse(head):
            # What ends with the part that is looked at may go on after it.
            if size < _FIRST_HEADING_WITHIN and block.end >= len(head) < len(text) - start:
                break
            if block.kind is BlockKind.HEADING and block.title:
                return block.title
    return ""


def blocks(text: str, start: int = 0) -> Iterator[Block]:
    """The same without the further header rows of tables: as CommonMark has them."""
    body = text
    if body.startswith("\ufeff", start):
        body = f"{body[:start]} {body[start + 1 :]}"
    if "\r" in body:
        # Every character keeps its place: white space at the end of a line says nothing about its block.
        body = body.replace("\r\n", " \n").replace("\r", "\n")
    size = max(start, body.rfind("\n") + 1)
    if body[size:].strip(" \t"):
        size = len(body)
        body += "\n"
    elif size < len(body):
        body = body[:size]
    plain = PlainBlocks(body)
    lines: _Lines | None = None
    position = plain.skip_empty(start)
    while position < size:
        found = plain.at(position)
        if found is not None:
            block, after = found
            if block is not None:
                yield block if block.end <= size else _clamped(block, size)
            position = after if body[after : after + 1] not in _EMPTY else plain.skip_empty(after)
            continue
        if lines is None:
            lines = _Lines(body, start, size)
        yield from lines.blocks(position)
        position = plain.skip_empty(lines.after)


_EMPTY = frozenset("\n \t")


def _clamped(block: Block, size: int) -> Block:
    """A block without the line feed that was put after the text."""
    return block._replace(end=size, header_end=min(block.header_end, size))


class _Lines:
    """The lines of a text, for the blocks that are looked at line by line."""

    def __init__(self, body: str, start: int, size: int) -> None:
        lines = body[start:size].split("\n")
        if not lines[-1]:
            lines.pop()
        self._body = body
        self._starts = array("Q", accumulate((len(line) + 1 for line in lines), initial=start))
        self._starts[-1] = size
        self._parser = BlockParser(lines)
        self.after = start
        """Where the text goes on after the last block."""

    def blocks(self, position: int) -> Iterator[Block]:
        """The block that begins with the line at `position`, and some that follow it."""
        line = bisect_right(self._starts, position) - 1
        for tokens, after in self._parser.blocks(line):
            self.after = self._starts[after]
            block = _block(self._body, tokens, self._starts)
            if block is not None:
                yield block


def _block(body: str, tokens: Sequence[BlockToken | Token], lines: "array[int]") -> Block | None:
    token = tokens[0] if tokens else None
    if token is None or token.map is None:
        return None
    first, last = token.map
    start, end = lines[first], lines[min(last, len(lines) - 1)]
    if end <= start:
        return None
    match token.type:
        case "heading_open":
            title = heading_title(tokens[1].content)
            return Block(kind=BlockKind.HEADING, start=start, end=end, level=int(token.tag[1:]), title=title)
        case commonmark.TABLE:
            rows = tuple((lines[line], 2) for line in range(first + 2, last))
            header_end = rows[0][0] if rows else end
            return Block(kind=BlockKind.TABLE, start=start, end=end, inner=rows, header_end=header_end)
        case "fence" | "code_block":
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            inner = tuple(_code_lines(body, first, last, lines))
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


def _code_lines(body: str, first: int, last: int, lines: "array[int]") -> Iterator[tuple[int, int]]:
    """Starts of lines; those after an empty line are more welcome."""
    for line in range(first + 1, last):
        start = lines[line]
        above = body[lines[line - 1] : start]
        yield start, 2 if above.isspace() else 1


def _heads(text: str, paragraph: Block, table: Block) -> bool:
    """Whether a paragraph is made of further header rows of the table right below it."""
    if paragraph.kind is not BlockKind.PARAGRAPH or paragraph.end != table.start:
        return False
    rows = _LINE_END.split(text[paragraph.start : min(paragraph.end, paragraph.start + MAX_INLINE)].rstrip())
    return all(_ROW.match(row) for row in rows)
