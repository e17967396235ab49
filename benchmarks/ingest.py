"""Measures ingestion end to end: files in, searchable documents out, beside what the embedder alone can do.

`python -m benchmarks.ingest --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kbmesh.embedder.v1 import embedder_pb2
from kbmesh.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from kbmesh_client import ChunkingConfig, IngestDocument, IngestResult, KbmeshClient

from benchmarks.corpus import REPOSITORY, read_corpus
from benchmarks.ingest_mesh import MODEL, IngestMesh, ingest_mesh
from benchmarks.served import Service

_TEXTS_A_CALL = 256
_CALLS_AT_ONCE = 4
_ONE_CHUNK = "Note {number}: pump {number} of hall {hall} was looked at on day {day}, and its seal is {state}."
_STATES = ("dry", "wet", "worn", "new")


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One ingestion of all files."""

    seconds: float
    documents: int
    chunks: int
    embedded: int
    tokens: int
    failed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Round:
    """An ingestion between two runs of the embedder alone, and one of what is there already."""

    first: Pass
    second: Pass
    embedder_seconds: float
    """Mean of the run before and the run after."""
    embedder_cpu_seconds: float
    """Of the run before."""
    cpu_seconds: Mapping[str, float]
    """Time of the processor that each process had for the first pass."""

    @property
    def cpu_share(self) -> float:
        """The share that is to be expected where the embedder runs on the same cores and nothing else does: what else
        is done takes time from it."""
        return self.embedder_cpu_seconds / sum(self.cpu_seconds.values())

    @property
    def share(self) -> float:
        """Of the embedder's own throughput."""
        return self.embedder_seconds / self.first.seconds

    @property
    def speedup(self) -> float:
        """Of the second pass."""
        return self.first.seconds / self.second.seconds


