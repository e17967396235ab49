"""Computes what a backfill needs, from 10,000 to a billion chunks: memory, disk, shards, time of embedders.

`python -m benchmarks.capacity --json` from the repository root; docs/scaling.md has the arithmetic in words.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kbmesh_retriever.stores.sizing import GRAPH_FROM_POINTS, QUANTISED_FROM_POINTS, size_for

from benchmarks.chunk_bytes import measure_chunk_bytes
from benchmarks.corpus import REPOSITORY

SIZES = tuple(10**power for power in range(4, 10))
_FLOAT_BYTES = 4
_TERM_BYTES = 8
_GIB = 2**30
_GRAPH_LINKS = 16
"""m of the graph: 2 m links on the lowest layer, and on the layers above about m / (m - 1) of m each."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the result rests on. Bytes and tokens of a chunk are those that --measure found over 0.5 MB of this
    repository's prose and that benchmarks.ingest found in the catalog; the rest is stated."""

    dimension: int = 384
    tokens_per_chunk: float = 149.0
    terms_per_chunk: float = 63.0
    payload_bytes: float = 1070.0
    chunks_per_document: float = 10.0
    catalog_bytes_per_document: float = 900.0
    overhead: float = 1.3
    """On top of what is stored: segments being merged, indexes of payloads, the write-ahead log."""
    replicas: int = 2
    """Copies of each shard."""
    node_gib: float = 128.0
    """Memory of a node of the vector store, of which it may use four fifths."""
    embedder_tokens_per_s: float = 1_000_000.0
    """Of one embedder: a stated round number, and no figure of any device."""
    embedders: int = 4
    retriever_documents_per_s: float = 100.0
    """Of one retriever process beside an embedder that costs nothing: `one_chunk.documents_per_s` of
    benchmarks.ingest."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What so many chunks need."""

    chunks: int
    documents: int
    tokens: int
    vectors_gib: float
    """float32."""
    quantised_gib: float
    graph_gib: float
    keywords_gib: float
    payload_gib: float
    memory_gib: float
    """Of the vector store, all replicas."""
    disk_gib: float
    """Of the vector store, all replicas."""
    catalog_gib: float
    shards: int
    nodes: int
    embedder_hours: float
    """Of one embedder's time."""
    hours: float
    """With all embedders, where nothing else is slower."""
    retrievers: int
    """Processes that keep so many embedders busy."""
    largest: str
    """What most of the memory is for."""


def main() -> None:
    """Computes and prints."""
    options = _options()
    values = {name: getattr(options, name) for name in Inputs.__dataclass_fields__}
    measured: dict[str, Any] = {}
    if options.measure:
        found = measure_chunk_bytes(options.models, max_megabytes=options.max_mb)
        measured = {key: round(value, 1) for key, value in asdict(found).items()}
        values |= {
            "tokens_per_chunk": found.tokens,
            "terms_per_chunk": found.terms,
            "payload_bytes": found.payload_bytes,
        }
    inputs = Inputs(**values)
    rows = [capacity(chunks, inputs) for chunks in options.chunks]
    if options.json:
        report = {
            "inputs": asdict(inputs),
            "measured": measured,
            "bytes_per_chunk": bytes_per_chunk(inputs),
            "capacity": [asdict(row) for row in rows],
        }
        print(json.dumps(report, indent=2))
    else:
        _print(rows, inputs)


def bytes_per_chunk(inputs: Inputs) -> dict[str, float]:
    """Of one copy, before the overhead."""
    return {
        "vector": float(inputs.dimension * _FLOAT_BYTES),
        "quantised": float(inputs.dimension),
        "graph": _graph_bytes(),
        "keywords": inputs.terms_per_chunk * _TERM_BYTES,
        "payload": inputs.payload_bytes,
        "catalog": inputs.catalog_bytes_per_document / inputs.chunks_per_document,
    }


