"""Tables and code that stand in a list or a quote."""

import re

from kbmesh_chunker.documents.block import Block
from kbmesh_chunker.documents.line_blocks import LineBlocks

_FENCED = re.compile(r"```|~~~")
_DELIMITED = re.compile(r"^[ \t>]*+(?=[|: \t]*-)[-|: \t]{2,}+\r?$", re.MULTILINE)
_MARKS = re.compile(r"(?:[ \t]*+(?:>|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t])))*+[ \t]*+")
_MARKS_BELOW = re.compile(r"[ \t>]*+")


def nested_blocks(text: str, block: Block) -> list[Block]:
    """The tables and the fenced code within a list or a quote, in order. Their positions are those of `text`; they
    begin and end with lines, and have no others within them."""
    start, end = block.start, block.end
    if not _may_hold(text, start, end):
        return []
    body = text[start:end].replace("\ufeff", " ", 1) if start == 0 else text[start:end]
    body = body.replace("\r\n", " \n").replace("\r", "\n")
    size = len(body)
    lines = LineBlocks(body if body.endswith("\n") else body + "\n", 0, size)
    found = list(lines.within(0))
    while lines.after < size and (following := size - len(body[lines.after :].lstrip(" \t\n"))) < size:
        # A long list is divided.
        position = body.rfind("\n", 0, following) + 1
        before = lines.after
        found.extend(lines.within(max(position, before)))
        if lines.after <= before:
            break
    return [_moved(inner, start) for inner in found]


def table_header(text: str, table: Block, *, nested: bool) -> str:
    """The header of a table and the row of dashes below it; of a nested one without the marks of what it stands in."""
    rows = text[table.start : table.header_end].strip("\r\n").replace("\r\n", "\n").replace("\r", "\n")
    if not nested:
        return rows
    header, *below = rows.split("\n")
    return "\n".join((_without(_MARKS, header), *(_without(_MARKS_BELOW, row) for row in below)))


def _may_hold(text: str, start: int, end: int) -> bool:
    if _FENCED.search(text, start, end):
        return True
    return text.find("|", start, end) >= 0 and _DELIMITED.search(text, start, end) is not None


def _moved(block: Block, by: int) -> Block:
    parts = tuple([(position + by, strength) for position, strength in block.inner])
    return block._replace(
        start=block.start + by,
        end=block.end + by,
        parts=parts,
        header_end=block.header_end + by if block.header_end else 0,
    )


def _without(marks: re.Pattern[str], line: str) -> str:
    found = marks.match(line)
    return line[found.end() :] if found else line
