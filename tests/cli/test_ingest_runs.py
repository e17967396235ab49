"""Somebody keeps folders in a knowledge base from the command line: in parts, resumed, watched, and pruned."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh_cli import watching
from kbmesh_cli.commands import ingest as ingest_command
from kbmesh_cli.errors import CliError
from kbmesh_cli.manifest import Shard, read_manifest
from kbmesh_cli.sources import SourceFile, find_files
from kbmesh_client import IngestResult
from kbmesh_rpc.errors import DependencyUnavailable, KnowledgeBaseNotFound


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten files in docs/, which is where the command is called from."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.md").write_text(f"text {number}")
    monkeypatch.chdir(tmp_path)
    return folder


# Jobs


async def test_a_job_that_broke_off_goes_on_where_it_was(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path
) -> None:
    script.refused = {f"docs/{number}.md": "DEPENDENCY_UNAVAILABLE" for number in range(5, 10)}
    arguments = ("ingest", "handbook", "docs", "--job", "nightly", "--json", "--endpoint", endpoint)
    first = await kbmesh(*arguments)
    assert (first.code, first.lines()[-1]["new"], first.lines()[-1]["failed"]) == (1, 5, 5)

    script.refused.clear()
    script.ingested.clear()
    (docs / "0.md").write_text("another text")
    again = await kbmesh(*arguments)

    summary = again.lines()[-1]
    assert (again.code, summary["total"], summary["resumed"], summary["failed"]) == (0, 10, 4, 0)
    assert sorted(script.ingested) == ["docs/0.md", *(f"docs/{number}.md" for number in range(5, 10))]
    assert summary["tokens"] == 6 * 20, "what was done before costs nothing now"


# Manifests and shards


async def test_every_document_of_a_manifest_is_in_one_shard(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As three pods of an Indexed Job would."""
    manifest = docs.parent / "list.jsonl"
    entries = [
        {"external_id": f"doc-{number}", "path": f"docs/{number}.md", "title": f"Title {number}"} for number in range(9)
    ]
    entries.append({"external_id": "doc-9", "uri": (docs / "9.md").absolute().as_uri(), "metadata": {"team": "red"}})
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    parts = []
    for index in range(3):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))
        script.ingested.clear()
        done = await kbmesh("ingest", "handbook", "--manifest", manifest, "--shard", "3", "--endpoint", endpoint)
        assert done.code == 0
        parts.append(set(script.ingested))
    assert set.union(*parts) == {f"doc-{number}" for number in range(10)}
    assert sum(map(len, parts)) == 10
    assert all(parts)
    assert script.documents["doc-3"].title == "Title 3"
    assert script.documents["doc-9"].document.metadata == {"team": "red"}
    assert script.documents["doc-9"].document.data == b"text 9"


async def test_bad_lines_of_a_manifest_fail_alone(script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path) -> None:
    manifest = docs.parent / "list.jsonl"
    lines = [
        '{"external_id": "good", "path": "docs/1.md"}',
        "",
        "no json",
        '{"external_id": "nothing"}',
        '{"path": "docs/2.md", "colour": "red"}',
        '{"external_id": "far", "uri": "s3://bucket/key"}',
        '{"external_id": "gone", "path": "docs/none.md"}',
        '"docs/3.md"',
    ]
    manifest.write_text("\n".join(lines))
    done = await kbmesh("ingest", "handbook", "--manifest", manifest, "--json", "--endpoint", endpoint)
    assert done.code == 1
    *documents, summary = done.lines()
    assert {entry["external_id"]: (entry["error"] or {}).get("reason") for entry in documents} == {
        "good": None,
        "docs/3.md": None,
        "list.jsonl:3": "INVALID_FIELD",
        "list.jsonl:4": "INVALID_FIELD",
        "list.jsonl:5": "INVALID_FIELD",
        "far": "FEATURE_UNSUPPORTED",
        "gone": "DOCUMENT_UNREADABLE",
    }
    assert (summary["new"], summary["failed"]) == (2, 5)


