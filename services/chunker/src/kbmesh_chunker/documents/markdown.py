"""How a Markdown text is built: headings, tables, code and other blocks, by CommonMark with GitHub's tables."""

import re
from collections.abc import Iterator

from kbmesh_chunker.documents.block import Block as Block
from kbmesh_chunker.documents.block import BlockKind as BlockKind
from kbmesh_chunker.documents.heading_title import MAX_INLINE
from kbmesh_chunker.documents.line_blocks import LineBlocks
from kbmesh_chunker.documents.plain_blocks import PlainBlocks

_FIRST_HEADING_NEAR = 2_048
_FIRST_HEADING_WITHIN = 65_536
_LINE_END = re.compile(r"\r\n?|\n")
_ROW = re.compile(r"[ \t]{0,3}\|.*\|[ \t]*$")


def parse(text: str, start: int = 0) -> Iterator[Block]:
    """The outermost blocks of text[start:], in order. Every character that is not white space or a link reference
    definition is in one.

    They are those of CommonMark, save that a table has all of the header rows above it, and that headings of one level
    without a title which follow each other are one.
    """
    paragraph: Block | None = None
    for block in blocks(text, start, joined=True):
        kind = block.kind
        if paragraph is not None:
            if kind is BlockKind.TABLE and _heads(text, paragraph, block):
                # GitHub's tables have one header row; rows above it are a paragraph to the parser.
                block = block._replace(start=paragraph.start)
            else:
                yield paragraph
            paragraph = None
        if kind is BlockKind.PARAGRAPH:
            paragraph = block
        else:
            yield block
    if paragraph is not None:
        yield paragraph


def first_heading(text: str, start: int = 0) -> str:
    """The title of the first heading near the start of text[start:]; empty where there is none."""
    for size in (_FIRST_HEADING_NEAR, _FIRST_HEADING_WITHIN):
        end = len(text) if start + size >= len(text) else text.rfind("\n", start, start + size) + 1
        head = text[start : end or start + size]
        for block in blocks(head):
            # What ends with the part that is looked at may go on after it.
            if size < _FIRST_HEADING_WITHIN and block.end >= len(head) < len(text) - start:
                break
            if block.kind is BlockKind.HEADING and block.title:
                return block.title
    return ""


def blocks(text: str, start: int = 0, *, joined: bool = False) -> Iterator[Block]:
    """The same as CommonMark has them, unless headings without a title are to be `joined`."""
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
    plain = PlainBlocks(body, joined=joined)
    lines: LineBlocks | None = None
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
            lines = LineBlocks(body, start, size)
        yield from lines.blocks(position)
        position = plain.skip_empty(lines.after)


_EMPTY = frozenset("\n \t")


def _clamped(block: Block, size: int) -> Block:
    """A block without the line feed that was put after the text."""
    return block._replace(end=size, header_end=min(block.header_end, size))


def _heads(text: str, paragraph: Block, table: Block) -> bool:
    """Whether a paragraph is made of further header rows of the table right below it."""
    if paragraph.end != table.start:
        return False
    rows = _LINE_END.split(text[paragraph.start : min(paragraph.end, paragraph.start + MAX_INLINE)].rstrip())
    return all(_ROW.match(row) for row in rows)
