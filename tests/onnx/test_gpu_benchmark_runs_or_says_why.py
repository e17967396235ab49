"""`python -m benchmarks.gpu` measures, or says why it cannot."""

import json
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
from opened_model import OpenedModel

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "benchmarks.gpu", "--json", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="ONNX Runtime here is built with CUDA"
)
def test_without_a_gpu_it_gives_the_reason_and_its_own_exit_status(tiny: OpenedModel) -> None:
    done = run("--model", tiny.folder)
    assert done.returncode == 3, done.stderr.decode()
    assert "CUDA" in json.loads(done.stdout)["reason"]


def test_the_same_code_runs_on_the_cpu_and_says_that_it_did(tiny: OpenedModel) -> None:
    done = run("--cpu", "--model", tiny.folder, "--passages", 6)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["device"] == "cpu"
    assert not report["figures_count"]
    assert set(report["rows"]) == {
        f"{form} {precision}{way}"
        for form in ("plain", "fused")
        for precision in ("fp32", "fp16")
        for way in ("", " bound", " graphs")
    }
    assert all(row["near"] for row in report["rows"].values())
    assert report["rows"]["plain fp32 graphs"]["graphs"] == 2
    assert all(value > 0 for value in report["ceilings"].values())
