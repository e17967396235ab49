"""The header of a Markdown table, as it is repeated."""

import re

from kbmesh_chunker.documents.block import Block

_MARKS = re.compile(r"(?:[ \t]*+(?:>|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t])))*+[ \t]*+")
_MARKS_BELOW = re.compile(r"[ \t>]*+")


def table_header(text: str, table: Block, *, nested: bool) -> str:
    """The header rows and the row of dashes below them; of a nested table without the marks of what it stands in."""
    rows = text[table.start : table.header_end].strip("\r\n").replace("\r\n", "\n").replace("\r", "\n")
    if not nested:
        return rows
    header, *below = rows.split("\n")
    return "\n".join((_without(_MARKS, header), *(_without(_MARKS_BELOW, row) for row in below)))


def _without(marks: re.Pattern[str], line: str) -> str:
    found = marks.match(line)
    return line[found.end() :] if found else line
