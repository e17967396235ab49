"""How soon each service serves after its process began, and what memory it holds then.

`python -m benchmarks.start --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from kbmesh_onnx.pull import pull_model

from benchmarks.corpus import REPOSITORY
from benchmarks.cross_encoder import make_cross_encoder
from benchmarks.embed import MODEL, machine, progress, stay_on
from benchmarks.served import service

SETTLE_SECONDS = 2.0
"""After which memory is read: what a start leaves behind is given back by then."""
NAMES = {
    "chunker": "kbmesh.chunker.v1.ChunkerService",
    "retriever": "kbmesh.retriever.v1.RetrieverService",
    "embedder": "kbmesh.embedder.v1.EmbedderService",
    "reranker": "kbmesh.reranker.v1.RerankerService",
    "edge": "",
}
LIMITS = {
    "chunker": (2.0, 150),
    "retriever": (2.0, 150),
    "embedder": (5.0, 400),
    "reranker": (5.0, 400),
}
"""Seconds to SERVING, and MB at rest, that an operator may count on."""


def main() -> None:
    """Measures and prints."""
    options = _options()
    cores = stay_on(2)
    load_before = os.getloadavg()
    pull_model(MODEL, options.models)
    cross_encoder = make_cross_encoder(MODEL, options.models)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kbmesh-start-") as folder:
        home = Path(folder)
        with service("kbmesh_edge", NAMES["edge"], {"data_folder": home / "edge"}) as edge:
            # The parts a retriever asks for when it starts are there; it does not wait for the others.
            settings: dict[str, dict[str, object]] = {
                "chunker": {},
                "retriever": {"home": home, "qdrant_url": f"http://{edge.target}"},
                "embedder": {"models": options.models, "model": MODEL.rpartition("/")[2]},
                "reranker": {"models": options.models, "model": cross_encoder.name},
                "edge": {"data_folder": home / "other-edge"},
            }
            for name in NAMES:
                report[name] = _measure(name, settings[name], options.starts)
    report["held"] = {
        name: report[name]["serving_seconds"] <= seconds and report[name]["resident_mb"] <= megabytes
        for name, (seconds, megabytes) in LIMITS.items()
    }
    report["machine"] = machine(cores, load_before)
    print(json.dumps(report, indent=2) if options.json else _table(report))


def _measure(name: str, settings: dict[str, object], starts: int) -> dict[str, Any]:
    seconds, cpu, resident, peak = [], [], [], []
    for turn in range(starts):
        with service(f"kbmesh_{name}", NAMES[name], settings) as running:
            time.sleep(SETTLE_SECONDS)
            seconds.append(running.start_seconds)
            cpu.append(running.start_cpu_seconds)
            resident.append(running.resident_bytes() / 1e6)
            peak.append(running.peak_bytes() / 1e6)
        progress(f"{name}, start {turn + 1} of {starts}: {seconds[-1]:.2f} s, {resident[-1]:.0f} MB")
    return {
        "serving_seconds": round(median(seconds), 3),
        "serving_cpu_seconds": round(median(cpu), 3),
        "resident_mb": round(median(resident), 1),
        "peak_mb": round(median(peak), 1),
    }


def _table(report: dict[str, Any]) -> str:
    lines = [f"{'service':12}{'serving, s':>12}{'of them cpu':>13}{'resident, MB':>14}{'peak, MB':>10}  held"]
    for name in NAMES:
        found = report[name]
        held = {True: "yes", False: "no", None: ""}[report["held"].get(name)]
        lines.append(
            f"{name:12}{found['serving_seconds']:12.2f}{found['serving_cpu_seconds']:13.2f}"
            f"{found['resident_mb']:14.0f}{found['peak_mb']:10.0f}  {held}"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--starts", type=int, default=5, help="of each service; the median counts")
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="exported models")
    return parser.parse_args()


if __name__ == "__main__":
    main()
