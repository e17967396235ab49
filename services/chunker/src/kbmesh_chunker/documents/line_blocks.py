"""Blocks of a Markdown text that are looked at line by line."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from markdown_it.token import Token

from kbmesh_chunker.documents import commonmark
from kbmesh_chunker.documents.block import Block, BlockKind
from kbmesh_chunker.documents.block_scanner import BlockToken
from kbmesh_chunker.documents.commonmark import BlockParser
from kbmesh_chunker.documents.heading_title import heading_title

_SOLID = {commonmark.TABLE, "fence", "code_block"}


class LineBlocks:
    """The lines of body[start:size], each of which ends with a line feed, and the blocks that they make."""

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
    solid = _solid(body, token, first, last, lines)
    if solid is not None:
        return solid
    match token.type:
        case "heading_open":
            return Block(BlockKind.HEADING, start, end, int(token.tag[1:]), heading_title(tokens[1].content))
        case "bullet_list_open" | "ordered_list_open":
            kind = BlockKind.LIST
        case "blockquote_open":
            kind = BlockKind.QUOTE
        case "paragraph_open":
            return Block(kind=BlockKind.PARAGRAPH, start=start, end=end)
        case _:
            return Block(kind=BlockKind.OTHER, start=start, end=end)
    within = tuple(_within(body, tokens, lines))
    return Block(kind, start, end, parts=tuple(_parts(tokens, lines)), within=within)


def _within(body: str, tokens: Sequence[BlockToken | Token], lines: "array[int]") -> Iterator[Block]:
    for token in tokens:
        if token.type in _SOLID and token.map is not None:
            first, last = token.map
            block = _solid(body, token, first, last, lines)
            if block is not None:
                yield block


def _solid(body: str, token: BlockToken | Token, first: int, last: int, lines: "array[int]") -> Block | None:
    """The block of a token that is a table or code; None where it is something else."""
    if token.type == commonmark.TABLE:
        start, end = lines[first], lines[min(last, len(lines) - 1)]
        rows = tuple([(lines[line], 2) for line in range(first + 2, last)])
        return Block(BlockKind.TABLE, start, end, parts=rows, header_end=rows[0][0] if rows else end)
    if token.type in {"fence", "code_block"}:
        start, end = lines[first], lines[min(last, len(lines) - 1)]
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        inner = tuple(_code_lines(body, first, last, lines))
        return Block(BlockKind.CODE, start, end, language=language, parts=inner)
    return None


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
