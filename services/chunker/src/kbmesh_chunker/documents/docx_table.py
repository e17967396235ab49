"""Which cells of a Word table span rows and columns (ECMA-376, part 1, 17.4)."""

from kbmesh_chunker.documents.docx_package import Element, attribute, child, local

MAX_COLUMNS = 63
"""Word's own bound."""


def columns_of(cell: Element) -> int:
    """How many columns a cell spans."""
    given = attribute(child(cell, "tcPr", "gridSpan"), "val")
    return min(MAX_COLUMNS, max(1, int(given))) if given.isdigit() and len(given) < 6 else 1


def row_spans(table: Element) -> dict[Element, int]:
    """How many rows a cell spans, of those that span more than one; 0 for those that go on in one above."""
    spans: dict[Element, int] = {}
    above: dict[int, Element] = {}
    for row in table:
        if local(row) != "tr":
            continue
        given = attribute(child(row, "trPr", "gridBefore"), "val")
        column = int(given) if given.isdigit() and len(given) < 4 else 0
        open_cells: dict[int, Element] = {}
        for cell in row:
            if local(cell) != "tc":
                continue
            merged = child(cell, "tcPr", "vMerge")
            if merged is not None:
                if attribute(merged, "val") == "restart" or column not in above:
                    open_cells[column] = cell
                    spans[cell] = 1
                else:
                    first = above[column]
                    spans[first] += 1
                    spans[cell] = 0
                    open_cells[column] = first
            column += columns_of(cell)
        above = open_cells
    return spans
