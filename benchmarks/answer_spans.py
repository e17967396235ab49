"""Whether chunks of one strategy are found more often than those of another: questions with the place of their answer.

All documents are cut by each strategy within what the embedding model reads, and the chunks of all documents are one
pool. A question is answered at rank k where the chunk at rank k is of the right document and holds the answer or more
than half of it.

`python -m benchmarks.answer_spans --json` from the repository root; README.md beside this file tells more.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.piece import Chunk

from benchmarks.corpus import REPOSITORY
from benchmarks.questions import (
    QUESTIONS,
    SHIPPED_FOLDERS,
    Question,
    by_document,
    find_answer,
    find_documents,
    read_questions,
    read_source,
)
from benchmarks.ranking import LIST_LENGTH, MODEL, Encoder, Ranking, fuse, rank_by_vectors, rank_by_words

RANKERS = ("vector", "bm25", "hybrid")
DEPTHS = (1, 5, 10)
_RESAMPLES = 10_000
_SEED = 20_260_101
_MODELS = REPOSITORY / ".kbmesh" / "models"

Places = Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A chunk in the pool."""

    document: str
    start: int
    end: int
    context_and_text: str
    """What is searched by words."""
    embedded: str
    """What is embedded; empty where nothing is."""

    def answers(self, document: str, places: Places) -> bool:
        """Whether it holds an answer, or more than half of it."""
        if document != self.document:
            return False
        return any(2 * (min(end, self.end) - max(start, self.start)) > end - start for start, end in places)


@dataclass(kw_only=True)
class Pool:
    """All documents, cut by one strategy."""

    strategy: Strategy
    passages: list[Passage] = field(default_factory=list)
    cut_by: dict[str, str] = field(default_factory=dict)
    """The strategies that cut each document."""
    texts: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, list[int | None]] = field(default_factory=dict)
    """For each ranker the rank of the first chunk that answers each question, from 1; None where it is not found."""


def main() -> None:
    """Measures and prints."""
    options = _options()
    questions = read_questions(options.questions)
    folders = (*SHIPPED_FOLDERS, *options.corpus)
    found, missing = find_documents(questions, folders)
    with closing(Encoder(options.models, model=options.model)) as encoder, ThreadPoolExecutor(1) as executor:
        chunker = Chunker(limits=ReadingLimits(), counter=encoder, executor=executor)
        pools = [asyncio.run(_cut(chunker, strategy, found, options)) for strategy in options.strategies]
        asked, unanswerable = _askable(questions, pools)
        places = [find_answer(pools[0].texts[question.document], question.answer) for question in asked]
        for pool in pools:
            _search(pool, encoder, asked, places, options.rankers)
        tokens = {
            pool.strategy: encoder.tokens([passage.embedded for passage in pool.passages if passage.embedded])
            for pool in pools
        }
    report = _report(pools, asked, tokens, options)
    report["skipped"] = {"not_there": missing, "unanswerable": unanswerable}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print_table(report)
    if options.misses:
        _print_misses(pools, asked)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answer_spans", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    parser.add_argument(
        "--strategies",
        nargs="+",
        type=Strategy,
        choices=list(Strategy),
        default=[Strategy.FIXED, Strategy.AUTO],
        help="the first is what the others are compared with",
    )
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="JSON lines of document, question, answer")
    parser.add_argument("--corpus", type=Path, nargs="+", default=[], help="folders of further documents")
    parser.add_argument(
        "--rankers", nargs="+", choices=RANKERS, default=list(RANKERS), help="bm25 alone embeds nothing and is fast"
    )
    parser.add_argument("--size", type=int, help="of a chunk, in characters; the strategies' default without it")
    parser.add_argument("--model", default=MODEL, help="what embeds: a hub id or a folder")
    parser.add_argument("--models", type=Path, default=_MODELS, help="where the exported model is kept")
    parser.add_argument("--misses", action="store_true", help="list on stderr what only one strategy found")
    return parser.parse_args()


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


async def _cut(
    chunker: Chunker, strategy: Strategy, documents: Mapping[str, Path], options: argparse.Namespace
) -> Pool:
    pool = Pool(strategy=strategy)
    request = ConfigRequest(strategy=strategy, size=options.size, embedding_model=options.model)
    for name, path in documents.items():
        _progress(f"{strategy}: cutting {name}")
        try:
            chunked = await chunker.chunk(read_source(name, path), request, deadline=None)
        except Exception as error:  # one document that fails, and be it by a fault, does not end the measurement
            pool.failed[name] = f"{type(error).__name__}: {error}"
            continue
        pool.texts[name] = chunked.document.text
        pool.cut_by[name] = _strategies_of(chunked)
        pool.passages.extend(_passage(name, chunk) for chunk in chunked.chunks)
    return pool


