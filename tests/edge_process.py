"""A running kbmesh-edge for tests: `with edge_process(tmp_path / "edge") as url: ...`."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from qdrant_client import AsyncQdrantClient

START_SECONDS = 60


@contextmanager
def edge_process(data_folder: Path) -> Iterator[str]:
    """Starts `python -m kbmesh_edge` on a free port, waits until it serves, yields its URL and stops it."""
    port = free_port()
    process = start_edge(data_folder, port)
    try:
        wait_until_serving(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_edge(data_folder: Path, port: int) -> "subprocess.Popen[bytes]":
    """Starts the process and returns at once. Its log goes to a file beside the data folder."""
    settings = {"KBMESH_DATA_FOLDER": str(data_folder), "KBMESH_PORT": str(port), "KBMESH_METRICS_PORT": "0"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")} | settings
    with data_folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "kbmesh_edge"], env=environment, stdout=log, stderr=log)


def wait_until_serving(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Raises RuntimeError when the process ends, TimeoutError when it does not serve in time."""
    deadline = time.monotonic() + START_SECONDS
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"kbmesh-edge ended with code {process.returncode}; see the log beside its data")
            try:
                answer = health.Check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            time.sleep(0.05)
    raise TimeoutError(f"kbmesh-edge did not serve within {START_SECONDS} s")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Asks the process to drain, and kills it where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def client(url: str) -> AsyncQdrantClient:
    """qdrant-client as kbmesh uses it: by gRPC alone."""
    port = urlsplit(url).port
    assert port is not None
    return AsyncQdrantClient(
        host="127.0.0.1", grpc_port=port, prefer_grpc=True, check_compatibility=False, timeout=START_SECONDS
    )