def main() -> None:
    """Measures and prints."""
    options = _options()
    report: dict[str, Any] = {}
    if not options.only or options.only == "model":
        report |= measure_model(options)
    if not options.only or options.only == "memory":
        report |= measure_memory(options)
    report["machine"] = {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_at_end": round(os.getloadavg()[0], 2),
    }
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for key, value in report.items():
            print(f"{key:32}{value}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="folder of the models")
    parser.add_argument("--corpus", type=Path, help="a folder of .md, .txt and source files in place of those shipped")
    parser.add_argument("--max-mb", type=float, default=1.0, help="of the corpus; the largest files are left out first")
    parser.add_argument("--rounds", type=int, default=3, help="how often all is measured; the median counts")
    parser.add_argument("--one-chunk", type=int, default=50_000, help="documents of one chunk for the memory")
    parser.add_argument("--concurrency", type=int, default=0, help="documents at once; the server's own choice when 0")
    parser.add_argument("--only", choices=["model", "memory"], help="one of the two parts")
    options = parser.parse_args()
    if options.rounds < 1 or options.one_chunk < 1000:
        parser.error("--rounds must be at least 1, --one-chunk at least 1000")
    return options


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def measure_model(options: argparse.Namespace) -> dict[str, Any]:
    """Throughput with the real model, and what a second pass costs."""
    rounds: list[Round] = []
    with TemporaryDirectory(prefix="kbmesh-bench-files-") as folder, ingest_mesh(options.models) as mesh:
        files = _write_files(Path(folder), options)
        with _client(mesh) as client:
            texts = _chunk_texts(client, files)
            _embedder_seconds(mesh.embedder, texts[:_TEXTS_A_CALL])
            before = _cpu_seconds(mesh)
            alone = _embedder_seconds(mesh.embedder, texts)
            alone_cpu = _cpu_seconds(mesh)["embedder"] - before["embedder"]
            for number in range(options.rounds):
                name = f"round-{number}"
                client.create_knowledge_base(name)
                before = _cpu_seconds(mesh)
                first = _ingest(client, name, _documents(files), options.concurrency)
                cpu = {process: seconds - before[process] for process, seconds in _cpu_seconds(mesh).items()}
                again = _embedder_seconds(mesh.embedder, texts)
                second = _ingest(client, name, _documents(files), options.concurrency)
                rounds.append(
                    Round(
                        first=first,
                        second=second,
                        embedder_seconds=(alone + again) / 2,
                        embedder_cpu_seconds=alone_cpu,
                        cpu_seconds=cpu,
                    )
                )
                alone = again
                _progress(
                    f"round {number}: {first.seconds:.2f} s, the embedder alone {rounds[-1].embedder_seconds:.2f} s, "
                    f"again {second.seconds:.3f} s; processor: {_rounded(cpu)}, the embedder alone {alone_cpu:.2f} s"
                )
                if first.chunks != len(texts):
                    raise SystemExit(f"{first.chunks} chunks went in, {len(texts)} were embedded alone")
    first = rounds[0].first
    seconds = statistics.median(each.first.seconds for each in rounds)
    return {
        "share_of_embedder_throughput": round(statistics.median(each.share for each in rounds), 4),
        "second_pass_speedup": round(statistics.median(each.speedup for each in rounds), 1),
        "documents_per_s": round(first.documents / seconds, 2),
        "chunks_per_s": round(first.chunks / seconds, 2),
        "tokens_per_s": round(first.tokens / seconds, 1),
        "second_pass_documents_per_s": round(
            first.documents / statistics.median(each.second.seconds for each in rounds), 1
        ),
        "rounds": [
            {
                "first_seconds": round(each.first.seconds, 3),
                "second_seconds": round(each.second.seconds, 4),
                "embedder_seconds": round(each.embedder_seconds, 3),
                "share": round(each.share, 4),
                "speedup": round(each.speedup, 1),
                "cpu_seconds": _rounded(each.cpu_seconds),
                "embedder_cpu_seconds": round(each.embedder_cpu_seconds, 2),
                "cpu_share": round(each.cpu_share, 4),
            }
            for each in rounds
        ],
        "corpus": {
            "files": first.documents,
            "chunks": first.chunks,
            "tokens": first.tokens,
            "failed": list(first.failed),
            "model": MODEL,
        },
    }


def measure_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Memory of the retriever over many documents of one chunk, with a model that costs next to nothing."""
    total = options.one_chunk
    samples: list[tuple[int, float]] = []
    with ingest_mesh(None) as mesh, _client(mesh) as client:
        client.create_knowledge_base("notes")
        began = time.perf_counter()
        failed = 0
        for number, result in enumerate(client.ingest("notes", _notes(total), concurrency=options.concurrency), 1):
            failed += result.error is not None
            if number % (total // 20) == 0:
                samples.append((number, mesh.retriever.resident_bytes() / 1e6))
                _progress(f"{number:,} documents, {samples[-1][1]:.0f} MB, {time.perf_counter() - began:.1f} s")
        seconds = time.perf_counter() - began
        peak = mesh.retriever.peak_bytes() / 1e6
        stored = _folder_bytes(mesh.data)
    warm = next(megabytes for number, megabytes in samples if number >= total / 5)
    return {
        "peak_rss_mb": round(peak, 1),
        "one_chunk": {
            "documents": total,
            "failed": failed,
            "documents_per_s": round(total / seconds, 1),
            "rss_mb_after_a_fifth": round(warm, 1),
            "rss_mb_at_the_end": round(samples[-1][1], 1),
            "growth_mb": round(samples[-1][1] - warm, 1),
            "rss_mb": [[number, round(megabytes, 1)] for number, megabytes in samples],
            "disk_bytes_per_chunk": {name: round(size / total, 1) for name, size in stored.items()},
        },
    }


def _cpu_seconds(mesh: IngestMesh) -> dict[str, float]:
    """Of each process so far, this one, which reads the files, included."""
    services = {"retriever": mesh.retriever, "chunker": mesh.chunker, "embedder": mesh.embedder, "edge": mesh.edge}
    return {**{name: each.cpu_seconds() for name, each in services.items()}, "client": time.process_time()}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in seconds.items()}


def _client(mesh: IngestMesh) -> KbmeshClient:
    return KbmeshClient(mesh.retriever.target, chunker_endpoint=mesh.chunker.target, timeout_seconds=120.0)


def _write_files(folder: Path, options: argparse.Namespace) -> list[Path]:
    """The corpus as files, since reading them is part of the work."""
    paths = []
    for file in read_corpus(options.corpus, max_megabytes=options.max_mb):
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        paths.append(path)
    return paths


def _documents(files: Sequence[Path]) -> Iterator[IngestDocument]:
    for path in files:
        yield IngestDocument(external_id=str(path), content=path.read_bytes(), filename=path.name)


def _notes(count: int) -> Iterator[IngestDocument]:
    for number in range(count):
        text = _ONE_CHUNK.format(number=number, hall=number % 40, day=number % 365, state=_STATES[number % 4])
        yield IngestDocument(external_id=f"note-{number}", content=text, media_type="text/plain")


def _ingest(client: KbmeshClient, name: str, documents: Iterator[IngestDocument], concurrency: int) -> Pass:
    began = time.perf_counter()
    results: list[IngestResult] = list(client.ingest(name, documents, concurrency=concurrency))
    seconds = time.perf_counter() - began
    return Pass(
        seconds=seconds,
        documents=len(results),
        chunks=sum(result.chunks for result in results),
        embedded=sum(result.embedded for result in results),
        tokens=sum(result.tokens for result in results),
        failed=tuple(f"{result.external_id}: {result.error.reason}" for result in results if result.error),
    )


def _chunk_texts(client: KbmeshClient, files: Sequence[Path]) -> list[str]:
    """What is embedded of the files, as the retriever has it."""
    config = ChunkingConfig(embedding_model=MODEL)
    texts: list[str] = []
    for document in _documents(files):
        for chunk in client.chunk(document, config).chunks:
            usual = f"{chunk.context}\n\n{chunk.text}" if chunk.context else chunk.text
            texts.append(usual if chunk.embedded_text is None else chunk.embedded_text)
    return texts


def _embedder_seconds(embedder: Service, texts: Sequence[str]) -> float:
    """How long the embedder alone takes for all texts, always with work waiting."""

    async def work() -> float:
        parts = [texts[start : start + _TEXTS_A_CALL] for start in range(0, len(texts), _TEXTS_A_CALL)]
        async with embedder.channel() as channel:
            stub = EmbedderServiceStub(channel)
            at_once = asyncio.Semaphore(_CALLS_AT_ONCE)

            async def embed(part: Sequence[str]) -> None:
                async with at_once:
                    await stub.Embed(
                        embedder_pb2.EmbedRequest(
                            model=MODEL,
                            texts=part,
                            input_type=embedder_pb2.INPUT_TYPE_DOCUMENT,
                            truncation=embedder_pb2.TRUNCATION_END,
                            priority=embedder_pb2.PRIORITY_BULK,
                            encoding=embedder_pb2.ENCODING_FLOAT32,
                        ),
                        timeout=600,
                    )

            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(embed(part))
            return time.perf_counter() - began

    return asyncio.run(work())


def _folder_bytes(folder: Path) -> dict[str, int]:
    """Bytes on disk below each entry of a folder; a sparse file counts what it takes."""
    return {
        entry.name: sum(path.stat().st_blocks * 512 for path in [entry, *entry.rglob("*")] if path.is_file())
        for entry in sorted(folder.iterdir())
    }


if __name__ == "__main__":
    main()