def capacity(chunks: int, inputs: Inputs) -> Capacity:
    """What `chunks` in one collection of its own need, set up as kbmesh sets it up."""
    sizing = size_for(chunks, dimension=inputs.dimension, shared=False)
    each = bytes_per_chunk(inputs)
    if chunks < GRAPH_FROM_POINTS:
        each["graph"] = 0.0
    if chunks < QUANTISED_FROM_POINTS:
        each["quantised"] = 0.0
    on_disk = {"vector", "payload"} if sizing.vectors_on_disk else {"payload"}
    stored = {name: size * chunks for name, size in each.items() if name != "catalog"}
    in_memory = {name: size for name, size in stored.items() if name not in on_disk}
    copies = inputs.replicas * inputs.overhead
    memory = sum(in_memory.values()) * copies
    documents = math.ceil(chunks / inputs.chunks_per_document)
    tokens = round(chunks * inputs.tokens_per_chunk)
    embedder_seconds = tokens / inputs.embedder_tokens_per_s
    seconds = embedder_seconds / inputs.embedders
    return Capacity(
        chunks=chunks,
        documents=documents,
        tokens=tokens,
        vectors_gib=_gib(stored["vector"]),
        quantised_gib=_gib(stored["quantised"]),
        graph_gib=_gib(stored["graph"]),
        keywords_gib=_gib(stored["keywords"]),
        payload_gib=_gib(stored["payload"]),
        memory_gib=_gib(memory),
        disk_gib=_gib(sum(stored.values()) * copies),
        catalog_gib=_gib(documents * inputs.catalog_bytes_per_document),
        shards=sizing.shard_number or 1,
        nodes=max(inputs.replicas, math.ceil(memory / (inputs.node_gib * 0.8 * _GIB))),
        embedder_hours=round(embedder_seconds / 3600, 4),
        hours=round(seconds / 3600, 4),
        retrievers=max(1, math.ceil(documents / inputs.retriever_documents_per_s / seconds)),
        largest=max(in_memory, key=lambda name: in_memory[name]),
    )


def _graph_bytes() -> float:
    links = 2 * _GRAPH_LINKS + _GRAPH_LINKS / (_GRAPH_LINKS - 1)
    return links * 4.0


def _gib(size: float) -> float:
    return round(size / _GIB, 3)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument("--chunks", type=int, nargs="+", default=list(SIZES), help="how many chunks")
    parser.add_argument("--measure", action="store_true", help="measure tokens, terms and payload of a chunk first")
    parser.add_argument("--models", type=Path, default=REPOSITORY / ".kbmesh" / "models", help="folder of the models")
    parser.add_argument("--max-mb", type=float, default=2.0, help="of the corpus that is measured")
    defaults = Inputs()
    for name in Inputs.__dataclass_fields__:
        value = getattr(defaults, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    if any(chunks < 1 for chunks in options.chunks) or any(
        getattr(options, name) <= 0 for name in Inputs.__dataclass_fields__
    ):
        parser.error("every number must be above 0")
    return options


def _print(rows: Sequence[Capacity], inputs: Inputs) -> None:
    print(f"bytes of a chunk: {', '.join(f'{name} {size:,.0f}' for name, size in bytes_per_chunk(inputs).items())}")
    print(
        f"{'chunks':>14}{'memory GiB':>12}{'disk GiB':>12}{'catalog GiB':>13}{'shards':>8}{'nodes':>7}"
        f"{'embedder h':>12}{'hours':>10}{'retrievers':>12}  most memory"
    )
    for row in rows:
        print(
            f"{row.chunks:14,}{row.memory_gib:12,.2f}{row.disk_gib:12,.2f}{row.catalog_gib:13,.2f}{row.shards:8}"
            f"{row.nodes:7}{row.embedder_hours:12,.2f}{row.hours:10,.2f}{row.retrievers:12}  {row.largest}"
        )


if __name__ == "__main__":
    main()
