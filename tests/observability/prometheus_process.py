"""A real Prometheus that reads a mesh."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from observability.watched_mesh import LOOPBACK, WatchedMesh, free_ports

INTERVAL_SECONDS = 3


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """A running one."""

    port: int

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """What its HTTP API answers. Raises AssertionError with what it has to say of a wrong query."""
        url = f"http://{LOOPBACK}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of a query, now."""
        found: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return found

    def query_range(self, expr: str, *, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of a query over a time."""
        found: list[dict[str, Any]] = self.ask(
            "query_range", query=expr, start=str(start), end=str(end), step=str(step)
        )["result"]
        return found


@contextmanager
def watching(mesh: WatchedMesh, folder: Path) -> Iterator[Prometheus]:
    """Reads the mesh every few seconds, as jobs that are called like the services."""
    [port] = free_ports(1)
    config = {
        "global": {"scrape_interval": f"{INTERVAL_SECONDS}s", "scrape_timeout": f"{INTERVAL_SECONDS}s"},
        "scrape_configs": [
            {
                "job_name": service,
                "static_configs": [
                    {
                        "targets": [f"{LOOPBACK}:{mesh.metrics_ports[service]}"],
                        "labels": {"namespace": "search", "service": f"kb-{service}", "pod": f"{service}-0"},
                    }
                ],
            }
            for service in mesh.processes
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={LOOPBACK}:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
    found = Prometheus(port=port)
    try:
        end = time.monotonic() + 90
        while True:
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            if found.ready() and len(found.query("up == 1")) == len(mesh.processes):
                break
            assert time.monotonic() < end, "Prometheus does not read the mesh"
            time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        process.wait()
