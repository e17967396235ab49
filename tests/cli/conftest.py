"""A scripted mesh, and the command in this process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli.command import Done, Kbmesh
from cli.scripted_mesh import Script, ScriptedMesh
from kbmesh_cli.__main__ import run
from kbmesh_rpc.server import running
from kbmesh_rpc.settings import ServerSettings
from structlog.testing import capture_logs


@pytest.fixture
def script() -> Script:
    """What the scripted mesh answers; a test changes it."""
    return Script()


@pytest.fixture
async def endpoint(script: Script) -> AsyncIterator[str]:
    """host:port of the scripted mesh."""
    with capture_logs():  # a test may read what a command prints; the server's log is not part of it
        async with running(ScriptedMesh(script), ServerSettings(port=0, metrics_port=0)) as target:
            yield target


@pytest.fixture
def kbmesh(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kbmesh:
    """Runs the command in a thread of its own, with a home that is empty."""
    for name in ("KBMESH_ENDPOINT", "KBMESH_HOME", "KBMESH_TENANT", "KBMESH_MODELS", "KBMESH_CHUNKER_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    async def call(*arguments: str | Path) -> Done:
        capsys.readouterr()
        code = await asyncio.to_thread(run, ["--home", str(tmp_path / "home"), *map(str, arguments)])
        captured = capsys.readouterr()
        return Done(code=code, out=captured.out, err=captured.err)

    return call
