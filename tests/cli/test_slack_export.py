"""A Slack export is taken in by its channels."""

import json
import os
from pathlib import Path
from zipfile import ZipFile

import pytest
from kbmesh_cli.sources import SourceFile, find_files, read_document
from kbmesh_client import MAX_DOCUMENT_BYTES, IngestDocument, IngestResult

USERS = [
    {"id": "U1", "name": "ada", "profile": {"display_name": "Ada", "email": "ada@example.org"}, "updated": 1},
    {"id": "U2", "name": "bob", "profile": {"real_name": "Bob"}},
    {"id": "U3", "name": "eve"},
]
FILES = {
    "users.json": USERS,
    "channels.json": [{"id": "C1", "name": "ops"}, {"id": "C2", "name": "random"}],
    "dms.json": [{"id": "D1", "members": ["U1", "U2"]}],
    "integration_logs.json": [],
    "ops/2016-01-14.json": [{"ts": "1.1", "user": "U1", "text": "see <#C2>"}],
    "ops/2016-01-15.json": [{"ts": "2.1", "user": "U1", "text": "b"}],
    "random/2016-01-14.json": [{"ts": "1.1", "user": "U3", "text": "c"}],
    "D1/2016-01-14.json": [{"ts": "1.1", "user": "U1", "text": "d"}],
}


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an export and another file; the working directory is above it."""
    for name, content in FILES.items():
        path = tmp_path / "acme" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    (tmp_path / "acme" / "readme.md").write_text("about")
    (tmp_path / "acme" / "uploads").mkdir()
    (tmp_path / "acme" / "uploads" / "plan.txt").write_text("plan")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "acme"


def sent(source: SourceFile, max_bytes: int = MAX_DOCUMENT_BYTES) -> IngestDocument:
    document = read_document(source, max_bytes=max_bytes)
    assert isinstance(document, IngestDocument)
    return document


def entries(document: IngestDocument, tmp_path: Path) -> dict[str, object]:
    packed = tmp_path / "packed.zip"
    assert isinstance(document.content, bytes)
    packed.write_bytes(document.content)
    with ZipFile(packed) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_each_channel_is_a_document_and_other_files_stay_files(export: Path) -> None:
    found = {source.external_id: source for source in find_files([Path("acme")])}
    assert list(found) == [
        "acme/D1.slack.zip",
        "acme/ops.slack.zip",
        "acme/random.slack.zip",
        "acme/readme.md",
        "acme/uploads/plan.txt",
    ]
    document = sent(found["acme/ops.slack.zip"])
    assert (document.filename, document.uri) == ("ops.slack.zip", (export / "ops").as_uri())
    assert [source.external_id for source in find_files([export], base=export)][:1] == ["D1.slack.zip"]


def test_a_channel_takes_its_days_and_the_names_that_it_speaks_of(export: Path, tmp_path: Path) -> None:
    found = {source.path.name: source for source in find_files([Path("acme")])}
    ops = entries(sent(found["ops"]), tmp_path)
    assert ops == {
        "channels.json": [{"id": "C1", "name": "ops"}, {"id": "C2", "name": "random"}],
        "users.json": [{"id": "U1", "name": "ada", "profile": {"display_name": "Ada"}}],
        "ops/2016-01-14.json": FILES["ops/2016-01-14.json"],
        "ops/2016-01-15.json": FILES["ops/2016-01-15.json"],
    }
    direct = entries(sent(found["D1"]), tmp_path)
    assert [user["id"] for user in direct["users.json"]] == ["U1", "U2"]  # type: ignore[attr-defined] # a list of users


def test_a_channel_stays_the_same_while_others_change(export: Path) -> None:
    before = {source.external_id: sent(source).content for source in find_files([Path("acme")])}
    (export / "users.json").write_text(json.dumps([*USERS, {"id": "U9", "name": "new"}]))
    (export / "random" / "2016-01-15.json").write_text("[]")
    os.utime(export / "ops" / "2016-01-14.json", (1, 1))
    after = {source.external_id: sent(source).content for source in find_files([Path("acme")])}
    assert [name for name in before if before[name] != after[name]] == ["acme/random.slack.zip"]


@pytest.mark.parametrize("folder", ["", "Acme export/"])
def test_a_zip_file_that_is_too_large_gives_its_channels(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "acme.zip"
    with ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(folder + name, json.dumps(content))
    assert [source.external_id for source in find_files([path], base=tmp_path)] == ["acme.zip"]
    with ZipFile(path, "a") as archive:
        archive.writestr(folder + "random/2016-01-16.json", b" " * (MAX_DOCUMENT_BYTES + 1))
    found = find_files([path], base=tmp_path)
    assert [source.external_id for source in found] == [
        "acme.zip/D1.slack.zip",
        "acme.zip/ops.slack.zip",
        "acme.zip/random.slack.zip",
    ]
    assert set(entries(sent(found[1]), tmp_path)) == {
        "channels.json",
        "users.json",
        "ops/2016-01-14.json",
        "ops/2016-01-15.json",
    }


def test_a_channel_that_is_too_large_fails_alone(export: Path) -> None:
    (export / "ops" / "2016-01-16.json").write_bytes(os.urandom(6000))
    channels = [source for source in find_files([Path("acme")]) if source.channel is not None]
    results = [read_document(source, max_bytes=2000) for source in channels]
    assert [isinstance(result, IngestDocument) for result in results] == [True, False, True]
    refused = results[1]
    assert isinstance(refused, IngestResult)
    assert refused.error is not None
    assert (refused.error.reason, refused.error.metadata["limit"]) == ("DOCUMENT_TOO_LARGE", "2000")


def test_broken_lists_leave_the_days(export: Path, tmp_path: Path) -> None:
    (export / "users.json").write_text("[[[")
    (export / "channels.json").write_text('{"no": "list"}')
    found = {source.path.name: source for source in find_files([Path("acme")])}
    assert set(entries(sent(found["ops"]), tmp_path)) == {"ops/2016-01-14.json", "ops/2016-01-15.json"}


def test_a_folder_with_a_list_of_users_and_no_days_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text("[]")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.json").write_text("{}")
    assert [source.path.name for source in find_files([tmp_path])] == ["users.json", "a.json"]
