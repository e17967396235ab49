"""A mesh with two of each service, as separate processes on the loopback interface, that are ended and started anew."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING_SECONDS = 120
END_SECONDS = 60
REPLICAS = {"edge": 1, "chunker": 2, "embedder": 2, "reranker": 2, "retriever": 2}
"""In the order in which they start."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@dataclass(kw_only=True)
class Replicas:
    """All processes of the mesh."""

    home: Path
    catalog_url: str
    ports: dict[str, list[int]] = field(default_factory=dict)
    processes: dict[tuple[str, int], "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        free = iter(free_ports(sum(REPLICAS.values())))
        self.ports = {service: [next(free) for _ in range(count)] for service, count in REPLICAS.items()}

    def target(self, service: str) -> str:
        """All addresses of a service in gRPC's name syntax: what a headless Service resolves to."""
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self.ports[service])

    def start(self, service: str, replica: int) -> None:
        """Starts a process and does not wait for it."""
        addresses = {
            "chunker": {"EMBEDDER_ADDRESS": self.target("embedder")},
            "retriever": {
                "CHUNKER_ADDRESS": self.target("chunker"),
                "EMBEDDER_ADDRESS": self.target("embedder"),
                "RERANKER_ADDRESS": self.target("reranker"),
                "QDRANT_URL": f"http://127.0.0.1:{self.ports['edge'][0]}",
                "CATALOG_URL": self.catalog_url,
                "CACHE": "off",
            },
            "edge": {"DATA_FOLDER": str(self.home / "edge")},
        }
        settings = {
            "HOST": "127.0.0.1",
            "PORT": str(self.ports[service][replica]),
            "METRICS_PORT": "0",
            "HOME": str(self.home),
            **({"BACKEND": "fake"} if service in ("embedder", "reranker") else {}),
            **addresses.get(service, {}),
        }
        outside = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}
        with (self.home / f"{service}-{replica}.log").open("ab") as log:
            self.processes[service, replica] = subprocess.Popen(
                [sys.executable, "-m", f"kbmesh_{service}"],
                env=outside | {f"KBMESH_{name}": value for name, value in settings.items()},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
            )

    def wait_until_serving(self, service: str, replica: int) -> None:
        """Until health says SERVING."""
        end = time.monotonic() + SERVING_SECONDS
        with grpc.insecure_channel(f"127.0.0.1:{self.ports[service][replica]}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            while True:
                assert self.processes[service, replica].poll() is None, self.log(service, replica)
                try:
                    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
                except grpc.RpcError:
                    answer = health_pb2.HealthCheckResponse()
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                assert time.monotonic() < end, self.log(service, replica)
                time.sleep(0.05)

    def end(self, service: str, replica: int, number: signal.Signals) -> int:
        """Ends a process and gives its exit code."""
        process = self.processes[service, replica]
        process.send_signal(number)
        return process.wait(timeout=END_SECONDS)

    def log(self, service: str, replica: int) -> str:
        """The last of what it wrote."""
        return (self.home / f"{service}-{replica}.log").read_text()[-5000:]


@contextmanager
def running_replicas(home: Path, catalog_url: str) -> Iterator[Replicas]:
    """A mesh that serves. Its processes are killed at the end."""
    mesh = Replicas(home=home, catalog_url=catalog_url)
    try:
        for service, count in REPLICAS.items():
            # The first retriever makes the catalog's tables.
            for replica in range(count):
                mesh.start(service, replica)
                if service == "retriever" and replica == 0:
                    mesh.wait_until_serving(service, replica)
        for service, count in REPLICAS.items():
            for replica in range(count):
                mesh.wait_until_serving(service, replica)
        yield mesh
    finally:
        for process in mesh.processes.values():
            process.kill()
            process.wait()
