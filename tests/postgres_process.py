"""A PostgreSQL of one's own for tests: `with postgres_process() as server: url = server.new_database()`."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 60
_ROOT = Path("/usr/lib/postgresql")
"""Where Debian puts each version's programs."""
_PROGRAMS = ("initdb", "postgres", "createdb", "pg_isready")


def postgres_missing() -> str:
    """Why no server can be started here; empty where one can."""
    try:
        import asyncpg  # noqa: F401 - whether it is there is the question
    except ImportError:
        return "needs asyncpg, the retriever's extra `postgres`"
    if _binaries() is None:
        return "needs PostgreSQL, which is not installed; `make test-services` installs it"
    return ""


@dataclass(kw_only=True)
class PostgresServer:
    """A server on a free port of the loopback interface, that trusts everybody there."""

    port: int
    programs: Path
    start: Callable[[], "subprocess.Popen[bytes]"] = field(repr=False)
    """Starts it and waits until it serves."""
    databases: int = field(default=0)
    process: "subprocess.Popen[bytes]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.process = self.start()

    def restart(self) -> None:
        """Ends it as an administrator does who does not wait for sessions, and starts it again."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=START_SECONDS)
        self.process = self.start()

    def new_database(self) -> str:
        """An empty database; gives its URL."""
        self.databases += 1
        name = f"catalog_{self.databases}"
        command = [self.programs / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "kbmesh", name]
        subprocess.run(command, check=True, capture_output=True)
        return f"postgresql://kbmesh@127.0.0.1:{self.port}/{name}"


@contextmanager
def postgres_process() -> Iterator[PostgresServer]:
    """Makes a cluster in a temporary folder, starts its server, and removes both. PostgreSQL refuses to run as root:
    there it runs as postgres, or else as nobody."""
    found = _binaries()
    assert found is not None, postgres_missing()
    programs: Path = found
    # Not pytest's own folder, which other users than root cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="kbmesh-postgres-"))
    user = _user()
    try:
        if user is not None:
            os.chown(folder, user["user"], user["group"])
        data = folder / "data"
        subprocess.run(
            # Nothing here outlives the tests: the disk need not be waited for.
            [programs / "initdb", "-D", data, "-U", "kbmesh", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"],
            check=True, capture_output=True, cwd=folder, **(user or {}),
        )  # fmt: skip
        port = _free_port()
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder), "fsync": "off"}

        def start() -> "subprocess.Popen[bytes]":
            with (folder / "server.log").open("ab") as log:
                process = subprocess.Popen(
                    [
                        *_as(user),
                        *(programs / "postgres", "-D", data, "-p", str(port)),
                        *(f"--{key}={value}" for key, value in options.items()),
                    ],
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
            try:
                _wait(process, programs, port, folder / "server.log")
            except BaseException:
                _stop(process)
                raise
            return process

        server = PostgresServer(port=port, programs=programs, start=start)
        try:
            yield server
        finally:
            _stop(server.process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop(server: "subprocess.Popen[bytes]") -> None:
    # At once: nobody needs the data again.
    server.send_signal(signal.SIGQUIT)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _binaries() -> Path | None:
    """The folder with the programs of the newest version, or else one that is on the path."""
    versions = sorted(_ROOT.glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    found = shutil.which("initdb")
    folders = [*versions, *([] if found is None else [Path(found).resolve().parent])]
    return next((folder for folder in folders if all((folder / name).exists() for name in _PROGRAMS)), None)


def _user() -> dict[str, Any] | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("there is neither a user postgres nor nobody, and PostgreSQL does not run as root")


def _as(user: dict[str, Any] | None) -> list[str]:
    """What makes another user of a command. Popen's own way forks this process with all that runs in it, and gRPC's
    threads do not bear that in the middle of a test."""
    if user is None:
        return []
    become = "import os, sys; os.setgroups([]); os.setgid({}); os.setuid({}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", become.format(user["group"], user["user"])]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: "subprocess.Popen[bytes]", programs: Path, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with code {server.returncode}: {log.read_text()[-2000:]}")
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "kbmesh", "-d", "postgres"]
        if subprocess.run(ready, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise TimeoutError(f"PostgreSQL did not serve within {START_SECONDS} s: {log.read_text()[-2000:]}")
