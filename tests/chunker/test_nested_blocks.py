"""Tables and code in lists and quotes are cut as those that stand alone: between rows, below their header; between
lines, in their fence."""

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy

ROWS = [f"| city {number} | {number * 977} people. About {number} of them sing. |" for number in range(40)]
TABLE = ["| Name | How many |", "|---|---|", *ROWS]
CODE = ["```python", *(f"value_{number} = compute(first, second)  # is it {number}?" for number in range(40)), "```"]
PLACES = {
    "list": ("- Cities\n\n", "  "),
    "numbers": ("12. Cities\n\n", "    "),
    "list_in_list": ("- Of the world\n  - Cities\n\n", "    "),
    "quote": ("> Cities\n>\n", "> "),
    "quote_in_quote": ("> > Cities\n> >\n", "> > "),
    "list_in_quote": ("> - Cities\n>\n", ">   "),
    "quote_in_list": ("- Cities\n\n", "  > "),
}


async def markdown(chunk: Chunk, text: str, **config: object) -> ChunkedDocument:
    return await chunk(text.encode(), media_type="text/markdown", strategy=Strategy.DOCUMENT, **config)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("place", PLACES)
async def test_rows_are_whole_and_repeat_their_header(chunk: Chunk, place: str, end: str) -> None:
    lead, margin = PLACES[place]
    text = f"# Atlas\n\n{lead}" + "".join(f"{margin}{row}\n" for row in TABLE) + "\nAfter it.\n"
    chunked = await markdown(chunk, text.replace("\n", end), size=400, minimum=60, overlap=0)
    check_laws(chunked)
    in_table = [made for made in chunked.chunks if any(row in made.text for row in ROWS)]
    assert len(in_table) > 4
    assert sum(row in made.text for made in in_table for row in ROWS) == len(ROWS)
    for made in in_table[1:]:
        assert made.piece.context == "Atlas\n| Name | How many |\n|---|---|"
        assert made.text.startswith(margin + "| city")
    assert {made.piece.type for made in in_table[1:-1]} == {"table"}


@pytest.mark.parametrize("place", PLACES)
async def test_a_header_on_the_line_of_its_item_is_repeated_without_the_mark(chunk: Chunk, place: str) -> None:
    margin = PLACES[place][1]
    outer = margin.rstrip() + " " if margin.strip() else ""
    text = f"{outer}- {TABLE[0]}\n" + "".join(f"{outer}  {row}\n" for row in TABLE[1:])
    chunked = await markdown(chunk, text, size=400, minimum=60, overlap=0)
    check_laws(chunked)
    assert [made.piece.context for made in chunked.chunks[1:]] == ["| Name | How many |\n|---|---|"] * (
        len(chunked.chunks) - 1
    )


@pytest.mark.parametrize("place", PLACES)
async def test_code_is_cut_between_its_lines(chunk: Chunk, place: str) -> None:
    lead, margin = PLACES[place]
    text = f"# Code\n\n{lead}" + "".join(f"{margin}{line}\n" for line in CODE) + "\nAfter it.\n"
    chunked = await markdown(chunk, text, size=400, minimum=60, overlap=80)
    check_laws(chunked)
    inside = [made for made in chunked.chunks if "value_" in made.text]
    assert len(inside) > 4
    assert sum(made.text.count("value_") for made in inside) == 40
    for made in inside:
        assert set(made.text.splitlines()) <= set(text.splitlines())
    for made in inside[1:-1]:
        assert made.piece.type == "code_block"
        assert made.piece.metadata["code_language"] == "python"
    # The fences stay with the lines beside them.
    assert "```python" in inside[0].text
    assert (
        "value_39" in next(made for made in chunked.chunks if "```" in made.text and "```python" not in made.text).text
    )


async def test_long_lists_and_their_tables_are_all_seen(chunk: Chunk) -> None:
    """A list of thousands of lines is parsed in parts."""
    item = "- A city\n\n" + "".join(f"  {row}\n" for row in TABLE[:12]) + "\n"
    chunked = await markdown(chunk, item * 400, size=300, minimum=60, overlap=0)
    check_laws(chunked)
    for made in chunked.chunks:
        if made.text.startswith("  | city"):
            assert made.piece.context == "| Name | How many |\n|---|---|"
        assert "| city" not in made.text or made.text.splitlines()[-1].endswith("|") or "A city" in made.text
