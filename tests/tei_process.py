"""Running text-embeddings-inference's client against a service, each a process of its own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parents[1]
PROTOS = ROOT / "third_party/protos"

Call = dict[str, Any]


def call(method: str, *requests: dict[str, Any], timeout: float | None = 30) -> Call:
    """A call, such as `call("Embed/Embed", {"inputs": "text"})`."""
    return {"method": method, "requests": list(requests), "timeout": timeout}


@dataclass(frozen=True)
class TeiClient:
    """Makes calls of `tei.v1` to one target."""

    stubs: Path
    target: str

    def ask(self, *calls: Call) -> list[Call]:
        """What became of each call, made one after another."""
        return [result for (result,) in self._run([[each] for each in calls])]

    def ask_at_once(self, calls: Sequence[Call]) -> list[Call]:
        """What became of each call, all made at once."""
        return self._run([list(calls)])[0]

    def _run(self, groups: list[list[Call]]) -> list[list[Call]]:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/tei_client.py"), str(self.stubs), self.target],
            input=json.dumps(groups),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert Path(answer["stubs"]).is_relative_to(self.stubs), "the client has stubs of its own"
        results: list[list[Call]] = answer["results"]
        return results


def generate_stubs(folder: Path) -> Path:
    """Writes Python stubs of the public proto into `folder`."""
    options = ["-I", PROTOS, "--python_out", folder, "--grpc_python_out", folder]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, PROTOS / "tei/v1/tei.proto"], check=True)
    return folder


@contextmanager
def service_process(module: str, *, log: Path, **settings: object) -> Iterator[str]:
    """A service as a process with these settings, once it serves, at the address that is yielded."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}
    chosen = {"port": target.rpartition(":")[2], "metrics_port": 0, "device": "cpu", **settings}
    environment = kept | {f"KBMESH_{name.upper()}": str(value) for name, value in chosen.items()}
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", module], env=environment, stderr=stderr)
    try:
        with grpc.insecure_channel(target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60
            )
            next(answer for answer in watch if answer.status == health_pb2.HealthCheckResponse.SERVING)
            watch.cancel()
        yield target
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
