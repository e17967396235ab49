"""An operator starts the reranker as a process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reranker.calls import Reranker, order

SERVICE = "kbmesh.reranker.v1.RerankerService"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def environment(**settings: object) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KBMESH_")}
    return {**kept, **{f"KBMESH_{name.upper()}": str(value) for name, value in settings.items()}}


def start(**settings: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "kbmesh_reranker"], env=environment(**settings), stderr=subprocess.PIPE
    )


async def test_it_serves_once_warm_and_ends_on_sigterm(models_folder: Path) -> None:
    port = free_port()
    process = start(port=port, metrics_port=0, models=models_folder, device="cpu")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            async for answer in health.Watch(
                health_pb2.HealthCheckRequest(service=SERVICE), wait_for_ready=True, timeout=60
            ):
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    break
            assert order(await Reranker(channel).rerank("port", ["cake", "port"])) == [1, 0]
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=30)
        assert process.returncode == 0, errors.decode()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("settings", [{"model": "absent"}, {"require_device": "cuda", "device": "cpu"}])
async def test_a_model_that_cannot_be_loaded_ends_the_process_and_is_never_serving(
    models_folder: Path, settings: dict[str, str]
) -> None:
    """GRP-08: no rollout is promoted whose model could not be loaded."""
    process = start(port=0, metrics_port=0, models=models_folder, load_retry_seconds=0, **settings)
    _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode != 0
    assert b'"serving"' not in errors
    assert b"absent" in errors or b"cuda" in errors


def test_help_names_every_setting() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "kbmesh_reranker", "--help"], env=environment(), capture_output=True, check=True
    ).stdout.decode()
    for name in ("KBMESH_MODEL", "KBMESH_MODELS", "KBMESH_REQUIRE_DEVICE", "KBMESH_MAX_WINDOWS", "KBMESH_PORT"):
        assert name in shown


def test_settings_can_be_printed_and_checked() -> None:
    command = [sys.executable, "-m", "kbmesh_reranker", "--print-settings"]
    shown = subprocess.run(command, env=environment(model=" a , b"), capture_output=True, check=True).stdout.decode()
    assert "model: a,b\n" in shown
    refused = subprocess.run(command, env=environment(model="a,a"), capture_output=True, check=False)
    assert refused.returncode == 2
    assert b"KBMESH_MODEL" in refused.stderr


def test_the_process_loads_neither_torch_nor_transformers() -> None:
    script = (
        "import sys, kbmesh_reranker.__main__, kbmesh_reranker.backends.onnx;"
        "print([name for name in ('torch', 'transformers', 'huggingface_hub', 'onnx') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert shown.strip() == b"[]"
