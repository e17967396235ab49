"""How well each way of fusing ranks: `python -m benchmarks.fusion --data FOLDER... [--json]`.

Each FOLDER is a set in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/*.tsv (`--split` names which; test by
default). Passages and queries are embedded in process by all-MiniLM-L6-v2, and BM25 is computed as the store does; the
lists are fused by the retriever's own code. nDCG@10, recall@20 and the mean reciprocal rank (of the first 10) are
means over the queries; `over` gives the difference of adaptive fusion's nDCG@10 to each other way, with the 95 %
interval of a paired bootstrap over the queries.
"""

import argparse
import csv
import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log2
from pathlib import Path
from typing import TypedDict
from uuid import UUID

import numpy as np
from kbmesh_retriever.retrieve.fusion import Channel, Entry, FusionMethod, FusionOptions, RankedList, fuse_lists
from kbmesh_retriever.retrieve.trust import AskedIdentifiers, trust_in_keywords, trust_in_vectors
from numpy.typing import NDArray

from benchmarks.ranking import Encoder, Ranking, Scored, score_by_vectors, score_by_words

_LIST_LENGTH = 40
"""Of each channel: what a request for 20 results asks for."""
_NDCG_AT = 10
_RECALL_AT = 20
_RESAMPLES = 5000
_SEED = 20260

Grades = Mapping[int, int]
"""Of the passages that answer a query, by place."""


class Quality(TypedDict):
    """Means over the queries."""

    ndcg_at_10: float
    recall_at_20: float
    mrr: float


class Difference(TypedDict):
    """Of adaptive fusion's nDCG@10 to another way's."""

    mean: float
    low: float
    high: float


class Compared(TypedDict):
    """One set."""

    passages: int
    queries: int
    ways: dict[str, Quality]
    over: dict[str, Difference]


def compare(folder: Path, encoder: Encoder, *, split: str, most_queries: int | None) -> Compared:
    """Raises OSError, ValueError or KeyError for a folder that is no such set."""
    texts, queries, grades = _read(folder, split)
    if most_queries is not None and most_queries < len(queries):
        drawn = sorted(random.Random(_SEED).sample(range(len(queries)), most_queries))
        queries, grades = [queries[place] for place in drawn], [grades[place] for place in drawn]

    def progress(message: str) -> None:
        print(f"{folder.name}: {message}", file=sys.stderr)

    by_words = score_by_words(texts, queries, length=_LIST_LENGTH)
    by_vectors = score_by_vectors(
        encoder.embed(texts, query=False, progress=progress),
        encoder.embed(queries, query=True, progress=progress),
        length=_LIST_LENGTH,
    )
    ways: dict[str, list[Ranking]] = {
        "bm25": [[place for place, _ in one] for one in by_words],
        "vectors": [[place for place, _ in one] for one in by_vectors],
    }
    telling = [
        AskedIdentifiers(query).vectors_tell_apart(texts[one[0][0]]) if one else 1.0
        for query, one in zip(queries, by_words, strict=True)
    ]
    for method in FusionMethod:
        options = FusionOptions(method=method)
        ways[method.value] = [
            _fused(words, vectors, trust, options)
            for words, vectors, trust in zip(by_words, by_vectors, telling, strict=True)
        ]
    gains = {name: _ndcg(rankings, grades) for name, rankings in ways.items()}
    adaptive = gains[FusionMethod.ADAPTIVE.value]
    return Compared(
        passages=len(texts),
        queries=len(queries),
        ways={
            name: Quality(
                ndcg_at_10=round(float(gains[name].mean()), 4),
                recall_at_20=round(_recall(rankings, grades), 4),
                mrr=round(_reciprocal_rank(rankings, grades), 4),
            )
            for name, rankings in ways.items()
        },
        over={name: _difference(adaptive - gains[name]) for name in ways if name != FusionMethod.ADAPTIVE.value},
    )


