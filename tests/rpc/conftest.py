"""A server in a process of its own, to which signals can be sent."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "slow_server.py"


@dataclass
class ServerProcess:
    process: asyncio.subprocess.Process
    gate: Path
    events: list[dict[str, Any]]
    """The log so far."""

    def allow(self, name: str) -> None:
        """Lets what waits for `name` go on."""
        (self.gate / name).touch()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def logged(self, event: str) -> dict[str, Any]:
        """Waits for a line of the log."""
        assert self.process.stderr is not None
        while True:
            line = await self.process.stderr.readline()
            assert line, f"the process ended without logging {event!r}: {self.events}"
            if self._parse(line) == event:
                return self.events[-1]

    async def address(self) -> str:
        return f"127.0.0.1:{(await self.logged('listening'))['port']}"

    async def exit_code(self) -> int:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._parse(line)
        return await self.process.wait()

    def _parse(self, line: bytes) -> str | None:
        if not line.startswith(b"{"):
            return None  # gRPC's core writes to stderr itself when it cannot bind
        self.events.append(json.loads(line))
        return str(self.events[-1]["event"])

    @property
    def closed(self) -> bool:
        """Whether the application was closed."""
        return (self.gate / "closed").exists()


Start = Callable[..., Awaitable[ServerProcess]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts slow_server.py with the settings given as keywords."""
    started: list[asyncio.subprocess.Process] = []

    async def start_server(*, environment: dict[str, str] | None = None, **changes: Any) -> ServerProcess:
        given = {"port": 0, "metrics_port": 0, "grace_seconds": 30, "log_level": "debug", **changes}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SCRIPT),
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(SCRIPT.parents[1]),
                "TEST_GATE": str(tmp_path),
                **{f"KBMESH_{name.upper()}": str(value) for name, value in given.items()},
                **(environment or {}),
            },
        )
        started.append(process)
        return ServerProcess(process=process, gate=tmp_path, events=[])

    yield start_server
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
