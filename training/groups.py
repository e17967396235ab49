"""What is trained with: a question, the passage that answers it, and wrong ones that a mesh would find for it.

`python -m training.groups --data DATA --sources SOURCES --into FOLDER` writes train.jsonl and development.jsonl. The
wrong ones come from the hybrid order of BM25 and vectors, as a knowledge base has it, each with its fused score: the
cross-encoder learns what to add to that order.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ranking import Encoder
from training.examples import DEVELOPMENT_SHARE, Pool, Sizes, build
from training.group import Group, read_groups, write_groups
from training.hybrid import Fused, fused_order
from training.leaks import SeenTexts

NEGATIVES = 3
HARD = 8
"""Places of the hybrid order from which all wrong passages but one are drawn; that one comes from those behind."""
DEVELOPMENT_PASSAGES = 12
DEVELOPMENT_QUESTIONS = 40
"""Of each pool, at most."""


def draw_group(pool: Pool, question: int, order: Fused, chosen: random.Random) -> Group | None:
    """With the passage that answers, and NEGATIVES wrong ones. None where there are not enough."""
    asked = pool.questions[question]
    answer = pool.passages[asked.place]
    same = SeenTexts([answer])
    wrong = [place for place, _ in order if place != asked.place and same.near(pool.passages[place]) is None]
    if len(wrong) < NEGATIVES:
        return None
    # The nearer to the top, the more a wrong passage looks like a right one.
    near, far = wrong[:HARD], wrong[HARD:]
    drawn = chosen.sample(near, min(NEGATIVES - bool(far), len(near)))
    drawn += chosen.sample(far, min(NEGATIVES - len(drawn), len(far)))
    return _group(pool, asked.text, [asked.place, *drawn], order, asked.place)


def development_group(pool: Pool, question: int, order: Fused) -> Group | None:
    """The first places of the order as they are. None where the answer is not among them."""
    asked = pool.questions[question]
    places = [place for place, _ in order[:DEVELOPMENT_PASSAGES]]
    return _group(pool, asked.text, places, order, asked.place) if asked.place in places else None


def _group(pool: Pool, query: str, places: Sequence[int], order: Fused, answer: int) -> Group:
    scores = dict(order)
    best = max(scores.values(), default=0.0) or 1.0
    return Group(
        pool=pool.name,
        query=query,
        passages=tuple(pool.passages[place] for place in places),
        fused=tuple(round(max(0.0, scores.get(place, 0.0)) / best, 5) for place in places),
        labels=tuple(int(place == answer) for place in places),
    )


def groups_of(pool: Pool, orders: Sequence[Fused], *, seed: int) -> tuple[list[Group], list[Group]]:
    """Those to train with, `repeats` of each question, and those to choose by."""
    chosen = random.Random(f"{seed} {pool.name}")
    questions = list(range(len(pool.questions)))
    chosen.shuffle(questions)
    apart = min(DEVELOPMENT_QUESTIONS, int(DEVELOPMENT_SHARE * len(questions)))
    development = [development_group(pool, question, orders[question]) for question in questions[:apart]]
    train = [draw_group(pool, question, orders[question], chosen) for question in questions[apart:]]
    return [group for group in train if group is not None], [group for group in development if group is not None]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.groups", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--tested", type=Path, nargs="+", required=True, help="sets that nothing may be near to")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path.home() / ".kbmesh" / "models")
    parser.add_argument("--seed", type=int, default=20260)
    options = parser.parse_args(arguments)
    print("building", flush=True)
    found = build(options.data, options.sources, options.tested, sizes=Sizes(), seed=options.seed)
    options.into.mkdir(parents=True, exist_ok=True)
    encoder = Encoder(options.models)
    train: list[Group] = []
    development: list[Group] = []
    for pool in found.pools:
        paths = options.into / f"{pool.name}.train.jsonl", options.into / f"{pool.name}.development.jsonl"
        # The last one is written when the first is whole, so that a run that was broken off goes on behind it.
        if not paths[1].is_file():
            for path, groups in zip(paths, _mine(pool, encoder, seed=options.seed), strict=True):
                write_groups(path, groups)
        of_pool, apart = (list(read_groups(path)) for path in paths)
        train += of_pool
        development += apart
        print(
            f"{pool.name}: {len(pool.passages)} passages, {len(of_pool)} groups, {len(apart)} to choose by, "
            f"{found.left_out[pool.name]} left out as near to what is tested",
            flush=True,
        )
    encoder.close()
    random.Random(options.seed).shuffle(train)
    write_groups(options.into / "train.jsonl", train)
    write_groups(options.into / "development.jsonl", development)


def _mine(pool: Pool, encoder: Encoder, *, seed: int) -> tuple[list[Group], list[Group]]:
    if not pool.questions:
        return [], []
    found = fused_order(
        encoder,
        pool.passages,
        [question.text for question in pool.questions],
        progress=lambda message: print(f"{pool.name}: {message}", file=sys.stderr, flush=True),
    )
    return groups_of(pool, [one.fused for one in found], seed=seed)


if __name__ == "__main__":
    main()
