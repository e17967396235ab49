"""The block at the head of a Markdown file: what it says becomes metadata, as it is written."""

import pytest
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, SourceDocument
from kbmesh_rpc.errors import Reason


def reading(block: str, *, fence: str = "---") -> ExtractedDocument:
    source = SourceDocument(content=f"{fence}\n{block}\n{fence}\n\n# Pumps\n\nText.\n", filename="a.md")
    return read(source, limits=ReadingLimits())


@pytest.mark.parametrize(
    "value", ["1.20", "01234", "12:30", "NO", "yes", "2024-01-05", "0x1F", "1e3", "null", "~", "1_000", ".5", "+49"]
)
def test_values_are_what_was_written(value: str) -> None:
    document = reading(f"value: {value}\nlist: [{value}, b]")
    assert document.metadata == {"value": value, "list": f"{value}, b"}
    assert document.warnings == ()


def test_keys_are_what_was_written_and_none_is_lost() -> None:
    document = reading("on: push\nempty:\n2024: year\nquoted: 'a: b'\ntags:\n  - one\n  - 'two'\n  - 1.10")
    assert document.metadata == {
        "on": "push", "empty": "", "2024": "year", "quoted": "a: b", "tags": "one, two, 1.10",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("block", "fence"),
    [
        ("title: Pumps: a guide\nversion: 1.20\nowner: 'Ana'", "---"),
        ("version: 1.20\n\tbad: tab\ntitle: Pumps: a guide\nowner: Ana", "---"),
        ("title = Pumps: a guide\nversion = 1.20\nowner = 'Ana'", "+++"),
    ],
)
def test_a_broken_block_is_read_line_by_line_with_a_warning(block: str, fence: str) -> None:
    document = reading(block, fence=fence)
    assert document.title == "Pumps: a guide"
    assert document.metadata == {"title": "Pumps: a guide", "version": "1.20", "owner": "Ana"}
    assert [warning.reason for warning in document.warnings] == [Reason.DOCUMENT_UNREADABLE]


def test_toml_is_read_too() -> None:
    document = reading(
        'title = "Pumps"\nversion = 1.20\ncount = 3\ndraft = false\ndate = 2024-01-05\nat = 12:30:00\n'
        'tags = ["a", "b"]\n[extra]\nx = 1',
        fence="+++",
    )
    assert document.metadata == {
        "title": "Pumps", "version": "1.20", "count": "3", "draft": "false", "date": "2024-01-05", "at": "12:30:00",
        "tags": "a, b",
    }  # fmt: skip
    assert document.text[document.main.body_start :].strip() == "# Pumps\n\nText."


def test_aliases_and_tags_make_nothing() -> None:
    bomb = "a: &a [x, x]\n" + "\n".join(f"k{n}: [*a, *a]" for n in range(20))
    assert reading(bomb).warnings
    assert reading("run: !!python/object/apply:os.system ['true']").metadata == {"run": "true"}


def test_a_rule_at_the_head_is_no_block() -> None:
    text = "---\nA sentence = no key here\n---\n"
    document = read(SourceDocument(content=text, filename="a.md"), limits=ReadingLimits())
    assert document.metadata == {}
    assert document.main.body_start == 0
