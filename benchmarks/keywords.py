"""How much the keyword channel finds alone: `python -m benchmarks.keywords FOLDER... [--json]`.

Each FOLDER is a set in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/*.tsv (`--split` names which; test by
default). Documents and queries go through the retriever's analyser; BM25 is computed as the store does.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path

from kbmesh_retriever.keywords.analyser import ANALYSER_FINGERPRINT

from benchmarks.ranking import LIST_LENGTH, rank_by_words

_NDCG_AT = 10


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the first `LIST_LENGTH` hits held, on the mean over the queries."""

    name: str
    passages: int
    queries: int
    recall_at_20: float
    first_is_relevant: float
    ndcg_at_10: float


def measure(folder: Path, *, split: str = "test") -> Found:
    """Raises OSError, ValueError or KeyError for a folder that is no such set."""
    corpus = _lines(folder / "corpus.jsonl")
    questions = {one["_id"]: one["text"] for one in _lines(folder / "queries.jsonl")}
    relevant: dict[str, set[str]] = defaultdict(set)
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t"):
            if int(row["score"]) > 0:
                relevant[row["query-id"]].add(row["corpus-id"])
    names = [one["_id"] for one in corpus]
    texts = [f"{one['title']}\n\n{one['text']}" if one.get("title") else one["text"] for one in corpus]
    rankings = rank_by_words(texts, [questions[query] for query in relevant])
    recall = first = ndcg = 0.0
    for wanted, ranking in zip(relevant.values(), rankings, strict=True):
        gains = [names[place] in wanted for place in ranking]
        recall += sum(gains) / len(wanted)
        first += bool(gains and gains[0])
        ideal = sum(1 / log2(rank + 2) for rank in range(min(_NDCG_AT, len(wanted))))
        ndcg += sum(gain / log2(rank + 2) for rank, gain in enumerate(gains[:_NDCG_AT])) / ideal
    count = len(relevant)
    return Found(
        name=folder.name,
        passages=len(names),
        queries=count,
        recall_at_20=round(recall / count, 4),
        first_is_relevant=round(first / count, 4),
        ndcg_at_10=round(ndcg / count, 4),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keywords", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--split", default="test")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    options = parser.parse_args(arguments)
    found = [measure(folder, split=options.split) for folder in options.folders]
    if options.json:
        sets = {one.name: {key: value for key, value in asdict(one).items() if key != "name"} for one in found}
        print(json.dumps({"analyser": ANALYSER_FINGERPRINT, "list_length": LIST_LENGTH, "sets": sets}))
        return
    for one in found:
        print(
            f"{one.name:14} {one.passages:6} passages {one.queries:5} queries  recall@20 {one.recall_at_20:.4f}  "
            f"first {one.first_is_relevant:.4f}  nDCG@10 {one.ndcg_at_10:.4f}"
        )


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
