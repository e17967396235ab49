"""`kbmesh up` with one real service that needs no model: start, heal, refuse, stop, and never outlive its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kbmesh_cli.health import Health, check_health
from kbmesh_cli.ports import free_port_base
from kbmesh_cli.processes import gravest_lines
from kbmesh_cli.state import read_state

SECONDS = 60


class Up:
    """One `kbmesh up` in a process group of its own, as a terminal starts it."""

    def __init__(self, home: Path, *options: str, service: str) -> None:
        self.home = home
        self.port_base = free_port_base(5)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}
        self._stderr = (home.parent / f"{home.name}.err").open("w+")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kbmesh_cli", "--home", str(home), "up", "--json"),
                *("--service", service, "--port-base", str(self.port_base), *options),
            ],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def line(self) -> Any:
        """The one line that it prints: it is ready, or why not."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def told(self) -> str:
        """What it said on stderr so far."""
        return Path(self._stderr.name).read_text()

    def service_pid(self) -> int:
        state = read_state(self.home)
        assert state is not None
        return state.services["chunker"].pid

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts a mesh of one service; ends whatever is left of it."""
    started: list[Up] = []

    def call(*options: str, service: str = "chunker") -> Up:
        started.append(Up(tmp_path / "home", *options, service=service))
        return started[-1]

    yield call
    for each in started:
        each.end()


def test_it_is_ready_heals_and_stops_on_ctrl_c(start: Callable[..., Up]) -> None:
    up = start()
    ready = up.line()
    assert ready["ready"] is True
    assert ready["pid"] == up.process.pid
    assert ready["services"]["chunker"]["endpoint"] == f"127.0.0.1:{up.port_base + 1}"
    first = up.service_pid()

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: "chunker is back" in up.told(), "healing")
    second = up.service_pid()
    assert second != first
    assert "chunker (process" in up.told()
    assert "SIGKILL" in up.told()
    assert check_health(f"127.0.0.1:{up.port_base + 1}") is Health.SERVING
    state = read_state(up.home)
    assert state is not None
    assert state.services["chunker"].restarts == 1

    os.killpg(up.process.pid, signal.SIGINT)  # as a terminal does: the whole group at once
    assert up.process.wait(SECONDS) == 0
    assert not is_alive(second)
    assert read_state(up.home) is None
    assert "stopped" in up.told()
    assert "Traceback" not in up.told()


def test_a_second_mesh_on_the_same_home_is_refused(start: Callable[..., Up]) -> None:
    up = start()
    up.line()
    second = start()
    error = second.line()["error"]
    assert error["reason"] == "MESH_ALREADY_RUNNING"
    assert second.process.wait(SECONDS) == 1
    assert is_alive(up.service_pid())
    up.process.terminate()
    assert up.process.wait(SECONDS) == 0


def test_a_port_that_is_taken_is_named(start: Callable[..., Up]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        up = start("--port-base", str(port - 1))  # the last of two options counts
        error = up.line()["error"]
        assert error["reason"] == "PORT_TAKEN"
        assert str(port) in error["metadata"]["ports"].split(",")
        assert up.process.wait(SECONDS) == 1


def test_services_die_with_a_parent_that_is_killed(start: Callable[..., Up]) -> None:
    up = start()
    up.line()
    pid = up.service_pid()
    up.process.kill()
    up.process.wait()
    wait_for(lambda: not is_alive(pid) or _is_zombie(pid), "the service's end")
    assert read_state(up.home) is None  # what it left behind counts for nothing
    again = start()
    assert again.line()["ready"] is True
    again.process.terminate()
    assert again.process.wait(SECONDS) == 0


def test_a_service_that_dies_while_starting_is_named_with_its_last_words(
    start: Callable[..., Up], tmp_path: Path
) -> None:
    (tmp_path / "home" / "data").mkdir(parents=True)
    (tmp_path / "home" / "data" / "edge").write_text("a file where the folder should be")
    up = start(service="edge")
    error = up.line()["error"]
    assert error["reason"] == "SERVICE_DIED"
    assert error["metadata"]["service"] == "edge"
    assert "last log lines: " in error["message"]
    assert "\n" not in error["message"]
    assert up.process.wait(SECONDS) == 1


def test_the_last_words_of_a_service_are_its_warnings_and_errors() -> None:
    calls = [json.dumps({"level": "info", "event": "call", "method": f"/Get{number}"}) for number in range(9)]
    assert gravest_lines(calls) == ["info: call: /Get6", "info: call: /Get7", "info: call: /Get8"]
    failure = json.dumps({"level": "error", "event": "failed", "exception": "Traceback\n  here\nOSError: disk is gone"})
    assert gravest_lines([failure, *calls]) == ["error: failed: OSError: disk is gone"]
    (line,) = gravest_lines(["x" * 1000, ""])
    assert len(line) < 200


def test_it_can_run_in_the_background(tmp_path: Path) -> None:
    home = tmp_path / "home"
    kbmesh = [sys.executable, "-m", "kbmesh_cli", "--home", str(home)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}

    def call(*arguments: str) -> Any:
        done = subprocess.run(
            [*kbmesh, *arguments, "--json"],
            capture_output=True,
            text=True,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        return json.loads(done.stdout)

    ready = call("up", "--detach", "--service", "chunker", "--port-base", str(free_port_base(5)))
    try:
        assert ready["ready"] is True
        assert call("up", "--detach", "--service", "chunker")["error"]["reason"] == "MESH_ALREADY_RUNNING"
        finding = next(each for each in call("doctor")["findings"] if each["check"] == "chunker")
        assert finding["verdict"] == "ok"
    finally:
        stopped = call("down")
    assert stopped == {"stopped": True, "pid": ready["pid"]}
    assert call("down")["error"]["reason"] == "MESH_NOT_RUNNING"


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and nobody has asked for its exit code, as in a container without an init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
