"""SEMANTIC: whole paragraphs, gathered up to the size."""

import re

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy


def texts(chunked: ChunkedDocument) -> list[str]:
    check_laws(chunked)
    return [chunk.text for chunk in chunked.chunks]


async def test_sem_08_stray_punctuation_is_no_chunk_of_its_own(chunk: Chunk) -> None:
    text = "First point.  . Second point.   \n\n . \n\nThird point."
    for config in ({}, {"size": 32, "overlap": 0, "minimum": 0}, {"size": 32, "minimum": 32}):
        for found in texts(await chunk(text, strategy=Strategy.SEMANTIC, **config)):
            assert any(character.isalnum() for character in found)


async def test_sem_10_chunks_are_slices_with_their_tabs_and_lines(chunk: Chunk) -> None:
    text = "First.\nSecond.\tThird.\n\nFourth."
    assert texts(await chunk(text, strategy=Strategy.SEMANTIC)) == [text]


@pytest.mark.parametrize(
    "head", ["### Step {}", "**Step {}**", "__Step {}__", "{}. Step title", "{}) Step title", "Step {}"]
)
@pytest.mark.parametrize(
    "config",
    [{}, {"size": 360}, {"size": 100}, {"size": 90, "unit": "tokens", "embedding_model": "word-pieces"}],
    ids=["defaults", "360", "100", "90-tokens"],
)
async def test_sem_11_a_heading_stays_with_its_text(chunk: Chunk, head: str, config: dict[str, object]) -> None:
    heads = [head.format(number) for number in range(6)]
    text = "\n\n".join(f"{head}\n\n" + ("do the thing carefully. " * 12) for head in heads)
    found = texts(await chunk(text, strategy=Strategy.SEMANTIC, **config))
    for line in heads:
        assert any(f"{line}\n\ndo the thing" in piece for piece in found)
    assert not any(piece.splitlines()[-1] in heads for piece in found)


async def test_a_numbered_list_with_blank_lines_is_no_row_of_headings(chunk: Chunk) -> None:
    text = "\n\n".join(f"{number}. Buy the part number {number * 7919}" for number in range(1, 40))
    found = texts(await chunk(text, strategy=Strategy.SEMANTIC, size=120, overlap=0, minimum=0))
    assert all(re.fullmatch(r"(\d+\. Buy the part number \d+(\n\n|$))+", piece) for piece in found)
    assert len(found) > 5


async def test_paragraphs_stay_whole_where_they_fit(chunk: Chunk) -> None:
    paragraphs = [f"Paragraph {number} " + "has some words in it. " * 20 for number in range(12)]
    found = texts(await chunk("\n\n".join(paragraphs), strategy=Strategy.SEMANTIC, overlap=0))
    for paragraph in paragraphs:
        assert any(paragraph.strip() in piece for piece in found)
    assert all(piece.startswith("Paragraph") for piece in found)


async def test_a_short_paragraph_is_merged_with_a_neighbour(chunk: Chunk) -> None:
    long = "This paragraph is as long as a chunk may be. " * 30
    found = texts(await chunk(f"Short one.\n\n{long}\n\nTail.", strategy=Strategy.SEMANTIC))
    assert found[0].startswith("Short one.\n\nThis paragraph")
    assert found[-1].endswith("Tail.")
    assert all(500 <= len(piece) <= 2000 for piece in found)


async def test_a_plain_heading_and_a_list_stay_with_what_they_lead_to(chunk: Chunk) -> None:
    body = "Words of the body come here in numbers. " * 10
    text = "\n\n".join(
        [body, "Getting started", body, "What you need:", "- a cluster\n- a key\n- " + "patience " * 30, body]
    )
    found = texts(await chunk(text, strategy=Strategy.SEMANTIC, size=500, overlap=0, minimum=100))
    assert any("Getting started\n\nWords of the body" in piece for piece in found)
    assert any("What you need:\n\n- a cluster" in piece for piece in found)


async def test_more_blank_lines_can_be_asked_to_end_a_paragraph(chunk: Chunk) -> None:
    verse = "Line of a verse that goes on for a while.\n" * 4
    text = "\n\n\n".join(f"{verse}\n{verse}" for _ in range(4))
    options = {"paragraph_blank_lines": 2}
    found = texts(
        await chunk(
            text,
            strategy=Strategy.SEMANTIC,
            size=400,
            overlap=0,
            minimum=100,
            options_of=Strategy.SEMANTIC,
            options=options,
        )
    )
    assert found == [f"{verse}\n{verse}".strip()] * 4


async def test_windows_line_ends_are_kept(chunk: Chunk) -> None:
    text = "One paragraph.\r\nIts second line.\r\n\r\nAnother paragraph.\r\n"
    assert texts(await chunk(text, strategy=Strategy.SEMANTIC)) == [text.rstrip()]
