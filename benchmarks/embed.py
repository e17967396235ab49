"""How fast texts become vectors: through a real embedder process, in process, and by other libraries.

`python -m benchmarks.embed --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.pull import pull_model
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer

from benchmarks.corpus import REPOSITORY
from benchmarks.embed_load import measure_load
from benchmarks.encoder_peers import PYTHON, Peers, Taken
from benchmarks.encoders import InProcess, Served, Work, int8_session
from benchmarks.matmul import MatrixProducts
from benchmarks.passages import read_passages
from benchmarks.questions import read_questions
from benchmarks.served import Service, service

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
EMBEDDER = "kbmesh.embedder.v1.EmbedderService"
BATCH_TOKENS: int = EmbedderSettings.model_fields["batch_tokens"].default
SERVED, IN_PROCESS, MATMUL, INT8 = "kbmesh, gRPC", "kbmesh, in process", "matrix products", "kbmesh, in process, int8"
_RATIOS = {
    "ratio_to_sentence_transformers": "sentence-transformers",
    "ratio_to_infinity": "infinity-emb",
    "ratio_to_fastembed": "fastembed",
    "service_to_in_process": IN_PROCESS,
    "fraction_of_matmul": MATMUL,
}


def main() -> None:
    """Measures and prints."""
    options = _options()
    cores = stay_on(options.threads)
    card = pull_model(MODEL, options.models)
    folder = options.models / card.name
    tokenizer = ModelTokenizer.load(folder, card)
    texts = read_passages(tokenizer, count=options.texts, max_tokens=card.max_tokens)
    work = Work.of(tokenizer, texts, max_tokens=card.max_tokens, batch_tokens=options.batch_tokens)
    settings = {"models": options.models, "model": card.name, "device": "cpu", "threads": options.threads}
    settings |= {"batch_tokens": options.batch_tokens}
    load_before = os.getloadavg()
    progress(f"{len(texts)} texts, {work.mean_tokens:.1f} tokens on average; starting the embedder")
    with service("kbmesh_embedder", EMBEDDER, settings) as running:
        report = _measure_speed(options, work, folder, running)
        if options.load:
            report |= asyncio.run(
                measure_load(
                    running,
                    tokenizer,
                    texts,
                    seconds=options.load_seconds,
                    count_queries=options.queries,
                    progress=progress,
                )
            )
        report["memory"] = {"resident_bytes": running.resident_bytes(), "peak_bytes": running.peak_bytes()}
    report["texts"] = work.describe()
    report["machine"] = machine(cores, load_before)
    report["settings"] = {
        "model": card.name,
        "fingerprint": card.fingerprint,
        "threads": options.threads,
        "rounds": options.rounds,
        "clock": options.clock,
        "batch_tokens": options.batch_tokens,
        "request_texts": Served.REQUEST_TEXTS,
        "load_seconds": options.load_seconds if options.load else None,
    }
    print(json.dumps(report, indent=2) if options.json else _table(report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--quick", action="store_true", help="96 texts, 2 rounds, 20 queries and 10 s of load")
    parser.add_argument("--load", action="store_true", help="also measure queries beside bulk work, and overload")
    parser.add_argument("--load-seconds", type=float, default=60.0, help="of four times what the embedder can take")
    parser.add_argument("--queries", type=int, default=100, help="alone, and as many beside bulk work, for --load")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed; the median counts")
    parser.add_argument("--texts", type=int, default=512, help="passages at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="and cores, for each alike")
    parser.add_argument(
        "--batch-tokens", type=int, default=BATCH_TOKENS, help="of one run of the model, served and in process"
    )
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: time that the processes had, for a busy machine"
    )
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="exported models")
    parser.add_argument("--peers-python", type=Path, default=PYTHON, help="the Python that has the other libraries")
    parser.add_argument("--without-peers", action="store_true", help="measure kbmesh alone")
    options = parser.parse_args()
    if options.quick:
        options.texts, options.rounds = min(options.texts, 96), min(options.rounds, 2)
        options.load_seconds, options.queries = min(options.load_seconds, 10.0), min(options.queries, 20)
    if options.rounds < 1 or options.texts < 1 or options.threads < 1:
        parser.error("--rounds, --texts and --threads must be at least 1")
    return options


def stay_on(threads: int) -> list[int]:
    """Keeps this process, and those it starts, to so many cores. Gives them; none where the system cannot do it."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    return cores