@pytest.mark.parametrize("key", ["uri", "path"])
@pytest.mark.parametrize(
    "place",
    ["s3://bucket/key", "https://example.org/a.md", "GS://bucket/key", "az+blob://x/y", "file://nas/share/a.md"],
)
def test_a_manifest_names_files_of_this_machine_alone(tmp_path: Path, key: str, place: str) -> None:
    """Nothing is fetched from elsewhere; the error says what may stand there."""
    manifest = tmp_path / "list.jsonl"
    manifest.write_text(json.dumps({"external_id": "far", key: place}))
    (entry,) = read_manifest(manifest, None)
    assert isinstance(entry, IngestResult)
    assert entry.error is not None
    assert entry.error.reason == "FEATURE_UNSUPPORTED"
    assert entry.error.metadata["feature"] == f"{place.split(':')[0].lower()} URIs"
    assert "file://" in entry.error.metadata["allowed"]
    assert place.split("://")[0] in entry.error.message
    assert "path" in entry.error.message


def test_a_colon_in_the_name_of_a_file_is_no_scheme(tmp_path: Path) -> None:
    names = ["10:30.md", "re: minutes.md", "a/b://c.md", "C:notes.md"]
    manifest = tmp_path / "list.jsonl"
    lines = [*names, f"file:{tmp_path}/x%20y.md", f"file://localhost{tmp_path}/x%20y.md"]
    manifest.write_text("".join(json.dumps({"path": name}) + "\n" for name in lines))
    read = list(read_manifest(manifest, None))
    assert [entry.path for entry in read if isinstance(entry, SourceFile)] == [
        *(tmp_path / name for name in names),
        tmp_path / "x y.md",
        tmp_path / "x y.md",
    ]


def test_bad_lines_are_told_of_by_one_shard_alone(tmp_path: Path) -> None:
    manifest = tmp_path / "list.jsonl"
    manifest.write_text("no json\n" * 20)
    told = [entry for index in range(4) for entry in read_manifest(manifest, Shard(index=index, count=4))]
    assert all(isinstance(entry, IngestResult) for entry in told)
    assert len(told) == len({entry.external_id for entry in told}) == 20


