"""Which files an ingestion takes, and what it calls them."""

import os
from pathlib import Path

import pytest
from kbmesh_cli.errors import CliError
from kbmesh_cli.sources import find_files, read_document
from kbmesh_client import IngestDocument, IngestResult


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some of everything; the working directory is above it."""
    for name in (
        "docs/b.md",
        "docs/a/deep.txt",
        "docs/.hidden.md",
        "docs/.git/config",
        "docs/node_modules/x/readme.md",
        "docs/__pycache__/x.pyc",
        "other/b.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*paths: str, base: Path | None = None) -> list[str]:
    return [source.external_id for source in find_files([Path(path) for path in paths], base=base)]


def test_a_folder_is_searched_and_junk_is_skipped(tree: Path) -> None:
    assert names("docs") == ["docs/b.md", "docs/a/deep.txt"]


def test_the_same_command_gives_the_same_names(tree: Path) -> None:
    assert names("./docs/") == names("docs//") == names("docs")


def test_what_is_named_is_taken_even_if_it_is_hidden(tree: Path) -> None:
    assert names("docs/.hidden.md", "docs/.git") == ["docs/.hidden.md", "docs/.git/config"]


def test_a_file_that_is_named_twice_is_taken_once(tree: Path) -> None:
    assert names("docs", "docs/b.md", str(tree / "docs")) == ["docs/b.md", "docs/a/deep.txt"]


def test_two_folders_do_not_share_names(tree: Path) -> None:
    assert names("docs/b.md", "other") == ["docs/b.md", "other/b.md"]


def test_a_base_shortens_the_names(tree: Path) -> None:
    assert names(str(tree / "docs"), base=Path("docs")) == ["b.md", "a/deep.txt"]
    with pytest.raises(CliError) as caught:
        names("other", base=Path("docs"))
    assert caught.value.reason == "USAGE"


def test_a_path_that_there_is_not_is_an_error(tree: Path) -> None:
    with pytest.raises(CliError) as caught:
        names("docs", "nowhere")
    assert caught.value.reason == "FILE_NOT_FOUND"


def test_links_in_a_circle_end(tree: Path) -> None:
    (tree / "docs" / "again").symlink_to(tree / "docs")
    (tree / "docs" / "gone.md").symlink_to(tree / "nowhere")
    assert names("docs") == ["docs/b.md", "docs/a/deep.txt"]


def test_a_name_that_is_no_text_is_written_out(tree: Path) -> None:
    (tree / "other" / os.fsdecode(b"caf\xe9.md")).write_text("x")
    (source, _) = find_files([Path("other")])[::-1]
    assert source.external_id == "other/caf\\xe9.md"
    assert isinstance(read_document(source, max_bytes=10), IngestDocument)


def test_a_file_is_read_with_its_name_and_place(tree: Path) -> None:
    (source,) = find_files([Path("docs/b.md")])
    document = read_document(source, max_bytes=100)
    assert isinstance(document, IngestDocument)
    assert (document.filename, document.content) == ("b.md", b"docs/b.md")
    assert document.uri == (tree / "docs" / "b.md").as_uri()


def test_a_file_that_cannot_be_sent_has_a_failed_result(tree: Path) -> None:
    (tree / "docs" / "b.md").write_bytes(b"x" * 11)
    (source,) = find_files([Path("docs/b.md")])
    result = read_document(source, max_bytes=10)
    assert isinstance(result, IngestResult)
    assert result.error is not None
    assert result.error.reason == "DOCUMENT_TOO_LARGE"


def test_an_empty_file_is_sent_for_the_mesh_knows_what_it_was(tree: Path) -> None:
    (tree / "docs" / "b.md").write_bytes(b"")
    (source,) = find_files([Path("docs/b.md")])
    result = read_document(source, max_bytes=10)
    assert isinstance(result, IngestDocument)
    assert result.content == b""


def test_a_file_that_went_meanwhile_has_a_failed_result(tree: Path) -> None:
    (source,) = find_files([Path("docs/b.md")])
    source.path.unlink()
    result = read_document(source, max_bytes=100)
    assert isinstance(result, IngestResult)
    assert result.error is not None
    assert result.error.reason == "DOCUMENT_UNREADABLE"
