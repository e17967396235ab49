"""Notebooks: what was written, computed and shown, cell by cell."""

import json
from typing import Any

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_context, check_laws
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.notebook import MAX_OUTPUT, MAX_WARNINGS
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, Grammar, SourceDocument
from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable, Reason


def markdown(text: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(text: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": text, "outputs": list(outputs)}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def notebook(*cells: Any, language: str = "python") -> str:
    metadata = {"kernelspec": {"name": "python3"}, "language_info": {"name": language}}
    return json.dumps({"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def reading(content: str | bytes, filename: str = "a.ipynb", media_type: str = "") -> ExtractedDocument:
    return read(SourceDocument(content=content, filename=filename, media_type=media_type), limits=ReadingLimits())


PUMPS = notebook(
    markdown(["# Pumps\n", "\n", "What they need."]),
    code("import pandas as pd\n%matplotlib inline"),
    code(["def power(flow, head):\n", "    return 9.81 * flow * head\n"]),
    markdown("## Curves\n\nEach pump has one."),
    code("power(2, 3)", printed("58.86\n")),
    markdown("As expected."),
)


def test_cells_stand_in_order_each_run_of_one_kind_alone() -> None:
    document = reading(PUMPS)
    parts = [part.document for part in document.parts]
    assert [part.grammar for part in parts] == [
        Grammar.MARKDOWN, Grammar.CODE, Grammar.MARKDOWN, Grammar.CODE, Grammar.PLAIN, Grammar.MARKDOWN,
    ]  # fmt: skip
    assert [part.chunk_metadata["cells"] for part in parts] == ["1", "2-3", "4", "5", "5", "6"]
    assert parts[1].text == (
        "import pandas as pd\n%matplotlib inline\n\ndef power(flow, head):\n    return 9.81 * flow * head"
    )
    assert parts[4].text == "58.86"
    assert document.title == "Pumps"
    assert document.metadata == {"cells": "6", "language": "python"}


def test_what_stands_below_a_heading_says_so() -> None:
    contexts = [part.document.context for part in reading(PUMPS).parts]
    assert contexts == [
        (), ("Pumps",), ("Pumps",), ("Pumps > Curves",), ("Pumps > Curves", "Output of cell 5"), ("Pumps > Curves",),
    ]  # fmt: skip


async def test_each_part_is_cut_by_what_suits_it(chunk: Chunk) -> None:
    chunked = await chunk(PUMPS, filename="pumps.ipynb", strategy=Strategy.AUTO)
    check_laws(chunked)
    check_context(chunked)
    assert [part.config.strategy for part in chunked.parts] == [
        Strategy.DOCUMENT, Strategy.CODE, Strategy.DOCUMENT, Strategy.CODE, Strategy.SEMANTIC, Strategy.DOCUMENT,
    ]  # fmt: skip
    power = next(each for each in chunked.chunks if each.piece.metadata.get("symbol") == "power")
    assert power.piece.metadata["cells"] == "2-3"
    assert power.piece.context == "Pumps"
    assert chunked.warnings == []


def test_the_old_format_is_read_too() -> None:
    old = {
        "metadata": {"name": "Pumps"},
        "nbformat": 3,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": ["Curves"]},
                    {
                        "cell_type": "code",
                        "language": "python",
                        "input": ["power(2, 3)"],
                        "outputs": [
                            {"output_type": "pyout", "prompt_number": 1, "text": ["58.86"]},
                            {"output_type": "display_data", "png": "aWdub3JlZA=="},
                        ],
                    },
                ]
            }
        ],
    }
    document = reading(json.dumps(old))
    assert [part.document.text for part in document.parts] == ["## Curves", "power(2, 3)", "58.86"]
    assert document.parts[1].document.language == "python"
    assert [warning.reason for warning in document.warnings] == [Reason.CONTENT_LEFT_OUT]


@pytest.mark.parametrize(
    ("metadata", "source", "language"),
    [
        ({"language_info": {"name": "R"}}, "f <- 1", "r"),
        ({"kernelspec": {"language": "julia"}}, "f = 1", "julia"),
        ({"kernelspec": {"name": "julia-1.9"}}, "f = 1", "julia"),
        ({"kernelspec": None, "language_info": 3}, "f = 1", "python"),
        ({}, "%%bash\nls", "bash"),
        ({}, "%%time\nf = 1", "python"),
    ],
)
def test_code_is_in_the_language_of_its_kernel_or_of_its_cell(
    metadata: dict[str, Any], source: str, language: str
) -> None:
    (part,) = reading(json.dumps({"metadata": metadata, "cells": [code(source)]})).parts
    assert part.document.language == language


def test_outputs_are_kept_within_bounds_and_what_is_not_text_is_named() -> None:
    long = "\n".join(f"row {number}" for number in range(2_000))
    picture = {
        "output_type": "display_data",
        "data": {"image/png": "aWdub3JlZA==", "text/plain": ["<Figure size 640x480 with 1 Axes>"]},
    }
    failed = {"output_type": "error", "ename": "ValueError", "evalue": "no pump", "traceback": ["\x1b[0;31m---\x1b[0m"]}
    progress = printed("\x1b[32m10%\x1b[0m\r50%\r100%\n")
    document = reading(notebook(code("a", printed(long)), code("b", picture), code("c", failed), code("d", progress)))
    outputs = [part.document.text for part in document.parts if part.document.grammar is Grammar.PLAIN]
    assert len(outputs[0]) <= MAX_OUTPUT + 3
    assert outputs[0].startswith("row 0\n")
    assert outputs[0].endswith("row 1999")
    assert outputs[1:] == ["ValueError: no pump", "100%"]
    (warning,) = document.warnings
    assert warning.reason is Reason.CONTENT_LEFT_OUT
    assert warning.metadata == {"left_out": "image/png", "characters": str(len(long) - MAX_OUTPUT)}


def test_a_bad_cell_fails_alone() -> None:
    bad = [None, {"cell_type": "code", "source": 3}, {"cell_type": []}, {"cell_type": "telepathy", "source": ""}]
    document = reading(notebook(markdown("Before."), *bad, code("after()", {"data": 3}), {"cell_type": "code"}))
    assert [part.document.text for part in document.parts] == ["Before.", "after()"]
    assert [warning.metadata["cell"] for warning in document.warnings] == ["2", "3", "4", "5"]
    assert {warning.reason for warning in document.warnings} == {Reason.DOCUMENT_UNREADABLE}


def test_no_more_bad_cells_are_named_than_anyone_reads() -> None:
    document = reading(notebook(markdown("Before."), *[None] * 1_000))
    assert len(document.warnings) == MAX_WARNINGS + 1
    assert "984" in document.warnings[-1].message


@pytest.mark.parametrize(
    "content", ['{"cells": [', "[]", "{}", '{"cells": 3}', "word", b"\xff\xfe\x00", '{"cells": [' + "[" * 100_000]
)
def test_what_is_no_notebook_is_refused(content: str | bytes) -> None:
    with pytest.raises(DocumentUnreadable):
        reading(content)


@pytest.mark.parametrize("content", [notebook(), notebook(markdown(" \n"), code(""))])
def test_a_notebook_in_which_nothing_is_written_is_empty(content: str) -> None:
    for sent in (content, content.encode()):
        with pytest.raises(DocumentEmpty):
            reading(sent)


def test_a_notebook_is_known_by_its_name_its_type_and_its_content() -> None:
    for filename, media_type in (
        ("a.ipynb", ""), ("a.ipynb", "application/json"), ("", "application/x-ipynb+json"), ("", ""),
    ):  # fmt: skip
        for content in (PUMPS, PUMPS.encode(), b"\xef\xbb\xbf" + PUMPS.encode()):
            assert len(reading(content, filename, media_type).parts) == 6


def test_text_that_no_database_takes_is_mended() -> None:
    document = reading(notebook(markdown("a\ud800b\x00c"), code("f()\r\ng()")))
    assert document.parts[0].document.text == "a\ufffdb\ufffdc"
    assert document.parts[1].document.text == "f()\ng()"


VALUES = st.recursive(
    st.none() | st.integers(-3, 9) | st.text(max_size=8) | st.sampled_from(["code", "markdown", "raw", "heading"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cell_type", "source", "outputs", "text", "data", "text/plain", "level", "input"]), inner
        )
    ),
    max_leaves=12,
)


@given(cells=st.lists(VALUES, max_size=4), metadata=VALUES)
@settings(max_examples=150, deadline=None)
def test_anything_in_a_notebook_is_read_or_refused(cells: list[Any], metadata: Any) -> None:
    try:
        reading(json.dumps({"cells": cells, "metadata": metadata}))
    except DocumentEmpty:
        return
