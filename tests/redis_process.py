"""A Redis of one's own for tests: `with redis_process() as url: ...`."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_process import free_port

START_SECONDS = 30


def redis_missing() -> str:
    """Why no server can be started here; empty where one can."""
    try:
        import redis  # noqa: F401 - whether it is there is the question
    except ImportError:
        return "needs redis, the retriever's extra `redis`"
    if shutil.which("redis-server") is None:
        return "needs redis-server, which is not installed; `make test-services` installs it"
    return ""


@contextmanager
def redis_process(*options: str, port: int = 0) -> Iterator[str]:
    """Starts a server that keeps nothing on disk, on a free port of the loopback interface, gives its URL and ends
    it. `options` as on its command line."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="kbmesh-redis-") as folder:
        log = Path(folder) / "server.log"
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        with log.open("wb") as output:
            server = subprocess.Popen(
                [*command, "--save", "", "--appendonly", "no", *options], stdout=output, stderr=output
            )
        try:
            _wait(server, port, log)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            server.wait()


def _wait(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"redis-server ended with code {server.returncode}: {log.read_text()[-2000:]}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64):  # +PONG, or that it wants a password
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"redis-server did not serve within {START_SECONDS} s: {log.read_text()[-2000:]}")