def _read(folder: Path, split: str) -> tuple[list[str], list[str], list[Grades]]:
    corpus = _lines(folder / "corpus.jsonl")
    places = {one["_id"]: place for place, one in enumerate(corpus)}
    questions = {one["_id"]: one["text"] for one in _lines(folder / "queries.jsonl")}
    graded: dict[str, dict[int, int]] = defaultdict(dict)
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t"):
            if int(row["score"]) > 0:
                graded[row["query-id"]][places[row["corpus-id"]]] = int(row["score"])
    texts = [f"{one['title']}\n\n{one['text']}" if one.get("title") else one["text"] for one in corpus]
    return texts, [questions[query] for query in graded], list(graded.values())


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _fused(words: Scored, vectors: Scored, telling: float, options: FusionOptions) -> Ranking:
    in_words = trust_in_keywords([score for _, score in words])
    in_vectors = trust_in_vectors([score for _, score in vectors]) * telling
    lists = [
        RankedList(channel=Channel.KEYWORD, entries=_entries(words), trust=in_words),
        RankedList(channel=Channel.VECTOR, entries=_entries(vectors), trust=in_vectors),
    ]
    return [fused.key.int for fused in fuse_lists(lists, options)]


def _entries(scored: Scored) -> list[Entry[UUID]]:
    return [Entry(key=UUID(int=place), score=score) for place, score in scored]


def _ndcg(rankings: Sequence[Ranking], all_grades: Sequence[Grades]) -> NDArray[np.float64]:
    """Of each query."""
    values = []
    for ranking, grades in zip(rankings, all_grades, strict=True):
        ideal = sorted(grades.values(), reverse=True)[:_NDCG_AT]
        best = sum(grade / log2(rank + 2) for rank, grade in enumerate(ideal))
        got = sum(grades.get(place, 0) / log2(rank + 2) for rank, place in enumerate(ranking[:_NDCG_AT]))
        values.append(got / best)
    return np.array(values)


def _recall(rankings: Sequence[Ranking], all_grades: Sequence[Grades]) -> float:
    return float(
        np.mean(
            [
                sum(place in grades for place in ranking[:_RECALL_AT]) / len(grades)
                for ranking, grades in zip(rankings, all_grades, strict=True)
            ]
        )
    )


def _reciprocal_rank(rankings: Sequence[Ranking], all_grades: Sequence[Grades]) -> float:
    return float(
        np.mean(
            [
                next((1 / rank for rank, place in enumerate(ranking[:_NDCG_AT], start=1) if place in grades), 0.0)
                for ranking, grades in zip(rankings, all_grades, strict=True)
            ]
        )
    )


def _difference(differences: NDArray[np.float64]) -> Difference:
    drawn = np.random.default_rng(_SEED).integers(0, len(differences), (_RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return Difference(mean=round(float(differences.mean()), 4), low=round(float(low), 4), high=round(float(high), 4))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fusion", description=__doc__)
    parser.add_argument("--data", nargs="+", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--split", default="test")
    parser.add_argument(
        "--queries", type=int, help="the most queries of a set, drawn with a fixed seed; all by default"
    )
    parser.add_argument("--models", type=Path, default=Path.home() / ".kbmesh" / "models")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    options = parser.parse_args(arguments)
    encoder = Encoder(options.models)
    try:
        found = {
            folder.name: compare(folder, encoder, split=options.split, most_queries=options.queries)
            for folder in options.data
        }
    finally:
        encoder.close()
    if options.json:
        print(json.dumps({"list_length": _LIST_LENGTH, "split": options.split, "sets": found}))
        return
    for name, one in found.items():
        print(f"{name}: {one['passages']} passages, {one['queries']} queries")
        for way, quality in one["ways"].items():
            over = one["over"].get(way)
            against = f"  adaptive {over['mean']:+.4f} [{over['low']:+.4f}, {over['high']:+.4f}]" if over else ""
            print(
                f"  {way:12} nDCG@10 {quality['ndcg_at_10']:.4f}  recall@20 {quality['recall_at_20']:.4f}  "
                f"MRR {quality['mrr']:.4f}{against}"
            )


if __name__ == "__main__":
    main()
