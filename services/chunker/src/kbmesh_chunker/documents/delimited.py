"""Tables as text, with commas, semicolons or tabs between their cells (RFC 4180). The text stays as it is."""

import csv
import re

CSV = "text/csv"
TSV = "text/tab-separated-values"

_MAX_HEADER = 2_000
_LINE = re.compile(r"[^\r\n]*")
_NUMBER = re.compile(r"[-+]?[.,/:\s]*+\d[\d.,/:\s]*+%?")


def header_row(text: str, media_type: str) -> str:
    """The row that names the columns, without which other rows say little. Empty where the first row is none."""
    if media_type not in {CSV, TSV}:
        return ""
    found = _LINE.match(text[:_MAX_HEADER].lstrip("\ufeff \r\n"))
    line = found.group().rstrip() if found else ""
    delimiters = "\t" if media_type == TSV else ",;\t|"
    delimiter = max(delimiters, key=line.count)
    if len(line) >= _MAX_HEADER - 4 or not line.count(delimiter):
        return ""
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration):
        return ""
    # A row of values is no header: names are no numbers, and each stands for a column of its own.
    names = [cell for cell in cells if cell]
    if not names or len(set(names)) < len(names) or any(_NUMBER.fullmatch(cell) for cell in names):
        return ""
    return line
