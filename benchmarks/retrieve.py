"""What retrieval costs: `python -m benchmarks.retrieve --json`; README.md beside this file tells more.

- `overhead_ms_p50_1kb`, `overhead_ms_p50_8kb`: an answer of HYBRID_RERANK over one and over eight knowledge bases in
  memory, as a message, less the time in its embedder, store, reranker and catalog.
- `fanout_8_to_1`: HYBRID over eight knowledge bases whose searches take 50 ms each, as a multiple of one.
- `cache_to_empty_rpc`: an answer that was kept, as a multiple of a method that does nothing, on one server.
- `rerank_p95_ms`: HYBRID_RERANK over this repository's documentation and code, by services in processes of their own
  with the real model. Left out without `--models`.

What runs in this process has the event loop and the garbage collector as a server has them.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_client import IngestDocument, KbmeshClient
from kbmesh_retriever.retrieve.pipeline import Retrieval
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import Strategy
from kbmesh_retriever.retriever_messages import write_answer
from kbmesh_rpc.deadline import Deadline

from benchmarks.corpus import REPOSITORY, read_corpus
from benchmarks.fake_mesh import TENANT, FakeMesh, always, make_fake_mesh
from benchmarks.ingest_mesh import MODEL, ingest_mesh
from benchmarks.retrieve_server import EMPTY, KNOWLEDGE_BASES
from benchmarks.served import service
from benchmarks.server_loop import run_as_in_a_server

_QUERY = "why does the payment fail?"
_SEARCH_SECONDS = 0.05
_QUESTIONS = (
    "How does a knowledge base change its embedding model?",
    "What happens to a query when the reranker is down?",
    "Where are vectors stored on a laptop?",
    "Which chunking strategies are there?",
    "How is a Slack export read?",
    "What does KBMESH_REQUIRE_DEVICE do?",
    "How many tokens does all-MiniLM-L6-v2 read?",
    "deadline exceeded while searching",
    "def reciprocal_rank_fusion",
    "How do I rebuild a knowledge base without downtime?",
    "What is a generation of a document?",
    "Why was my document refused as DOCUMENT_SHRUNK?",
)


class Clocked:
    """A part whose calls are timed, together."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return await method(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        return call


