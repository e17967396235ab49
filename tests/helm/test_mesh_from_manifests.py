"""The mesh as the chart describes it, without a cluster: each server is started with the environment of its pod and
nothing else, probed as the kubelet would, and called as NOTES.txt and the worker's Job do.

What stands in for Kubernetes: a free port on the loopback for each Service, and a folder for each volume.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from authority import Authority
from grpc_health.v1 import health_pb2, health_pb2_grpc
from helm.rendered import Helm, Manifest, Pod, Rendered, environment

BIN = Path(sys.executable).parent
START_SECONDS = 60

MUTUAL_TLS: dict[str, Any] = {
    "tls": {
        "enabled": True,
        "certManager": {"enabled": True, "issuer": {"name": "authority"}},
        "callers": ["agent"],
        "trustedCallers": ["agent"],
    }
}
VALUES: dict[str, Any] = {
    "models": {"source": "none"},
    "embedder": {"settings": {"backend": "fake"}, "autoscaling": {"by": "keda"}},
    "reranker": {"settings": {"backend": "fake"}},
    "ingest": {"enabled": True, "knowledgeBase": "handbook", "manifest": "/documents/manifest.jsonl", "shards": 2},
}


@dataclass(kw_only=True)
class Loopback:
    """A cluster of one machine."""

    rendered: Rendered
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    """The port that stands for a component's Services."""
    health_ports: dict[str, int] = field(default_factory=dict)
    """And the one for its probes, where the first speaks TLS."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment_of(self, container: Manifest, component: str) -> dict[str, str]:
        """The container's environment, Services and volumes replaced."""
        found = {"PATH": os.environ["PATH"]}
        for name, value in environment(container).items():
            value = re.sub(
                r"demo-kbmesh-([a-z]+?)(?:-headless)?:\d+", lambda match: f"127.0.0.1:{self.ports[match[1]]}", value
            ).replace("dns:///127.0.0.1", "127.0.0.1")
            for mount in container["volumeMounts"]:
                if re.fullmatch(rf"(sqlite:///)?{mount['mountPath']}(/.*)?", value):
                    value = value.replace(mount["mountPath"], str(self.folder / component / mount["name"]), 1)
            found[name] = value
        for mount in container["volumeMounts"]:
            (self.folder / component / mount["name"]).mkdir(parents=True, exist_ok=True)
        return found

    def mount_certificates(self, authority: Authority) -> None:
        """What cert-manager and the kubelet do: each pod gets the certificate that the chart asks for."""
        certificates = {each["spec"]["secretName"]: each["spec"] for each in self.rendered.of_kind("Certificate")}
        for pod in self.rendered.pods():
            for volume in pod.spec["volumes"]:
                if spec := certificates.get(volume.get("secret", {}).get("secretName")):
                    authority.issue(self.folder / pod.component / volume["name"], *spec["dnsNames"])

    def start(self, pod: Pod) -> None:
        loopback = {
            "KBMESH_HOST": "127.0.0.1",
            "KBMESH_PORT": str(self.ports[pod.component]),
            "KBMESH_METRICS_PORT": "0",
        }
        if pod.component in self.health_ports:
            loopback["KBMESH_HEALTH_PORT"] = str(self.health_ports[pod.component])
        with (self.folder / f"{pod.component}.log").open("wb") as log:
            self.processes[pod.component] = subprocess.Popen(
                [sys.executable, "-m", f"kbmesh_{pod.component}"],
                env=self.environment_of(pod.main, pod.component) | loopback,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def probe(self, pod: Pod, kind: str) -> bool:
        """What the kubelet does with a gRPC probe."""
        port = self.health_ports.get(pod.component, self.ports[pod.component])
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = health_pb2.HealthCheckRequest(service=pod.main[kind]["grpc"]["service"])
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=2)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    pytest.fail(f"{pod} does not know {request.service}")
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def wait(self, pod: Pod) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.probe(pod, "readinessProbe"):
            log = (self.folder / f"{pod.component}.log").read_text()
            assert self.processes[pod.component].poll() is None, log
            assert time.monotonic() < end, log
            time.sleep(0.1)

    def command(self, pod: Pod, arguments: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a container of the kbmesh command."""
        return subprocess.run(
            [BIN / "kbmesh", *arguments],
            env=self.environment_of(pod.main, pod.component) | more,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(params=["plain text", "mutual TLS"])
def cluster(request: pytest.FixtureRequest, helm: Helm, tmp_path: Path) -> Iterator[Loopback]:
    tls = request.param == "mutual TLS"
    rendered = helm.render({**VALUES, **MUTUAL_TLS} if tls else VALUES)
    found = Loopback(rendered=rendered, folder=tmp_path)
    for pod in rendered.servers():
        found.ports[pod.component] = _free_port()
        if tls:
            found.health_ports[pod.component] = _free_port()
    if tls:
        found.mount_certificates(Authority())
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()


@pytest.mark.timeout(300)
def test_from_manifests_to_the_first_answer(cluster: Loopback, tmp_path: Path) -> None:
    servers = cluster.rendered.servers()
    for pod in servers:
        cluster.start(pod)
    for pod in servers:
        cluster.wait(pod)
        assert cluster.probe(pod, "startupProbe"), pod
        assert cluster.probe(pod, "livenessProbe"), pod

    test = cluster.rendered.pod("test")
    doctor = cluster.command(test, test.main["args"])
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    # The steps of NOTES.txt, by the endpoint that port-forward would give.
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "backup.md").write_text("# Backups\n\nOnly the on-call engineer may restore a customer backup.\n" * 3)
    (documents / "travel.md").write_text("# Travel\n\nTrains are booked by the office, flights by yourself.\n" * 3)
    created = cluster.command(test, ["kb", "create", "handbook"])
    assert created.returncode == 0, created.stdout + created.stderr

    # Each pod of the worker's Job takes its part of the manifest.
    manifest = documents / "manifest.jsonl"
    names = ("backup.md", "travel.md")
    manifest.write_text("".join(json.dumps({"external_id": n, "path": str(documents / n)}) + "\n" for n in names))
    worker = cluster.rendered.pod("ingest")
    arguments = [argument.replace("/documents/", f"{documents}/") for argument in worker.main["args"]]
    taken = 0
    for index in range(2):
        done = cluster.command(worker, [*arguments, "--json"], JOB_COMPLETION_INDEX=str(index))
        assert done.returncode == 0, done.stdout + done.stderr
        taken += json.loads(done.stdout.splitlines()[-1])["new"]
    assert taken == len(names)

    found = cluster.command(test, ["search", "Who may restore a customer backup?", "--kb", "handbook", "--json"])
    answer = json.loads(found.stdout)
    assert answer["results"][0]["document"]["title"].lower().startswith("backup")
    assert answer["degraded"] == []

    # SIGTERM, as at the end of preStop.
    for component, process in cluster.processes.items():
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0, (tmp_path / f"{component}.log").read_text()
