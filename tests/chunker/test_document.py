"""DOCUMENT: sections under their headings, on Markdown that parsers are known to get wrong."""

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.front_matter import read_front_matter
from kbmesh_chunker.documents.markdown import BlockKind, parse
from kbmesh_chunker.piece import Chunk as Piece
from kbmesh_chunker.piece import embedded_text


def headings(text: str) -> list[tuple[int, str]]:
    start = read_front_matter(text).end
    return [(block.level, block.title) for block in parse(text, start) if block.kind is BlockKind.HEADING]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "# Real\n\n````md\n```text\n# fake one\n```\n````\n\n```sh\n# fake two\n````\n\n# Next\nok\n",
            [(1, "Real"), (1, "Next")],
            id="DOC-02",
        ),
        pytest.param(
            "# A\n\n   ```sh\n   # indented fake\n   ```\n\n# B\n\n```\n# fake until end\n",
            [(1, "A"), (1, "B")],
            id="DOC-03",
        ),
        pytest.param(
            "Overview\n========\nText one.\n\nDetails\n-------\nText two.\n\n---\n\nAfter the rule.\n",
            [(1, "Overview"), (2, "Details")],
            id="DOC-04",
        ),
        pytest.param("line one\nline two\n-\n\nbody text\n", [(2, "line one line two")], id="DOC-05"),
        pytest.param(
            "---\ntitle: Release notes\nowner: team-x\n---\n\n# Version 2\nFixed.\n", [(1, "Version 2")], id="DOC-06"
        ),
        pytest.param(
            "## C#\ntext\n\n## F# ##\ntext\n\n##\nempty heading body\n", [(2, "C#"), (2, "F#"), (2, "")], id="DOC-13"
        ),
        pytest.param(
            "> # quoted\n\n- # in a list\n\n# [Real](x) *one* `co_de`\n", [(1, "Real one co_de")], id="markup"
        ),
        pytest.param("# A\r\n\r\ntext\r\n\r\nB\r\n===\r\n", [(1, "A"), (1, "B")], id="windows-line-ends"),
        pytest.param("# A\r\rtext\r\r# B\r", [(1, "A"), (1, "B")], id="old-mac-line-ends"),
        pytest.param("\ufeff# A\n", [(1, "A")], id="byte-order-mark"),
    ],
)
async def test_headings(chunk: Chunk, text: str, expected: list[tuple[int, str]]) -> None:
    assert headings(text) == expected
    check_laws(await chunk(text, strategy=Strategy.DOCUMENT, media_type="text/markdown"))


async def markdown(chunk: Chunk, text: str, **config: object) -> ChunkedDocument:
    chunked = await chunk(text, strategy=Strategy.DOCUMENT, media_type="text/markdown", **config)
    check_laws(chunked)
    return chunked


def holder(chunked: ChunkedDocument, words: str) -> Piece:
    return next(piece for piece in chunked.chunks if words in piece.text)


async def test_doc_03_an_unclosed_fence_is_kept(chunk: Chunk) -> None:
    chunked = await markdown(chunk, "# A\n\n   ```sh\n   # indented fake\n   ```\n\n# B\n\n```\n# fake until end\n")
    assert holder(chunked, "# fake until end").piece.heading_path == ("B",)


async def test_doc_04_underlined_headings_make_the_path(chunk: Chunk) -> None:
    text = "Overview\n========\nText one.\n\nDetails\n-------\nText two.\n\n---\n\nAfter the rule.\n"
    chunked = await markdown(chunk, text)
    assert holder(chunked, "Text two.").piece.heading_path == ("Overview", "Details")
    assert holder(chunked, "After the rule.").piece.heading_path == ("Overview", "Details")


async def test_doc_06_front_matter_becomes_metadata(chunk: Chunk) -> None:
    text = "---\ntitle: Release notes\nowner: team-x\ntags: [a, b]\ndraft: false\n---\n\n# Version 2\nFixed.\n"
    document = (await markdown(chunk, text)).document
    assert document.title == "Release notes"
    assert document.metadata == {"title": "Release notes", "owner": "team-x", "tags": "a, b", "draft": "false"}
    windows = (await markdown(chunk, text.replace("\n", "\r\n"))).document
    assert windows.metadata == document.metadata


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: never closed\n\nThe text goes on.\n",
        "---\n\nA rule, then a text.\n\n---\n\n# More\n\nof it.\n",
        "---\ntitle: [broken\n---\n\nThe text goes on.\n",
        "---\na: &a [1,1]\nb: [*a,*a]\n---\n\nThe text goes on.\n",
        "---\n" + "[" * 5000 + "\n---\n\nThe text goes on.\n",
    ],
    ids=["unclosed", "rule", "broken", "aliases", "deep"],
)
async def test_doc_06_what_is_no_front_matter_is_text(chunk: Chunk, text: str) -> None:
    document = (await markdown(chunk, text)).document
    assert document.metadata == {}