def _strategies_of(chunked: ChunkedDocument) -> str:
    counts = Counter(str(part.config.strategy) for part in chunked.parts)
    return ", ".join(strategy if count == 1 else f"{count} x {strategy}" for strategy, count in counts.items())


def _passage(document: str, chunk: Chunk) -> Passage:
    context = chunk.piece.context
    usual = f"{context}\n\n{chunk.text}" if context else chunk.text
    embedded = "" if chunk.embedding_excluded else chunk.embedded_text or usual
    return Passage(
        document=document,
        start=chunk.piece.start,
        end=chunk.piece.end,
        context_and_text=usual,
        embedded=embedded,
    )


def _askable(questions: Sequence[Question], pools: Sequence[Pool]) -> tuple[list[Question], list[dict[str, str]]]:
    """The questions whose document all strategies could cut into the same text, and why the others are left out."""
    asked, left_out = [], []
    for document, of_document in by_document(questions).items():
        failed = [pool.failed[document] for pool in pools if document in pool.failed]
        if failed:
            left_out.append({"document": document, "reason": failed[0]})
            continue
        texts = {pool.texts[document] for pool in pools if document in pool.texts}
        if len(texts) > 1:
            left_out.append({"document": document, "reason": "the strategies read it as different texts"})
        if len(texts) != 1:
            continue
        text = texts.pop()
        for question in of_document:
            if find_answer(text, question.answer):
                asked.append(question)
            else:
                reason = "the answer is not in the text"
                left_out.append({"document": document, "question": question.question, "reason": reason})
    return asked, left_out


def _search(
    pool: Pool, encoder: Encoder, questions: Sequence[Question], places: Sequence[Places], rankers: Sequence[str]
) -> None:
    """Adds the rankings and the ranks of the answers to a pool."""
    texts = [question.question for question in questions]
    found = {}
    if "bm25" in rankers or "hybrid" in rankers:
        found["bm25"] = rank_by_words([passage.context_and_text for passage in pool.passages], texts)
    if "vector" in rankers or "hybrid" in rankers:
        found["vector"] = _rank_by_vectors(pool, encoder, texts)
    if "hybrid" in rankers:
        found["hybrid"] = fuse(found["bm25"], found["vector"])
    pool.ranks = {
        ranker: [
            _rank(pool, ranking, question.document, spans)
            for question, spans, ranking in zip(questions, places, found[ranker], strict=True)
        ]
        for ranker in RANKERS
        if ranker in rankers
    }


def _rank_by_vectors(pool: Pool, encoder: Encoder, questions: Sequence[str]) -> list[Ranking]:
    def progress(message: str) -> None:
        _progress(f"{pool.strategy}: {message}")

    embedded = [place for place, passage in enumerate(pool.passages) if passage.embedded]
    texts = [pool.passages[place].embedded for place in embedded]
    vectors = np.zeros((len(pool.passages), encoder.card.dimension), dtype=np.float32)
    vectors[embedded] = encoder.embed(texts, query=False, progress=progress)
    return rank_by_vectors(vectors, encoder.embed(questions, query=True, progress=progress))


def _rank(pool: Pool, ranking: Ranking, document: str, places: Places) -> int | None:
    answering = (rank for rank, place in enumerate(ranking, 1) if pool.passages[place].answers(document, places))
    return next(answering, None)


