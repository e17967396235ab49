"""A service of kbmesh in a process of its own, as an operator starts it."""

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import grpc
from grpc_health.v1 import health_pb2
from kbmesh_rpc.http2 import client_options
from prometheus_client.parser import text_string_to_metric_families

START_SECONDS = 120.0
MESSAGE_BYTES = 64 * 1024 * 1024
_POLL_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class ServiceFailed(Exception):
    """The process ended or did not come up; says what it wrote."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A running process."""

    target: str
    pid: int
    metrics_port: int
    start_seconds: float
    """From the start of the process until its health was SERVING."""
    start_cpu_seconds: float
    """What of it the processor worked for the process."""

    def cpu_seconds(self) -> float:
        """Time of the processor that it had so far, all threads together."""
        return _cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most memory that it has held."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def samples(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Its metrics: for each series' name the values by labels."""
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def channel(self) -> grpc.aio.Channel:
        """A channel without retries: what is refused is seen."""
        options = [*client_options(max_message_bytes=MESSAGE_BYTES), ("grpc.enable_retries", 0)]
        return grpc.aio.insecure_channel(self.target, options=options)


@contextmanager
def service(module: str, service_name: str, settings: Mapping[str, object]) -> Iterator[Service]:
    """Starts `python -m module` on loopback and ends it. Raises ServiceFailed."""
    port, metrics_port = _free_port(), _free_port()
    names = {"port": port, "metrics_port": metrics_port, "log_level": "warning", **settings}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}
    environment |= {f"KBMESH_{name.upper()}": str(value) for name, value in names.items()}
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=log, stderr=log)
        try:
            _wait(process, f"127.0.0.1:{port}", service_name, began, log)
            start_seconds = time.perf_counter() - began
            yield Service(
                target=f"127.0.0.1:{port}",
                pid=process.pid,
                metrics_port=metrics_port,
                start_seconds=start_seconds,
                start_cpu_seconds=_cpu_seconds(process.pid),
            )
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def quantile(
    before: Mapping[tuple[tuple[str, str], ...], float],
    after: Mapping[tuple[tuple[str, str], ...], float],
    share: float,
    **labels: str,
) -> float | None:
    """The upper bound of the bucket in which the quantile of what a histogram counted in between lies, in its unit.

    None where it counted nothing. `before` and `after` are the samples of `<name>_bucket`.
    """
    counts: dict[float, float] = {}
    for key, value in after.items():
        each = dict(key)
        if all(each.get(name) == wanted for name, wanted in labels.items()):
            bound = float(each["le"].replace("+Inf", "inf"))
            counts[bound] = counts.get(bound, 0.0) + value - before.get(key, 0.0)
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    return next(bound for bound, count in sorted(counts.items()) if count >= share * total)


def _wait(process: "subprocess.Popen[bytes]", target: str, service_name: str, began: float, log: IO[bytes]) -> None:
    with grpc.insecure_channel(target, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        request = health_pb2.HealthCheckRequest(service=service_name)
        while time.perf_counter() - began < START_SECONDS:
            if process.poll() is not None:
                break
            try:
                answer = check(request, timeout=5)
            except grpc.RpcError:
                answer = None
            if answer is not None and answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            time.sleep(_POLL_SECONDS)
    log.seek(0)
    raise ServiceFailed(log.read()[-2000:].decode(errors="replace"))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