async def test_doc_10_pieces_of_a_table_repeat_both_header_rows(chunk: Chunk) -> None:
    header = "| Cat | Q1 | Q2 |\n| | Jan-Mar | Apr-Jun |\n|---|---|---|"
    text = header + "\n" + "".join(f"| item{i} | {i} | {i + 1} |\n" for i in range(120))
    for config in ({"size": 400}, {"size": 100, "unit": "tokens", "embedding_model": "word-pieces"}):
        chunked = await markdown(chunk, text, **config)
        assert len(chunked.chunks) > 3
        for piece in chunked.chunks:
            assert piece.piece.type == "table"
            assert embedded_text(chunked.document.text, piece.piece).startswith(header)
            assert all(row.startswith("|") and row.endswith("|") for row in piece.text.splitlines())


async def test_doc_11_the_columns_are_repeated_beside_the_heading_path(chunk: Chunk) -> None:
    text = "## Regional breakdown\n\n| region | sales |\n|---|---|\n" + "".join(f"| r{i} | {i} |\n" for i in range(150))
    chunked = await markdown(chunk, text, size=400)
    assert len(chunked.chunks) > 3
    for piece in chunked.chunks:
        assert piece.piece.heading_path == ("Regional breakdown",)
        assert "| region | sales |" in embedded_text(chunked.document.text, piece.piece)
        assert "Regional breakdown" in embedded_text(chunked.document.text, piece.piece)


async def test_doc_12_each_table_stays_under_its_label(chunk: Chunk) -> None:
    text = "## Label one\n\n| p | r |\n|---|---|\n| p1 | r1 |\n\n## Label two\n\n| p | r |\n|---|---|\n| p2 | r2 |\n"
    chunked = await markdown(chunk, text)
    assert holder(chunked, "p1").piece.heading_path == ("Label one",)
    assert holder(chunked, "p2").piece.heading_path == ("Label two",)


async def test_doc_13_the_text_below_an_empty_heading_is_kept(chunk: Chunk) -> None:
    chunked = await markdown(chunk, "## C#\ntext\n\n## F# ##\ntext\n\n##\nempty heading body\n")
    assert holder(chunked, "empty heading body")


async def test_a_later_piece_of_a_section_carries_its_path(chunk: Chunk) -> None:
    text = "# Guide\n\n## Install\n\n" + "Run the installer and wait for it. " * 120
    chunked = await markdown(chunk, text)
    first, second, *_ = chunked.chunks
    assert first.text.startswith("# Guide\n\n## Install\n\nRun")
    assert first.piece.context == ""
    assert second.piece.context == "Guide > Install"
    assert second.piece.heading_path == first.piece.heading_path == ("Guide", "Install")


async def test_headings_are_never_alone_at_the_end_of_a_chunk(chunk: Chunk) -> None:
    text = "".join(f"{'#' * (1 + i % 3)} Part {i}\n\n" + "Some words of text. " * (i % 7) + "\n\n" for i in range(60))
    for size in (32, 64, 200, 1500):
        chunked = await markdown(chunk, text, size=size)
        for piece in chunked.chunks[:-1]:
            assert not piece.text.splitlines()[-1].startswith("#"), piece.text


async def test_a_document_of_headings_only_is_kept_whole(chunk: Chunk) -> None:
    text = "".join(f"## Heading number {i}\n" for i in range(400))
    chunked = await markdown(chunk, text)
    assert all(piece.text.startswith("## Heading number") for piece in chunked.chunks)


async def test_deep_headings_can_be_kept_inside_their_section(chunk: Chunk) -> None:
    text = "# A\n\ntext one\n\n## B\n\ntext two\n\n### C\n\ntext three\n"
    chunked = await markdown(chunk, text, options_of=Strategy.DOCUMENT, options={"max_heading_level": 1})
    assert [piece.piece.heading_path for piece in chunked.chunks] == [("A",)]