def machine(cores: Sequence[int], load_before: tuple[float, float, float]) -> dict[str, Any]:
    """Where it was measured, and what else the machine did."""
    return {
        "cores": os.cpu_count(),
        "cores_used": list(cores),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def progress(message: str) -> None:
    """Says on stderr how far it is."""
    print(message, file=sys.stderr, flush=True)


def _measure_speed(options: argparse.Namespace, work: Work, folder: Path, running: Service) -> dict[str, Any]:
    python = Path(os.devnull) if options.without_peers else options.peers_python
    served, ours = Served(running, work), InProcess.open(folder, work, threads=options.threads)
    progress("starting the other libraries")
    with Peers(work.texts, model_folder=folder, threads=options.threads, python=python) as peers:
        missing = {} if options.without_peers else dict(peers.missing)
        if options.without_peers:
            missing = dict.fromkeys(peers.missing, "was not asked for")
        measures = {SERVED: served.measure, IN_PROCESS: ours.measure}
        products = MatrixProducts(threads=options.threads)
        measures[MATMUL] = ours.measuring(products)
        try:
            eighth = int8_session(folder, copies=options.models.parent / "int8", threads=options.threads)
            measures[INT8] = InProcess(eighth, work).measure
        except ValueError as error:
            eighth, missing["int8"] = None, str(error)
        measures |= {name: peer.measure for name, peer in peers.running.items()}
        taken: dict[str, list[Taken]] = {name: [] for name in measures}
        names = list(measures)
        for turn in range(options.rounds):
            start = turn % len(names)
            for name in (*names[start:], *names[:start]):
                taken[name].append(measures[name]())
                progress(f"round {turn + 1} of {options.rounds}: {name}: {_seconds(taken[name][-1])}")
        agreement = {
            name: float((peer.vectors * ours.vectors()[: len(peer.vectors)]).sum(axis=1).min())
            for name, peer in peers.running.items()
        }
        libraries = {
            name: {"version": peer.version, "settings": peer.settings, "min_cosine": agreement[name]}
            for name, peer in peers.running.items()
        }
    speeds = {name: _texts_per_second(work, rounds, options) for name, rounds in taken.items()}
    report: dict[str, Any] = {
        key: speeds[SERVED] / speeds[name] if name in speeds else None for key, name in _RATIOS.items()
    }
    report["int8_speedup"] = speeds[INT8] / speeds[IN_PROCESS] if INT8 in speeds else None
    report["int8_min_cosine"] = (
        float((InProcess(eighth, work).vectors() * ours.vectors()).sum(axis=1).min()) if eighth is not None else None
    )
    report["int8_top10_overlap"] = _overlap(options, work, folder, eighth) if eighth is not None else None
    report["missing"] = missing
    report["texts_per_s"] = {name: round(speed, 2) for name, speed in speeds.items()}
    report["wall_seconds"] = {name: [round(each.wall_seconds, 3) for each in rounds] for name, rounds in taken.items()}
    report["cpu_seconds"] = {name: [round(each.cpu_seconds, 3) for each in rounds] for name, rounds in taken.items()}
    report["min_cosine_to_in_process"] = float((served.vectors * ours.vectors()).sum(axis=1).min())
    report["gigaflops"] = {
        name: round(work.flops() / len(work.texts) * speeds[name] / 1e9, 2) for name in (IN_PROCESS, MATMUL)
    }
    report["peers"] = libraries
    return report


def _overlap(options: argparse.Namespace, work: Work, folder: Path, eighth: ModelSession) -> float:
    """Of the ten passages nearest to a question by fp32, the share that int8 finds too; the mean over questions."""
    card = load_card(folder)
    questions = [question.question for question in read_questions()]
    asked = Work.of(
        ModelTokenizer.load(folder, card), questions, max_tokens=card.max_tokens, batch_tokens=options.batch_tokens
    )
    nearest = []
    for session in (ModelSession.open(folder, card, device="cpu", intra_op_threads=options.threads), eighth):
        likeness = InProcess(session, asked).vectors() @ InProcess(session, work).vectors().T
        nearest.append(np.argsort(-likeness, axis=1)[:, :10])
    return float(np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(*nearest, strict=True)]))


def _seconds(taken: Taken) -> str:
    return f"{taken.wall_seconds:.1f} s, of the processor {taken.cpu_seconds:.1f} s"


def _texts_per_second(work: Work, rounds: Sequence[Taken], options: argparse.Namespace) -> float:
    """By the clock that was asked for; a second of the processor's is one of each thread."""
    if options.clock == "wall":
        return len(work.texts) / median(each.wall_seconds for each in rounds)
    return float(len(work.texts) * options.threads / np.median([each.cpu_seconds for each in rounds]))


def _table(report: dict[str, Any]) -> str:
    lines = [f"{name:32}{speed:10.1f} texts/s" for name, speed in report["texts_per_s"].items()]
    lines += [f"{key:32}{report[key]:10.2f}" for key in (*_RATIOS, "int8_speedup") if report[key] is not None]
    lines += [
        f"{key}: {json.dumps(report[key])}" for key in ("interactive", "overload", "long_document") if key in report
    ]
    return "\n".join([*lines, f"Missing: {json.dumps(report['missing'])}"])


if __name__ == "__main__":
    main()
