"""A whole mesh as a user starts it: `kbmesh up` in a process of its own, on a temporary home and free ports."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KBMESH = Path(sys.executable).parent / "kbmesh"
READY_SECONDS = 90


def free_port_base() -> int:
    """Finds a port whose four followers, and their metrics ports a hundred above, are free."""
    for base in range(20_000 + os.getpid() % 500 * 20, 60_000, 210):
        ports = [base + step + metrics for step in range(5) for metrics in (0, 100)]
        with ExitStack() as stack:
            try:
                for port in ports:
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise RuntimeError("no free ports")


@dataclass(kw_only=True)
class Mesh:
    """A mesh that runs, or may run again."""

    home: Path
    port_base: int = field(default_factory=free_port_base)
    environment: dict[str, str] = field(default_factory=dict)
    """Settings of the services, on top of what `kbmesh up` gives them."""
    command_environment: dict[str, str] = field(default_factory=dict)
    """What every other command gets besides."""
    process: subprocess.Popen[str] | None = None

    def up(self) -> None:
        """Starts it and waits until it is ready."""
        self.process = subprocess.Popen(
            [KBMESH, "--home", self.home, "up", "--port-base", str(self.port_base), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"kbmesh up ended with {self.process.wait()}"
        assert json.loads(line)["endpoint"] == f"127.0.0.1:{self.port_base}"

    def down(self) -> int:
        """Stops it as Ctrl-C does and gives its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    @property
    def pids(self) -> dict[str, int]:
        """The process of each service."""
        state = json.loads((self.home / "run/mesh.json").read_text())
        return {name: service["pid"] for name, service in state["services"].items()}

    def kill(self, service: str) -> int:
        """Kills a service with SIGKILL and gives the process it was."""
        pid = self.pids[service]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_all(self) -> None:
        """Kills `kbmesh up` itself with SIGKILL."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
            time.sleep(0.1)

    def wait_until_serving(self) -> None:
        self.wait_for(lambda: self.kbmesh("doctor", check=False).returncode == 0, "a healthy mesh")

    def kbmesh(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs the command against this mesh, with --json."""
        done = subprocess.run(
            [KBMESH, "--home", self.home, *arguments, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.command_environment},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def json(self, *arguments: str | Path) -> Any:
        """Runs the command and parses the object that it prints, the last one of several lines."""
        return json.loads(self.kbmesh(*arguments).stdout.splitlines()[-1])

    def error(self, *arguments: str | Path) -> dict[str, Any]:
        """Runs a command that must fail and gives its error."""
        done = self.kbmesh(*arguments, check=False)
        assert done.returncode != 0, done.stdout
        error: dict[str, Any] = json.loads(done.stdout)["error"]
        return error

    def start_ingest(
        self, knowledge_base: str, *paths: Path, concurrency: int | None = None, reconnect_seconds: int | None = None
    ) -> subprocess.Popen[str]:
        """Starts an ingestion and does not wait for it."""
        options = () if concurrency is None else ("--concurrency", str(concurrency))
        if reconnect_seconds is not None:
            options += ("--reconnect-seconds", str(reconnect_seconds))
        return subprocess.Popen(
            [KBMESH, "--home", self.home, "ingest", knowledge_base, *paths, "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