@pytest.mark.parametrize("text", ["3/3", "a/3", "1/0", "1/", "-1/3", "4/3", "3"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CliError) as refused:
        Shard.parse(text, {})
    assert refused.value.reason == "USAGE"


async def test_what_does_not_go_together_is_a_wrong_call(endpoint: str, kbmesh: Kbmesh, docs: Path) -> None:
    manifest = docs.parent / "list.jsonl"
    manifest.write_text("")
    for arguments in (
        (),
        ("docs", "--manifest", manifest),
        ("--manifest", manifest, "--watch"),
        ("--manifest", manifest, "--prune"),
        ("docs", "--shard", "0/2", "--prune"),
        ("docs/1.md", "--prune"),
        ("docs", "--shard", "x"),
    ):
        assert (await kbmesh("ingest", "handbook", *arguments, "--endpoint", endpoint)).code == 2


# Pruning


async def test_documents_whose_files_are_gone_stay_without_prune(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path
) -> None:
    arguments = ("ingest", "handbook", "docs", "--endpoint", endpoint, "--json")
    await kbmesh(*arguments)
    (docs / "3.md").unlink()
    await kbmesh(*arguments)
    assert "docs/3.md" in script.documents
    done = await kbmesh(*arguments, "--prune")
    assert (done.code, done.lines()[-1]["pruned"]) == (0, 1)
    assert "docs/3.md" not in script.documents
    assert len(script.documents) == 9


async def test_a_document_whose_file_is_behind_a_broken_link_is_not_pruned(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path
) -> None:
    """What the link led to may be on a share that is not mounted."""
    arguments = ("ingest", "handbook", "docs", "--endpoint", endpoint, "--json")
    await kbmesh(*arguments)
    (docs / "3.md").unlink()
    (docs / "3.md").symlink_to("/nowhere/3.md")
    (docs / "4.md").unlink()
    (docs / "sub").mkdir()
    (docs / "sub" / "5.md").write_text("x")
    await kbmesh(*arguments)
    (docs / "sub").rename(docs.parent / "elsewhere")
    (docs / "sub").symlink_to(docs.parent / "elsewhere")
    done = await kbmesh(*arguments, "--prune")
    assert (done.lines()[-1]["pruned"], done.lines()[-1]["skipped"]) == (1, 2)
    assert {"docs/3.md", "docs/sub/5.md"} <= set(script.documents)
    assert "docs/4.md" not in script.documents


async def test_a_prune_that_takes_most_of_a_folder_is_refused(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path
) -> None:
    """The folder is there, and what should be mounted on it is not."""
    arguments = ("ingest", "handbook", "docs", "--endpoint", endpoint, "--json")
    await kbmesh(*arguments)
    for number in range(4):
        (docs / f"{number}.md").unlink()
    refused = await kbmesh(*arguments, "--prune")
    assert refused.code == 1
    error = refused.lines()[-1]["error"]
    assert (error["reason"], error["metadata"]) == ("PRUNE_REFUSED", {"missing": "4", "documents": "10"})
    assert len(script.documents) == 10
    assert (await kbmesh(*arguments, "--prune-anyway")).code == 0
    assert sorted(script.documents) == [f"docs/{number}.md" for number in range(4, 10)]


async def test_a_prune_takes_nobody_elses_documents(script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path) -> None:
    """Named below the folder and not from a file; from a file and not below the folder."""
    other = docs.parent / "docs-old"
    other.mkdir()
    (other / "a.md").write_text("old")
    await kbmesh("ingest", "handbook", "docs-old", "--endpoint", endpoint)
    await kbmesh("ingest", "handbook", "docs", "--endpoint", endpoint)
    script.documents["docs/from-slack"] = script.documents["docs/1.md"].__class__(uri="https://slack.example/1")
    (docs / "1.md").unlink()
    await kbmesh("ingest", "handbook", "docs", "--prune", "--endpoint", endpoint)
    assert {"docs/from-slack", "docs-old/a.md"} <= set(script.documents)
    assert "docs/1.md" not in script.documents


# Watching


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


async def test_changed_files_go_in_as_they_change_and_errors_end_nothing(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file comes, one is changed, the mesh is away for a while, one goes; then Ctrl-C."""
    ends = False

    def sleep(seconds: float) -> None:
        if ends:
            raise KeyboardInterrupt
        time.sleep(min(seconds, 0.05))

    monkeypatch.setattr(ingest_command, "pause", sleep)
    arguments = ("ingest", "handbook", "docs", "--watch", "--watch-seconds", "0.05", "--prune", "--endpoint", endpoint)
    watch = asyncio.create_task(kbmesh(*arguments, "--json"))
    await until(lambda: len(script.documents) == 10)
    (docs / "new.md").write_text("new text")
    await until(lambda: "docs/new.md" in script.documents)

    script.error = DependencyUnavailable("catalog", "away")
    (docs / "1.md").write_text("changed while the mesh was away")
    asked = len(script.requests)
    await until(lambda: len(script.requests) > asked + 1)
    script.error = None
    await until(lambda: script.documents["docs/1.md"].document.data.startswith(b"changed"))

    script.refused = {"docs/2.md": "DEPENDENCY_UNAVAILABLE"}
    (docs / "2.md").write_text("changed again")
    await until(lambda: script.ingested.count("docs/2.md") > 2)
    script.refused.clear()
    await until(lambda: script.documents["docs/2.md"].document.data == b"changed again")

    (docs / "3.md").unlink()
    await until(lambda: "docs/3.md" not in script.documents)
    assert script.ingested.count("docs/4.md") == 1, "what did not change is not sent again"
    script.refused = {"docs/5.md": "DOCUMENT_UNREADABLE"}
    (docs / "5.md").write_text("broken")
    await until(lambda: script.ingested.count("docs/5.md") > 1)
    ends = True
    done = await watch
    assert done.code == 1, "one has not gone in"
    summary = done.lines()[-1]
    assert summary["failures"] == [{"external_id": "docs/5.md", "reason": "DOCUMENT_UNREADABLE"}]
    assert (summary["failed"], summary["pruned"]) == (1, 1)
    assert summary["rounds"] > 4


async def test_a_file_that_failed_and_is_gone_fails_no_watch(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            (docs / "5.md").unlink()
        elif looks > 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(ingest_command, "pause", sleep)
    script.refused = {"docs/5.md": "DOCUMENT_EMPTY"}
    done = await kbmesh("ingest", "handbook", "docs", "--watch", "--endpoint", endpoint, "--json")
    summary = done.lines()[-1]
    assert (done.code, summary["failed"], summary["failures"], summary["new"]) == (0, 0, [], 9)


async def test_a_watch_waits_for_a_mesh_that_is_not_there_yet(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is away at first, breaks off in the middle of the first pass, and one document's turn comes later still."""
    pauses: list[float] = []
    tries_before_it_is_there = 8

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == tries_before_it_is_there:
            script.error = None
        if len(script.documents) == 10:
            raise KeyboardInterrupt
        assert len(pauses) < 200, "it did not go in"
        time.sleep(0.01)

    monkeypatch.setattr(ingest_command, "pause", sleep)
    script.error = DependencyUnavailable("catalog", "away")
    script.refused = {"docs/7.md": "DEPENDENCY_UNAVAILABLE"}
    arguments = ("ingest", "handbook", "docs", "--watch", "--watch-seconds", "0.5", "--endpoint", endpoint)
    watch = asyncio.create_task(kbmesh(*arguments, "--json"))
    await until(lambda: script.ingested.count("docs/7.md") > 2)
    script.refused.clear()
    done = await watch

    assert pauses[:tries_before_it_is_there] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[tries_before_it_is_there : tries_before_it_is_there + 2] == [30, 30], "one is not there yet"
    told = [line["error"]["reason"] for line in done.lines() if line.get("error") and "hint" in line["error"]]
    assert told == ["DEPENDENCY_UNAVAILABLE"] * tries_before_it_is_there
    summary = done.lines()[-1]
    assert (done.code, summary["total"], summary["new"], summary["failed"]) == (0, 10, 10, 0)
    assert summary["failures"] == []
    assert all(script.ingested.count(name) == 1 for name in script.documents if name != "docs/7.md")


async def test_ctrl_c_while_the_mesh_is_away_ends_with_a_summary(
    endpoint: str, kbmesh: Kbmesh, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ingest_command, "pause", sleep)
    done = await kbmesh("ingest", "handbook", "docs", "--watch", "--endpoint", "127.0.0.1:1")
    assert done.code == 1, "they had not gone in"
    assert "DEPENDENCY_UNAVAILABLE" in done.err
    assert "10 files" in done.err
    assert "0 documents" in done.out


async def test_a_watch_of_what_there_is_not_ends_at_once(
    script: Script, endpoint: str, kbmesh: Kbmesh, docs: Path
) -> None:
    """A wrong name is not waited for."""
    script.error = KnowledgeBaseNotFound("handbok")
    done = await kbmesh("ingest", "handbok", "docs", "--watch", "--json", "--endpoint", endpoint)
    assert (done.code, done.lines()[-1]["error"]["reason"]) == (1, "KNOWLEDGE_BASE_NOT_FOUND")


def test_a_file_that_is_still_being_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("one")
    watched = watching.WatchedFiles(lambda: find_files([tmp_path]))
    assert [source.path for source in watched.begin()] == [path]
    assert not watched.look()
    for text in ("one two", "one two three"):
        path.write_text(text)
        assert not watched.look(), "it changed since the last look"
    changes = watched.look()
    assert [source.path for source in changes.files] == [path]
    assert watched.look().files, "as long as nobody took it in"
    watched.taken(changes)
    assert not watched.look()


def test_a_file_of_the_same_size_and_another_time_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("one")
    watched = watching.WatchedFiles(lambda: find_files([tmp_path]))
    watched.begin()
    os.utime(path, (1, 1))
    watched.look()
    assert watched.look().files


def test_a_file_is_gone_after_two_looks(tmp_path: Path) -> None:
    """An editor replaces a file by way of another name: for a moment there is none."""
    path = tmp_path / "a.md"
    path.write_text("one")
    sources: list[SourceFile] = find_files([tmp_path])
    watched = watching.WatchedFiles(lambda: list(sources))
    watched.begin()
    sources.clear()
    assert not watched.look().gone
    assert watched.look().gone == [str(path)]
