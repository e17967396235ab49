"""Everything that a user can get wrong, and everything that can be down, has a typed answer, and nothing is lost."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from mesh_process import Mesh


def test_unknown_names_and_bad_queries(shared_mesh: Mesh) -> None:
    shared_mesh.json("kb", "create", "errors")
    assert shared_mesh.error("search", "anything", "--kb", "nowhere")["reason"] == "KNOWLEDGE_BASE_NOT_FOUND"
    assert shared_mesh.error("search", "   ", "--kb", "errors")["reason"] == "EMPTY_TEXT"
    assert shared_mesh.error("search", "x" * 10_001, "--kb", "errors")["reason"] in (
        "INVALID_FIELD",
        "REQUEST_TOO_LARGE",
    )
    assert shared_mesh.error("kb", "create", "errors")["reason"] == "KNOWLEDGE_BASE_ALREADY_EXISTS"
    assert shared_mesh.error("kb", "create", "bad name!")["reason"] == "INVALID_FIELD"
    unknown_model = shared_mesh.error("kb", "create", "model", "--model", "no-such-model")
    assert unknown_model["reason"] == "MODEL_NOT_FOUND"
    assert "all-MiniLM-L6-v2" in unknown_model["metadata"]["available"]
    assert shared_mesh.error("ingest", "nowhere", __file__)["reason"] == "KNOWLEDGE_BASE_NOT_FOUND"


def test_an_unknown_model_leaves_no_knowledge_base_behind(shared_mesh: Mesh) -> None:
    shared_mesh.error("kb", "create", "half-made", "--model", "no-such-model")
    assert shared_mesh.error("kb", "show", "half-made")["reason"] == "KNOWLEDGE_BASE_NOT_FOUND"


def test_bad_files_fail_alone(shared_mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Good\n\nThe escalation number is 5512.")
    (tmp_path / "empty.md").write_text("")
    (tmp_path / "blank.txt").write_text(" \n\t\n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "huge.txt").write_text("The quick brown fox jumps over the lazy dog. " * 466_034)  # 20 MB
    shared_mesh.json("kb", "create", "bad-files")

    done = shared_mesh.kbmesh("ingest", "bad-files", tmp_path, check=False)

    *documents, report = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 1
    assert report["new"] == 1
    assert report["failed"] == 5
    reasons = {Path(entry["external_id"]).name: entry["error"]["reason"] for entry in documents if entry["error"]}
    assert reasons == {
        "empty.md": "DOCUMENT_EMPTY",
        "blank.txt": "DOCUMENT_EMPTY",
        "binary.txt": "DOCUMENT_UNREADABLE",
        "picture.png": "UNSUPPORTED_MEDIA_TYPE",
        "huge.txt": "DOCUMENT_TOO_LARGE",
    }
    answer = shared_mesh.json("search", "escalation number", "--kb", "bad-files")
    assert [result["text"] for result in answer["results"]] == ["# Good\n\nThe escalation number is 5512."]


def test_without_a_reranker_the_fused_order_is_returned_and_marked(
    make_mesh: Callable[[], Mesh], tmp_path: Path
) -> None:
    mesh = make_mesh()
    mesh.up()
    (tmp_path / "note.md").write_text("# Note\n\nBackups run at 02:00.")
    mesh.json("kb", "create", "notes")
    mesh.json("ingest", "notes", tmp_path / "note.md")

    # A stopped process is a service that hangs: its port is open, nothing answers.
    stopped = mesh.pids["reranker"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        answer = mesh.json("search", "When do backups run?", "--kb", "notes")
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert answer["results"][0]["text"].endswith("02:00.")
    assert [entry["stage"].lower() for entry in answer["degraded"]] == ["rerank"]
    assert answer["degraded"][0]["reason"] in ("DEADLINE_EXCEEDED", "DEPENDENCY_UNAVAILABLE")

    # The vector store hangs: the knowledge base says so, the answer is empty with a reason, and the command fails.
    stopped = mesh.pids["edge"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        done = mesh.kbmesh("search", "When do backups run?", "--kb", "notes", check=False)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["results"] == []
    assert [entry["stage"] for entry in answer["degraded"]] == ["search"]
    assert answer["knowledge_bases"][0]["status"] in ("TIMEOUT", "UNAVAILABLE")

    # And back again: nothing was lost.
    answer = mesh.json("search", "When do backups run?", "--kb", "notes")
    assert answer["degraded"] == []
    assert answer["results"][0]["text"].endswith("02:00.")


def test_without_a_mesh_the_command_says_how_to_start_one(make_mesh: Callable[[], Mesh]) -> None:
    mesh = make_mesh()
    error = mesh.error("--endpoint", f"127.0.0.1:{mesh.port_base}", "search", "anything", "--kb", "x")
    assert error["reason"] in ("SERVICE_UNAVAILABLE", "DEPENDENCY_UNAVAILABLE")