async def test_code_is_cut_between_lines_and_keeps_its_indentation(chunk: Chunk) -> None:
    code = "".join(f"def function_{i}(argument):\n    value = argument + {i}\n    return value\n\n" for i in range(60))
    chunked = await markdown(chunk, f"# Code\n\n```python\n{code}```\n", size=500, overlap=0)
    pieces = [piece for piece in chunked.chunks if piece.piece.type == "code_block"]
    assert len(pieces) > 3
    for piece in pieces[1:]:
        assert piece.piece.metadata == {"code_language": "python"}
        assert piece.text.startswith("def function")


async def test_a_long_context_is_trimmed_in_the_middle(chunk: Chunk) -> None:
    titles = [f"{'#' * level} Heading of level {level} with a good many words in it" for level in range(1, 7)]
    text = "\n\ntext\n\n".join(titles) + "\n\n" + "Words of the body. " * 100
    chunked = await markdown(chunk, text, size=300)
    last = chunked.chunks[-1].piece
    assert len(last.heading_path) == 6
    assert len(last.context) <= 90
    assert "…" in last.context


async def test_a_link_definition_is_kept_although_it_shows_nothing(chunk: Chunk) -> None:
    text = "# Links\n\nSee [the docs][1].\n\n[1]: https://example.org/docs\n"
    assert holder(await markdown(chunk, text), "https://example.org/docs")


@pytest.mark.parametrize(
    "text",
    [
        "> " * 200 + "deep quote\n" * 50,
        "".join("  " * i + f"- item {i}\n" for i in range(200)),
        "|" + " a |" * 300 + "\n|" + "---|" * 300 + "\n" + ("|" + " cell |" * 300 + "\n") * 30,
        "[" * 20_000,
        "# " + "*a " * 20_000,
        "<div>\n" * 5_000,
        "a\n" * 20_000 + "===\n",
        "```\n" * 5_001,
    ],
    ids=["quotes", "lists", "wide-table", "brackets", "long-heading", "html", "long-setext", "fences"],
)
async def test_hostile_markdown_ends_and_is_kept(chunk: Chunk, text: str) -> None:
    await markdown(chunk, text)


async def test_doc_13_a_heading_without_words_is_in_the_path_as_it_is(chunk: Chunk) -> None:
    text = "## C#\ntext of it\n\n## F# ##\nmore text\n\n##\nbody of none\n"
    chunked = await chunk(text, strategy=Strategy.DOCUMENT, media_type="text/markdown")
    assert [piece.piece.heading_path for piece in chunked.chunks] == [("C#",), ("F#",), ("",)]
    assert "body of none" in chunked.chunks[-1].text
    assert chunked.chunks[-1].piece.context == ""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_doc_06_front_matter_of_comments_has_no_heading(chunk: Chunk, end: str) -> None:
    text = end.join(["---", "# title: later", "  # owner: team-x", "---", "", "# Version 2", "Fixed.", ""])
    chunked = await chunk(text, strategy=Strategy.DOCUMENT, media_type="text/markdown")
    assert chunked.document.title == "Version 2"
    assert chunked.chunks[-1].piece.heading_path == ("Version 2",)
    assert "# title: later" in "".join(piece.text for piece in chunked.chunks)


async def test_a_heading_between_two_rules_is_a_heading(chunk: Chunk) -> None:
    chunked = await chunk("---\n\n# Title\n\n---\n\nText.\n", strategy=Strategy.DOCUMENT, media_type="text/markdown")
    assert chunked.document.title == "Title"


@pytest.mark.parametrize("gap", ["", "\n"])
async def test_headings_without_words_go_with_what_follows(chunk: Chunk, gap: str) -> None:
    chunked = await markdown(chunk, f"# A\n\nOne.\n\n##\n{gap}##\n{gap}##\n\nTwo.\n")
    assert [made.text.split()[-1] for made in chunked.chunks] == ["One.", "Two."]
    assert holder(chunked, "Two.").piece.heading_path == ("A", "")


async def test_millions_of_headings_are_few_chunks(chunk: Chunk) -> None:
    chunked = await markdown(chunk, "#\n" * 20_000)
    assert len(chunked.chunks) < 60
