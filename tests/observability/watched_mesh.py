"""A mesh of five processes that is watched: its logs are read, its metrics scraped, its parts killed and started again.

Models are the fake ones, which need no weights; everything else is as it is served.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh_client import KbmeshClient
from prometheus_client.parser import text_string_to_metric_families

SERVICES = ("edge", "embedder", "reranker", "chunker", "retriever")
START_SECONDS = 180.0
LOOPBACK = "127.0.0.1"

Sample = tuple[str, tuple[tuple[str, str], ...]]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass(kw_only=True)
class WatchedMesh:
    """Five services, each a process of its own. `environment` is what each gets beside the usual."""

    folder: Path
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    model_environment: Mapping[str, str] = field(default_factory=lambda: {"KBMESH_BACKEND": "fake"})
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(init=False)
    metrics_ports: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        ports = free_ports(2 * len(SERVICES))
        self.ports = dict(zip(SERVICES, ports[: len(SERVICES)], strict=True))
        self.metrics_ports = dict(zip(SERVICES, ports[len(SERVICES) :], strict=True))

    def address(self, service: str) -> str:
        return f"{LOOPBACK}:{self.ports[service]}"

    def start(self, *services: str) -> None:
        """Starts these, or all, and waits until they serve."""
        named = services or SERVICES
        for service in named:
            self._start(service)
        for service in named:
            self._wait(service)

    def _start(self, service: str) -> None:
        own = {
            "edge": {"KBMESH_DATA_FOLDER": str(self.folder / "edge")},
            "embedder": self.model_environment,
            "reranker": self.model_environment,
            "chunker": {"KBMESH_EMBEDDER_ADDRESS": self.address("embedder"), "KBMESH_READING_PROCESSES": "1"},
            "retriever": {
                "KBMESH_CATALOG_URL": f"sqlite:///{self.folder / 'catalog.db'}",
                "KBMESH_CHUNKER_ADDRESS": self.address("chunker"),
                "KBMESH_EMBEDDER_ADDRESS": self.address("embedder"),
                "KBMESH_RERANKER_ADDRESS": self.address("reranker"),
                "KBMESH_QDRANT_URL": f"http://{self.address('edge')}",
                "KBMESH_SWEEP_INTERVAL_SECONDS": "0.5",
                "KBMESH_SUPERSEDED_GRACE_SECONDS": "0",
            },
        }[service]
        common = {
            "PATH": os.environ["PATH"],
            "KBMESH_HOME": str(self.folder),
            "KBMESH_HOST": LOOPBACK,
            "KBMESH_PORT": str(self.ports[service]),
            "KBMESH_METRICS_PORT": str(self.metrics_ports[service]),
            "KBMESH_GRACE_SECONDS": "2",
        }
        with (self.folder / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-m", f"kbmesh_{service}"],
                env={**common, **own, **self.environment.get("", {}), **self.environment.get(service, {})},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _wait(self, service: str) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.serving(service):
            assert self.processes[service].poll() is None, self.log(service)[-3000:]
            assert time.monotonic() < end, self.log(service)[-3000:]
            time.sleep(0.1)

    def serving(self, service: str) -> bool:
        with grpc.insecure_channel(self.address(service)) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def kill(self, service: str) -> None:
        self.processes[service].kill()
        self.processes[service].wait()

    @contextmanager
    def frozen(self, service: str) -> Iterator[None]:
        """The process hangs for as long: it is there and does not answer."""
        self.processes[service].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes[service].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends all as Kubernetes does."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
            time.sleep(0.1)

    def client(self, *, tenant: str = "default", timeout_seconds: float = 10.0) -> KbmeshClient:
        return KbmeshClient(self.address("retriever"), tenant=tenant, timeout_seconds=timeout_seconds)

    def exposition(self, service: str) -> str:
        """The page that Prometheus reads."""
        url = f"http://{LOOPBACK}:{self.metrics_ports[service]}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            page: bytes = response.read()
        return page.decode()

    def scrape(self, service: str) -> "Scrape":
        return Scrape.of(self.exposition(service))

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def log_lines(self, service: str) -> list[dict[str, object]]:
        """Each line of the log; one that is no JSON fails."""
        return [json.loads(line) for line in self.log(service).splitlines()]

    def log_bytes(self) -> bytes:
        """All logs, as they are on disk."""
        return b"".join((self.folder / f"{service}.log").read_bytes() for service in SERVICES)


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """What one service told Prometheus at a moment."""

    samples: Mapping[Sample, float]

    @classmethod
    def of(cls, page: str) -> "Scrape":
        """Raises ValueError where it is no valid exposition."""
        return cls(
            samples={
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in text_string_to_metric_families(page)
                for sample in family.samples
                if not sample.name.endswith("_created")
            }
        )

    @property
    def series(self) -> set[Sample]:
        return set(self.samples)

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name with these labels."""
        wanted = labels.items()
        return sum(value for (each, own), value in self.samples.items() if each == name and wanted <= set(own))
