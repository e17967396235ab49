"""How fast passages are scored: through a real reranker process and by the bare session, and how soon it serves.

`python -m benchmarks.rerank --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh.reranker.v1 import reranker_pb2_grpc
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.padding import pad
from kbmesh_onnx.pull import pull_model
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer

from benchmarks.corpus import REPOSITORY
from benchmarks.cross_encoder import NAME, make_cross_encoder
from benchmarks.embed import MODEL, machine, progress, stay_on
from benchmarks.embed_load import LONG_TOKENS
from benchmarks.encoder_peers import Taken
from benchmarks.encoders import timed
from benchmarks.passages import passage_of, read_passages
from benchmarks.served import Service, service

RERANKER = "kbmesh.reranker.v1.RerankerService"
PASSAGE_TOKENS = 128
"""Of query and passage together, special ones included."""
QUERY_TOKENS = 12
SERVED, BARE = "kbmesh, gRPC", "bare session"


def main() -> None:
    """Measures and prints."""
    options = _options()
    cores = stay_on(options.threads)
    load_before = os.getloadavg()
    pull_model(MODEL, options.models)
    card = make_cross_encoder(MODEL, options.models)
    folder = options.models / card.name
    tokenizer = ModelTokenizer.load(folder, card)
    sets = _candidates(tokenizer, options)
    settings = {"models": options.models, "model": card.name, "device": "cpu", "threads": options.threads}
    starts, starts_cpu = [], []
    for turn in range(options.starts):
        with service("kbmesh_reranker", RERANKER, settings) as running:
            starts.append(running.start_seconds)
            starts_cpu.append(running.start_cpu_seconds)
            progress(f"start {turn + 1} of {options.starts}: {starts[-1]:.2f} s")
            if turn == options.starts - 1:
                report = _measure(options, tokenizer, folder, sets, running)
                long_text = passage_of(tokenizer, [text for _, texts in sets for text in texts], LONG_TOKENS)
                progress(f"a document of {LONG_TOKENS} tokens")
                report["long_document"] = asyncio.run(_long_document(running, sets, long_text))
    report["cold_start_seconds"] = median(starts)
    report["cold_start_cpu_seconds"] = median(starts_cpu)
    report["cold_starts_seconds"] = [round(each, 2) for each in starts]
    report["machine"] = machine(cores, load_before)
    report["settings"] = {
        "model": f"{NAME}: all-MiniLM-L6-v2 under a head of random weights",
        "form": load_card(folder).preferred_form,
        "passages": options.passages,
        "tokens": PASSAGE_TOKENS,
        "queries": len(sets),
        "threads": options.threads,
        "rounds": options.rounds,
        "clock": options.clock,
    }
    print(json.dumps(report, indent=2) if options.json else _table(report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rerank", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 4 queries and one start")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed; the median counts")
    parser.add_argument("--queries", type=int, default=16, help="of one round, one after another")
    parser.add_argument("--passages", type=int, default=20, help="of one query")
    parser.add_argument("--starts", type=int, default=3, help="of the process; the median counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="and cores, for each alike")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: time that the processes had, for a busy machine"
    )
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="exported models")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.queries, options.starts = min(options.rounds, 2), min(options.queries, 4), 1
    if min(options.rounds, options.queries, options.passages, options.starts, options.threads) < 1:
        parser.error("all numbers must be at least 1")
    return options


Candidates = tuple[str, list[str]]


def _candidates(tokenizer: ModelTokenizer, options: argparse.Namespace) -> list[Candidates]:
    """For each query so many passages that are 128 tokens with it."""
    wanted = options.queries * (options.passages + 1)
    passages = read_passages(tokenizer, count=10_000, max_tokens=256)
    room = PASSAGE_TOKENS - QUERY_TOKENS - tokenizer.pair_special_tokens
    long_enough = [text for text in passages if len(tokenizer.offsets(text)[1]) >= room]
    picked = [long_enough[place % len(long_enough)] for place in range(wanted)]
    sets: list[Candidates] = []
    for start in range(0, wanted, options.passages + 1):
        query, *texts = picked[start : start + options.passages + 1]
        cut = [text[: int(tokenizer.offsets(text)[1][room - 1])] for text in texts]
        sets.append((query[: int(tokenizer.offsets(query)[1][QUERY_TOKENS - 1])], cut))
    return sets


def _measure(
    options: argparse.Namespace,
    tokenizer: ModelTokenizer,
    folder: Path,
    sets: Sequence[Candidates],
    running: Service,
) -> dict[str, Any]:
    card = load_card(folder)
    session = ModelSession.open(folder, card, device="cpu", intra_op_threads=options.threads)
    batches = []
    for query, texts in sets:
        pairs = tokenizer.encode_pairs(query, texts, max_tokens=card.max_tokens)
        batches.append(pad([window for pair in pairs for window in pair.windows]))
    bare_logits: list[float] = []
    served_logits: list[float] = []

    def bare() -> None:
        bare_logits.clear()
        for inputs in batches:
            bare_logits.extend(session.run(*inputs, outputs=("logits",))[0][:, 0].tolist())

    async def served() -> None:
        served_logits.clear()
        async with running.channel() as channel:
            stub: reranker_pb2_grpc.RerankerServiceAsyncStub = reranker_pb2_grpc.RerankerServiceStub(channel)
            for query, texts in sets:
                answer = await stub.Rerank(pb2.RerankRequest(query=query, documents=texts), timeout=600)
                by_index = sorted(answer.results, key=lambda result: result.index)
                served_logits.extend(result.logit for result in by_index)

    taken: dict[str, list[Taken]] = {SERVED: [], BARE: []}
    for turn in range(options.rounds):
        for name in (SERVED, BARE) if turn % 2 else (BARE, SERVED):
            before = running.cpu_seconds()
            spent = timed((lambda: asyncio.run(served())) if name == SERVED else bare)
            cpu = spent.cpu_seconds + (running.cpu_seconds() - before if name == SERVED else 0.0)
            taken[name].append(Taken(wall_seconds=spent.wall_seconds, cpu_seconds=cpu))
            progress(f"round {turn + 1} of {options.rounds}: {name}: {spent.wall_seconds:.2f} s")
    session.close()

    def seconds(name: str) -> float:
        if options.clock == "wall":
            return median(each.wall_seconds for each in taken[name])
        return median(each.cpu_seconds for each in taken[name])

    return {
        "service_to_bare_session": seconds(BARE) / seconds(SERVED),
        "milliseconds_a_query": {name: round(seconds(name) / len(sets) * 1000, 1) for name in taken},
        "wall_seconds": {name: [round(each.wall_seconds, 3) for each in rounds] for name, rounds in taken.items()},
        "cpu_seconds": {name: [round(each.cpu_seconds, 3) for each in rounds] for name, rounds in taken.items()},
        "largest_difference_of_a_logit": float(np.abs(np.array(bare_logits) - np.array(served_logits)).max()),
    }


async def _long_document(running: Service, sets: Sequence[Candidates], text: str) -> dict[str, Any]:
    """What a call with a very long document takes, and what it does to short calls beside it."""
    query, texts = sets[0]
    short = pb2.RerankRequest(query=query, documents=texts[:1])
    async with running.channel() as channel:
        stub: reranker_pb2_grpc.RerankerServiceAsyncStub = reranker_pb2_grpc.RerankerServiceStub(channel)

        async def ask() -> float:
            began = time.perf_counter()
            await stub.Rerank(short, timeout=60)
            return time.perf_counter() - began

        idle = [await ask() for _ in range(20)]
        resident, began = running.resident_bytes(), time.perf_counter()
        long = stub.Rerank(pb2.RerankRequest(query=query, documents=[text, texts[0]]), timeout=300)
        beside: list[float] = []
        while not long.done():
            beside.append(await ask())
        result = min((await long).results, key=lambda each: each.index)
    return {
        "characters": len(text),
        "windows": result.receipt.windows,
        "tokens_read": result.receipt.tokens,
        "tokens_cut": result.receipt.tokens_cut,
        "error": result.error.message if result.HasField("error") else None,
        "seconds": round(time.perf_counter() - began, 2),
        "short_calls_idle_ms": {"p50": round(median(idle) * 1000, 1), "most": round(max(idle) * 1000, 1)},
        "short_calls_beside_it_ms": {
            "calls": len(beside),
            "p50": round(median(beside) * 1000, 1),
            "most": round(max(beside) * 1000, 1),
        },
        "resident_bytes_before": resident,
        "resident_bytes_after": running.resident_bytes(),
        "peak_bytes": running.peak_bytes(),
    }


def _table(report: dict[str, Any]) -> str:
    lines = [f"{name:32}{each:10.1f} ms a query" for name, each in report["milliseconds_a_query"].items()]
    lines += [f"{key:32}{report[key]:10.2f}" for key in ("service_to_bare_session", "cold_start_seconds")]
    return "\n".join([*lines, f"long_document: {json.dumps(report['long_document'])}"])


if __name__ == "__main__":
    main()