def measure_overhead(knowledge_bases: int, *, questions: int) -> float:
    """p50 in milliseconds. The parts answer at once, so that their times never overlap and can be taken off."""

    async def story() -> float:
        mesh = make_fake_mesh(knowledge_bases)
        parts = {name: Clocked(getattr(mesh, name)) for name in ("catalog", "store", "embedder", "reranker")}
        retrieval = Retrieval(**parts, rephraser=None, limits=RetrievalLimits())  # type: ignore[arg-type]  # stand-ins
        took: list[float] = []
        for _ in range(questions):
            before = sum(part.seconds for part in parts.values())
            started = time.perf_counter()
            answer = await retrieval.answer(_request(mesh), tenant=TENANT, deadline=Deadline.after(10))
            write_answer(answer, request_id="").SerializeToString()
            elapsed = time.perf_counter() - started
            took.append((elapsed - (sum(part.seconds for part in parts.values()) - before)) * 1000)
            if answer.degradations:
                raise SystemExit(f"not a full answer: {answer.degradations[0].message}")
        return statistics.median(took[questions // 5 :])

    return run_as_in_a_server(story())


def measure_fanout(*, questions: int) -> tuple[float, float]:
    """p50 in milliseconds over one knowledge base and over eight."""

    async def story(knowledge_bases: int) -> float:
        mesh = make_fake_mesh(knowledge_bases)
        for behaviour in mesh.store.behaviours.values():
            behaviour.seconds = always(_SEARCH_SECONDS)
        retrieval = Retrieval(
            catalog=mesh.catalog,
            store=mesh.store,
            embedder=mesh.embedder,
            reranker=None,
            rephraser=None,
            limits=RetrievalLimits(),
        )
        took: list[float] = []
        for _ in range(questions):
            started = time.perf_counter()
            request = _request(mesh, strategy=Strategy.HYBRID)
            await retrieval.answer(request, tenant=TENANT, deadline=Deadline.after(10))
            took.append((time.perf_counter() - started) * 1000)
        return statistics.median(took)

    return run_as_in_a_server(story(1)), run_as_in_a_server(story(8))


def _request(mesh: FakeMesh, *, strategy: Strategy = Strategy.HYBRID_RERANK) -> RetrievalRequest:
    selectors = tuple(Selector(knowledge_base=name) for name in mesh.names)
    return RetrievalRequest(query=_QUERY, selectors=selectors, strategy=strategy)


def measure_cache(*, questions: int) -> tuple[float, float]:
    """p50 in milliseconds of a kept answer, and of a method that does nothing, in turns."""
    with (
        service("benchmarks.retrieve_server", EMPTY, {}) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        metadata = (("kbmesh-tenant", TENANT),)
        retriever = RetrieverServiceStub(channel)
        empty = channel.unary_unary(
            f"/{EMPTY}/Call", request_serializer=Empty.SerializeToString, response_deserializer=Empty.FromString
        )
        selectors = [pb.KnowledgeBaseSelector(knowledge_base=f"kb-{number}") for number in range(KNOWLEDGE_BASES)]
        request = pb.RetrieveRequest(query=_QUERY, knowledge_bases=selectors)
        kept: list[float] = []
        nothing: list[float] = []
        for number in range(questions):
            started = time.perf_counter()
            answer = retriever.Retrieve(request, timeout=10, metadata=metadata)
            between = time.perf_counter()
            empty(Empty(), timeout=10, metadata=metadata)
            ended = time.perf_counter()
            if number and answer.cache != pb.CACHE_STATE_HIT:
                raise SystemExit(f"not a kept answer but {pb.CacheState.Name(answer.cache)}")
            kept.append((between - started) * 1000)
            nothing.append((ended - between) * 1000)
    warm = questions // 5
    return statistics.median(kept[warm:]), statistics.median(nothing[warm:])


def measure_rerank(models: Path, *, questions: int, megabytes: float) -> dict[str, Any]:
    """p50 and p95 in milliseconds of answers over real chunks, nothing kept, one question after the other."""
    reranker_settings = {"models": models, "model": MODEL}
    with (
        service("kbmesh_reranker", "kbmesh.reranker.v1.RerankerService", reranker_settings) as reranker,
        ingest_mesh(models, retriever={"reranker_address": reranker.target, "cache": "off"}) as mesh,
        KbmeshClient(mesh.retriever.target) as client,
    ):
        client.create_knowledge_base("corpus")
        documents = _documents(megabytes)
        chunks = sum(result.chunks for result in client.ingest("corpus", documents))
        took: list[float] = []
        degraded = 0
        for number in range(questions):
            # Never the same question twice: the words of each are all in play, the number is not.
            question = f"{_QUESTIONS[number % len(_QUESTIONS)]} ({number})"
            started = time.perf_counter()
            answer = client.retrieve(question, "corpus")
            took.append((time.perf_counter() - started) * 1000)
            degraded += bool(answer.degraded)
    took = sorted(took[len(_QUESTIONS) :])
    return {
        "rerank_p50_ms": round(statistics.median(took), 1),
        "rerank_p95_ms": round(took[min(int(0.95 * len(took)), len(took) - 1)], 1),
        "rerank_chunks": chunks,
        "rerank_questions": len(took),
        "rerank_degraded": degraded,
    }


def _documents(megabytes: float) -> list[IngestDocument]:
    return [
        IngestDocument(external_id=file.name, content=file.text, filename=file.name)
        for file in read_corpus(None, max_megabytes=megabytes)
    ]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--questions", type=int, default=300, help="for each figure; a fifth of them to warm up")
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="folder of the models")
    parser.add_argument("--max-mb", type=float, default=0.5, help="of the documents that are searched")
    options = parser.parse_args()
    one, eight = measure_fanout(questions=max(20, options.questions // 10))
    cached, empty = measure_cache(questions=options.questions)
    report: dict[str, Any] = {
        "overhead_ms_p50_1kb": round(measure_overhead(1, questions=options.questions), 2),
        "overhead_ms_p50_8kb": round(measure_overhead(8, questions=options.questions), 2),
        "fanout_8_to_1": round(eight / one, 3),
        "fanout_1_ms": round(one, 1),
        "fanout_8_ms": round(eight, 1),
        "cache_to_empty_rpc": round(cached / empty, 2),
        "cached_ms": round(cached, 3),
        "empty_rpc_ms": round(empty, 3),
    }
    if options.models.is_dir():
        questions = max(60, options.questions // 3)
        report |= measure_rerank(options.models, questions=questions, megabytes=options.max_mb)
    else:
        print(f"no models in {options.models}: rerank_p95_ms is left out", file=sys.stderr)
    report["machine"] = {"cores": os.cpu_count(), "load_at_end": round(os.getloadavg()[0], 2)}
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        print(f"{name:>22}  {value}")


if __name__ == "__main__":
    main()