def _hits(ranks: Sequence[int | None], depth: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([rank is not None and rank <= depth for rank in ranks], dtype=np.float64)


def _reciprocal(ranks: Sequence[int | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([1 / rank if rank is not None else 0.0 for rank in ranks])


def _scores(ranks: Sequence[int | None]) -> dict[str, float]:
    found = {f"hit@{depth}": float(_hits(ranks, depth).mean()) for depth in DEPTHS}
    return {**found, "mrr": float(_reciprocal(ranks).mean())}


def _difference(ranks: Sequence[int | None], base: Sequence[int | None]) -> dict[str, dict[str, float]]:
    """How much better than `base`, with the 95 % interval of a paired bootstrap over the questions (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993)."""
    pairs = {f"hit@{depth}": _hits(ranks, depth) - _hits(base, depth) for depth in DEPTHS}
    pairs["mrr"] = _reciprocal(ranks) - _reciprocal(base)
    generator = np.random.default_rng(_SEED)
    samples = generator.integers(0, len(ranks), size=(_RESAMPLES, len(ranks)))
    result = {}
    for name, differences in pairs.items():
        low, high = np.percentile(differences[samples].mean(axis=1), [2.5, 97.5])
        result[name] = {
            "mean": float(differences.mean()),
            "low": float(low),
            "high": float(high),
            "better": int((differences > 0).sum()),
            "worse": int((differences < 0).sum()),
        }
    return result


def _report(
    pools: Sequence[Pool],
    questions: Sequence[Question],
    tokens: Mapping[Strategy, Sequence[int]],
    options: argparse.Namespace,
) -> dict[str, object]:
    base = pools[0]
    kinds = [question.kind for question in questions]
    names = list(dict.fromkeys(kinds))

    def of_kind(pool: Pool, ranker: str, kind: str) -> list[int | None]:
        return [rank for rank, of in zip(pool.ranks[ranker], kinds, strict=True) if of == kind]

    return {
        "scores": {ranker: {pool.strategy: _scores(pool.ranks[ranker]) for pool in pools} for ranker in base.ranks},
        "difference": {
            ranker: {pool.strategy: _difference(pool.ranks[ranker], base.ranks[ranker]) for pool in pools[1:]}
            for ranker in base.ranks
        },
        "by_kind": {
            kind: {
                "questions": kinds.count(kind),
                **{
                    ranker: {
                        "scores": {pool.strategy: _scores(of_kind(pool, ranker, kind)) for pool in pools},
                        "difference": {
                            pool.strategy: _difference(of_kind(pool, ranker, kind), of_kind(base, ranker, kind))
                            for pool in pools[1:]
                        },
                    }
                    for ranker in base.ranks
                },
            }
            for kind in names
        },
        "chunks": {
            pool.strategy: {
                "count": len(pool.passages),
                "mean_characters": sum(passage.end - passage.start for passage in pool.passages) / len(pool.passages),
                "most_tokens": max(tokens[pool.strategy]),
            }
            for pool in pools
        },
        "documents": {name: {pool.strategy: pool.cut_by.get(name) for pool in pools} for name in base.texts},
        "questions": len(questions),
        "settings": {
            "baseline": base.strategy,
            "model": options.model,
            "size": options.size or "default of each strategy",
            "list_length": LIST_LENGTH,
            "resamples": _RESAMPLES,
            "interval": "95 %, paired bootstrap",
        },
    }


def _print_table(report: Mapping[str, object]) -> None:
    flat = json.loads(json.dumps(report))
    print(f"{flat['questions']} questions")
    for strategy, chunks in flat["chunks"].items():
        print(f"{strategy}: {chunks['count']} chunks of {chunks['mean_characters']:.0f} characters on average")
    groups = [
        (
            "all",
            flat["questions"],
            {r: {"scores": flat["scores"][r], "difference": flat["difference"][r]} for r in flat["scores"]},
        )
    ]
    groups += [(kind, of_kind["questions"], of_kind) for kind, of_kind in flat["by_kind"].items()]
    print(
        f"\n{'':12}{'':>4}  {'':8}"
        + "".join(f"{strategy + ' hit@5':>18}" for strategy in flat["chunks"])
        + "   difference"
    )
    for kind, count, group in groups:
        for ranker in flat["scores"]:
            scores = "".join(f"{one['hit@5']:18.3f}" for one in group[ranker]["scores"].values())
            differences = "  ".join(
                f"{one['hit@5']['mean']:+.3f} [{one['hit@5']['low']:+.3f}, {one['hit@5']['high']:+.3f}]"
                for one in group[ranker]["difference"].values()
            )
            print(f"{kind:12}{count:4}  {ranker:8}{scores}   {differences}")
    print(f"\nSkipped: {json.dumps(flat['skipped'], ensure_ascii=False)}")


def _print_misses(pools: Sequence[Pool], questions: Sequence[Question]) -> None:
    base = pools[0]
    for pool in pools[1:]:
        for ranker in base.ranks:
            for place, question in enumerate(questions):
                first, second = base.ranks[ranker][place], pool.ranks[ranker][place]
                if ((first or 99) <= 5) != ((second or 99) <= 5):
                    _progress(
                        f"{ranker}: {base.strategy} {first}, {pool.strategy} {second}: {question.document}: "
                        f"{question.question} -> {question.answer!r}"
                    )


if __name__ == "__main__":
    main()
