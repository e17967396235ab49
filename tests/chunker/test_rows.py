"""Documents that are made of rows and lines are cut between them."""

import json

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.strategies.heading_seals import find_heading_seals

ROWS = [f'host-{row},R{row % 7},"bob, ""the fan""",{row * 3}' for row in range(300)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_csv_is_cut_between_records(chunk: Chunk, line_end: str) -> None:
    text = line_end.join(["host,rack,owner,watts", *ROWS]) + line_end
    chunked = await chunk(text.encode(), filename="hosts.csv")
    check_laws(chunked)
    assert chunked.config.strategy is Strategy.FIXED
    rows = [line for piece in chunked.chunks for line in piece.text.splitlines()]
    assert rows == ["host,rack,owner,watts", *ROWS], "each row once, and whole"
    assert [piece.piece.context for piece in chunked.chunks[:2]] == ["", "host,rack,owner,watts"]


async def test_a_cell_with_line_ends_is_one(chunk: Chunk) -> None:
    records = [f'r{row},"several\nlines, with ""quotes""\nof {row}"' for row in range(120)]
    chunked = await chunk("\n".join(["name,note", *records]), media_type="text/csv", size=300, minimum=0)
    check_laws(chunked)
    assert all(piece.text.count('"') % 2 == 0 for piece in chunked.chunks)
    assert all(piece.text.startswith(("name,", "r")) for piece in chunked.chunks)


async def test_tabs_between_cells(chunk: Chunk) -> None:
    rows = [f"key{row}\tvalue of {row}\t{row}" for row in range(200)]
    chunked = await chunk("\n".join(["key\tvalue\tcount", *rows]), filename="values.tsv")
    check_laws(chunked)
    assert all(piece.text.startswith("key") for piece in chunked.chunks)


async def test_json_is_cut_between_its_outer_lines(chunk: Chunk) -> None:
    text = json.dumps([{"id": number, "tags": ["a", "b"], "note": "words " * 6} for number in range(90)], indent=1)
    chunked = await chunk(text, filename="data.json", overlap=0)
    check_laws(chunked)
    assert all(piece.text.startswith(" {") for piece in chunked.chunks[1:]), "at the start of an object"


async def test_fixed_cuts_code_between_its_definitions(chunk: Chunk) -> None:
    text = "\n\n".join(f"def function_{number}(value):\n" + "    value += 1\n" * 20 for number in range(12))
    chunked = await chunk(text, filename="many.py", strategy=Strategy.FIXED, overlap=0)
    check_laws(chunked)
    assert all(piece.text.startswith("def function_") for piece in chunked.chunks)


async def test_rows_of_a_table_keep_their_header_in_fixed_too(chunk: Chunk) -> None:
    rows = "".join(f"| host-{row} | {row} |\n" for row in range(200))
    text = f"Intro of the page.\n\n| host | load |\n|---|---|\n{rows}\nThe end of it.\n"
    chunked = await chunk(text, media_type="text/markdown", strategy=Strategy.FIXED)
    check_laws(chunked)
    for piece in chunked.chunks[1:]:
        assert piece.text.startswith("| host-")
        assert piece.piece.context.startswith("| host | load |\n|---|---|")


def test_many_signs_on_one_line_are_no_headings_and_take_one_look() -> None:
    text = "# " * 200_000 + "\n" + "x# " * 200_000 + "\n# Heading\n\ntext"
    assert find_heading_seals(text, 0, len(text)) == [(text.index("# Heading"), len(text))]


async def test_several_short_lines_head_a_paragraph_together(chunk: Chunk) -> None:
    body = "The executive Power shall be vested in a President of the United States of America. " * 9
    text = body + "\n\n\n\nArticle II\n\nSection 1\n\n" + body + "\n\nArticle III\n\nSection 1\n\n" + body
    chunked = await chunk(text, strategy=Strategy.SEMANTIC, size=900, overlap=0, minimum=0)
    check_laws(chunked)
    assert [piece.text.split("\n")[0] for piece in chunked.chunks[1:]] == ["Article II", "Article III"]


async def test_what_ends_with_a_sentence_repeats_whole_sentences_or_nothing(chunk: Chunk) -> None:
    long = "This one goes on " + "and on " * 40 + "to its end. "
    chunked = await chunk((long + "Short. ") * 30, strategy=Strategy.FIXED, size=700, overlap=100, minimum=200)
    check_laws(chunked)
    assert {piece.text.split()[0] for piece in chunked.chunks} == {"This", "Short."}
