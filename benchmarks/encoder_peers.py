"""The libraries that kbmesh's embedder is compared with, each in a process of its own that waits for its turn."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import REPOSITORY

LIBRARIES = ("sentence-transformers", "infinity-emb", "fastembed")
PYTHON = REPOSITORY / ".venv-bench-embed" / "bin" / "python"
WORKER = REPOSITORY / "benchmarks" / "encoder_worker.py"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What one round took."""

    wall_seconds: float
    cpu_seconds: float
    """Of all threads together."""


class Peer:
    """A library that has the model loaded."""

    def __init__(self, process: "subprocess.Popen[str]", answer: dict[str, Any]) -> None:
        self._process = process
        self.version: str = answer["version"]
        self.settings: str = answer["settings"]
        self.vectors: NDArray[np.float64] = np.array(answer["vectors"])
        """Of the first few texts, unit length."""

    def measure(self) -> Taken:
        """Embeds all texts once."""
        answer = _ask(self._process, "again")
        return Taken(wall_seconds=answer["wall"], cpu_seconds=answer["cpu"])


class Peers:
    """The libraries that are there. Ends their processes when it is closed."""

    def __init__(self, texts: Sequence[str], *, model_folder: Path, threads: int, python: Path = PYTHON) -> None:
        self.running: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}
        self._stack = ExitStack()
        for library in LIBRARIES:
            if not python.is_file():
                self.missing[library] = f"{python} is not there; make bench-peers-embed makes it"
                continue
            try:
                self.running[library] = self._start(library, texts, model_folder, threads, python)
            except (OSError, ValueError) as error:
                self.missing[library] = str(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, library: str, texts: Sequence[str], model_folder: Path, threads: int, python: Path) -> Peer:
        workspace = self._stack.enter_context(tempfile.TemporaryDirectory())
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        environment |= {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "TOKENIZERS_PARALLELISM": "true"}
        log = self._stack.enter_context((Path(workspace) / "log").open("w"))
        process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        self._stack.callback(_end, process)
        job = {"library": library, "texts": texts, "threads": threads}
        answer = _ask(process, json.dumps({**job, "model_folder": str(model_folder), "workspace": workspace}))
        if "error" in answer:
            raise ValueError(answer["error"])
        return Peer(process, answer)


def _ask(process: "subprocess.Popen[str]", line: str) -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise ValueError("the process ended without an answer")
    found: dict[str, Any] = json.loads(answer)
    return found


def _end(process: "subprocess.Popen[str]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
