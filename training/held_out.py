"""Two judged sets of texts that training does not read: `python -m training.held_out --sources SOURCES --into FOLDER`.

manuals: a heading, and the section of a manual under it. functions: what a docstring says first, and the function
without it. Each in the layout of BEIR, so that `kbmesh eval` reads them too. Manuals and packages are others than
those trained with, and a question that two passages answer is left out.
"""

import argparse
import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

from training.examples import Pair, function_pairs, section_pairs

QUESTIONS = 200
PASSAGES = 800
"""Of a set, at most."""


def write_set(folder: Path, pairs: Sequence[Pair]) -> None:
    """In the layout of BEIR: all passages, and questions of the first QUESTIONS."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    places: dict[str, int] = {}
    for _, passage in pairs:
        places.setdefault(passage, len(places))
    _write(folder / "corpus.jsonl", [{"_id": f"d{place}", "title": "", "text": text} for text, place in places.items()])
    asked = pairs[:QUESTIONS]
    _write(folder / "queries.jsonl", [{"_id": f"q{number}", "text": text} for number, (text, _) in enumerate(asked)])
    with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8", newline="") as rows:
        writer = csv.writer(rows, delimiter="\t", lineterminator="\n")
        writer.writerow(["query-id", "corpus-id", "score"])
        writer.writerows([f"q{number}", f"d{places[passage]}", 1] for number, (_, passage) in enumerate(asked))


def _write(path: Path, values: Sequence[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.held_out", description=__doc__)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=20260)
    options = parser.parse_args(arguments)
    for name, pairs_of in (("manuals", section_pairs), ("functions", function_pairs)):
        pairs = pairs_of(options.sources, "test", random.Random(options.seed))[:PASSAGES]
        write_set(options.into / name, pairs)
        print(f"{name}: {len(pairs)} passages, {min(len(pairs), QUESTIONS)} questions")


if __name__ == "__main__":
    main()
