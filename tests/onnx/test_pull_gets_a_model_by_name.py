"""A model comes from a folder, an installed package or a hub, once."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kbmesh_onnx.errors import PullError
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.pull import pull_model
from opened_model import OpenedModel
from tiny_models import write_tiny_encoder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """The part of a model hub that a download uses, over one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.folder = folder


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0]
        files = sorted(
            str(each.relative_to(self.server.folder)) for each in self.server.folder.rglob("*") if each.is_file()
        )
        name = path.removeprefix(f"/tester/tiny/resolve/{COMMIT}/")
        if path.startswith("/api/models/tester/tiny/revision/"):
            listed = {"id": "tester/tiny", "sha": COMMIT, "siblings": [{"rfilename": each} for each in files]}
            self._send(200, json.dumps(listed).encode(), body=body)
        elif path.startswith("/api/models/tester/tiny/tree/"):
            tree = [
                {"type": "file", "path": each, "size": (self.server.folder / each).stat().st_size, "oid": "0" * 40}
                for each in files
            ]
            self._send(200, json.dumps(tree).encode(), body=body)
        elif name in files:
            self._send(200, (self.server.folder / name).read_bytes(), body=body)
        else:
            self._send(404, b"{}", body=body, error="RepoNotFound")

    def _send(self, status: int, content: bytes, *, body: bool, error: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if error is not None:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    server = Hub(write_tiny_encoder(tmp_path / "hub"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def pull_from_hub(endpoint: str, hub_id: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Pull in a process of its own: the hub's client reads its settings when it is imported."""
    script = (
        "import sys; from pathlib import Path; from kbmesh_onnx.errors import PullError\n"
        "from kbmesh_onnx.pull import pull_model\n"
        "try: print(pull_model(sys.argv[1], Path(sys.argv[2])).fingerprint)\n"
        "except PullError as error: sys.exit(f'PullError: {error}')\n"
    )
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(place / "hub-cache"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", script, hub_id, str(place / "models")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_model_comes_from_a_hub(hub: str, tmp_path: Path) -> None:
    ended = pull_from_hub(hub, "tester/tiny", tmp_path)
    assert ended.returncode == 0, ended.stderr
    card = load_card(tmp_path / "models" / "tiny")
    assert (card.name, card.source) == ("tiny", "tester/tiny")
    assert ended.stdout.strip() == card.fingerprint
    assert pull_model(str(tmp_path / "hub"), tmp_path / "local").fingerprint == card.fingerprint


def test_a_hub_that_has_no_such_model_or_cannot_be_reached(hub: str, tmp_path: Path) -> None:
    ended = pull_from_hub(hub, "tester/other", tmp_path)
    assert ended.returncode == 1
    assert "PullError" in ended.stderr
    assert "tester/other" in ended.stderr
    ended = pull_from_hub("http://127.0.0.1:9", "tester/tiny", tmp_path)
    assert ended.returncode == 1
    assert "cannot be reached" in ended.stderr
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("name", ["no-such-model", "/nowhere/at/all", "a/b/c", "", ".."])
def test_a_name_that_is_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(PullError):
        pull_model(name, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_second_pull_of_the_same_model_writes_nothing(tmp_path: Path) -> None:
    source, stages = write_tiny_encoder(tmp_path / "tiny"), list[str]()
    first = pull_model(str(source), tmp_path / "models")
    before = (tmp_path / "models" / "tiny").stat()
    assert pull_model(str(source), tmp_path / "models", progress=stages.append) == first
    assert (tmp_path / "models" / "tiny").stat().st_ino == before.st_ino
    assert stages[-1] == "already there"


def test_another_model_of_the_same_name_replaces_the_first(tmp_path: Path) -> None:
    """EMB-09: and its fingerprint says that it is another."""
    first = pull_model(str(write_tiny_encoder(tmp_path / "one" / "tiny")), tmp_path / "models")
    second = pull_model(str(write_tiny_encoder(tmp_path / "two" / "tiny", seed=1)), tmp_path / "models")
    assert first.fingerprint != second.fingerprint
    assert load_card(tmp_path / "models" / "tiny") == second


def test_a_broken_model_folder_is_written_anew(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "tiny")
    first = pull_model(str(source), tmp_path / "models")
    (tmp_path / "models" / "tiny" / "model.onnx.data").write_bytes(b"half")
    assert pull_model(str(source), tmp_path / "models").fingerprint == first.fingerprint
    assert load_card(tmp_path / "models" / "tiny").fingerprint == first.fingerprint


def test_pulls_at_once_do_the_work_once(tmp_path: Path) -> None:
    source, stages = write_tiny_encoder(tmp_path / "tiny"), list[str]()
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(pull_model, str(source), tmp_path / "models", progress=stages.append) for _ in range(4)]
        cards = [run.result() for run in runs]
    assert all(card == cards[0] for card in cards)
    assert stages.count("writing graphs") == 1


def test_a_finished_model_folder_is_copied(tiny: OpenedModel, tmp_path: Path) -> None:
    stages = list[str]()
    copied = pull_model(str(tiny.folder), tmp_path / "models", name="copy")
    assert copied == replace(tiny.card, name="copy") == load_card(tmp_path / "models" / "copy")
    pull_model(str(tiny.folder), tmp_path / "models", name="copy", progress=stages.append)
    assert stages == ["already there"]
    assert pull_model(str(tiny.folder), tiny.folder.parent) == tiny.card
