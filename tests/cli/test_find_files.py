"""Which files an ingestion takes, and what it calls them."""

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kbmesh_cli.errors import CliError
from kbmesh_cli.manifest import count_manifest, read_manifest
from kbmesh_cli.sources import (
    DANGLING,
    LINKED_FOLDER,
    NO_FILE,
    SkippedPath,
    SourceFile,
    find_files,
    read_document,
)
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


def test_what_is_in_a_folder_and_is_no_file_is_named(tree: Path) -> None:
    (tree / "docs" / "again").symlink_to(tree / "docs")
    (tree / "docs" / "gone.md").symlink_to(tree / "nowhere")
    (tree / "docs" / ".hidden-link").symlink_to(tree / "nowhere")
    os.mkfifo(tree / "docs" / "a" / "pipe")
    for base, prefix in ((None, "docs/"), (tree / "docs", "")):
        skipped: list[SkippedPath] = []
        find_files([Path("docs")], base=base, skipped=skipped)
        assert {one.name: one.why for one in skipped} == {
            f"{prefix}again": LINKED_FOLDER,
            f"{prefix}gone.md": DANGLING,
            f"{prefix}a/pipe": NO_FILE,
        }


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at it and its opening."""
    path = tree / "docs" / "b.md"
    looked_at = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda self, **_: looked_at)
    result = read_document(SourceFile(external_id="x", path=path), max_bytes=100)
    assert isinstance(result, IngestResult)
    assert result.error is not None
    assert result.error.reason == "DOCUMENT_UNREADABLE"


def test_a_manifest_that_comes_through_a_pipe_is_read_once(tmp_path: Path) -> None:
    """As `--manifest <(find docs)` of a shell is."""
    os.mkfifo(tmp_path / "list")
    assert count_manifest(tmp_path / "list", None) is None
    writing = threading.Thread(target=(tmp_path / "list").write_text, args=('"a"\n"b"\n',))
    writing.start()
    assert [source.external_id for source in read_manifest(tmp_path / "list", None)] == ["a", "b"]
    writing.join()


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


def test_a_file_keeps_its_name_whatever_links_lead_to_it(tree: Path) -> None:
    (tree / "docs" / "a-link.md").symlink_to(tree / "docs" / "b.md")
    (tree / "docs" / "z-link.md").symlink_to(tree / "docs" / "b.md")
    assert names("docs") == ["docs/b.md", "docs/a/deep.txt"]
    (tree / "docs" / "far.md").symlink_to(tree / "other" / "b.md")
    assert names("docs") == ["docs/b.md", "docs/far.md", "docs/a/deep.txt"]


def test_a_folder_that_cannot_be_listed_is_told_of(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are not gone, although they are not found."""
    scandir, listdir = os.scandir, os.listdir

    def closed(path: Any, within: Callable[[Any], Any]) -> Any:
        if Path(path).name == "a":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return within(path)

    monkeypatch.setattr(os, "scandir", lambda path: closed(path, scandir))
    monkeypatch.setattr(os, "listdir", lambda path: closed(path, listdir))
    file, folder = find_files([Path("docs")])
    assert (file.external_id, folder.external_id) == ("docs/b.md", "docs/a/")
    result = read_document(folder, max_bytes=100)
    assert isinstance(result, IngestResult)
    assert result.error is not None
    assert result.error.reason == "DOCUMENT_UNREADABLE"
    assert "Permission denied" in result.error.message


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "nul"])
def test_what_is_no_file_fails_alone_and_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "x"
    with socket.socket(socket.AF_UNIX) as listening:
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "socket":
                monkeypatch.chdir(tmp_path)  # a socket's name is short
                listening.bind("x")
            case "device":
                path = Path("/dev/zero")
            case "folder":
                path.mkdir()
            case "nul":
                path = tmp_path / "a\0b"
        result = read_document(SourceFile(external_id="x", path=path), max_bytes=100)
    assert isinstance(result, IngestResult)
    assert result.error is not None
    assert result.error.reason == "DOCUMENT_UNREADABLE"


@pytest.mark.parametrize("line", ["[" * 100_000, '{"metadata": {"a": ' + "9" * 5000 + "}}", '{"uri": "file://[x"}'])
def test_no_line_of_a_manifest_ends_the_run(tmp_path: Path, line: str) -> None:
    (tmp_path / "list").write_text(f'\ufeff{{"path": "a"}}\n{line}\n{{"path": "b"}}\n')
    first, broken, last = read_manifest(tmp_path / "list", None)
    assert (first.external_id, last.external_id) == ("a", "b")
    assert isinstance(broken, IngestResult)
    assert broken.error is not None
    assert broken.error.reason == "INVALID_FIELD"
