"""What each way of reranking gains over the hybrid order: `python -m training.table --sets SET... --models FOLDER`.

Each SET is a folder in the layout of BEIR, or a .tar.gz of one. The first TOP of the adaptive order of BM25 and vectors
are reranked, all in process: by late interaction as it is served, by the mixture of cosine, MaxSim and BM25, and by the
cross-encoder `--starter` in fp32 and int8, if it is named, blended as the retriever does. nDCG@10, its difference to no
reranking with the 95 % interval of a paired bootstrap over the queries, and the median milliseconds of TOP passages.
`--write docs/quality.md` puts the table between its marks there.
"""

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kbmesh_cli.beir import open_retrieval_set
from kbmesh_cli.bootstrap import Bootstrap, Interval, mean
from kbmesh_cli.relevance import ndcg_at

from benchmarks.ranking import Encoder
from training.blend import blended, by_ranks, mixed, order_of, within_falls
from training.hybrid import Found, fused_order
from training.scores import CrossEncoder, LateInteraction

TOP = 20
CUTOFF = 10
RESAMPLES = 5000
SEED = 20260
NONE = "none"
BEGIN, END = "<!-- reranking: begin -->", "<!-- reranking: end -->"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A set, or a sample of its queries."""

    name: str
    documents: tuple[str, ...]
    passages: tuple[str, ...]
    queries: tuple[str, ...]
    judgements: tuple[Mapping[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A way of reranking on a set."""

    ndcg: float
    gain: Interval
    """Over no reranking."""
    milliseconds: float | None
    values: tuple[float, ...]
    """Of each query."""


def read_set(path: Path, *, most: int | None) -> Judged:
    """All queries, or `most` drawn with a fixed seed. Raises CliError."""
    with open_retrieval_set(path) as one:
        documents = list(one.documents())
        names = sorted(one.queries)
        # Of two samples the smaller one is part of the larger.
        random.Random(SEED).shuffle(names)
        names = names[:most]
        return Judged(
            name=one.name,
            documents=tuple(name for name, _ in documents),
            passages=tuple(text for _, text in documents),
            queries=tuple(one.queries[name] for name in names),
            judgements=tuple(one.judgements[name] for name in names),
        )


def compare(values: Mapping[str, Sequence[float]], milliseconds: Mapping[str, float]) -> dict[str, Measured]:
    """nDCG of each query by each way, NONE among them, to what is known of the ways."""
    bootstrap = Bootstrap(len(values[NONE]), seed=SEED, resamples=RESAMPLES)
    found = {}
    for name, own in values.items():
        differences = [mine - theirs for mine, theirs in zip(own, values[NONE], strict=True)]
        found[name] = Measured(
            ndcg=mean(own),
            gain=bootstrap.sample(differences, mean).interval(),
            milliseconds=milliseconds.get(name),
            values=tuple(own),
        )
    return found


def ndcg_of(one: Judged, query: int, found: Found, scores: Sequence[float]) -> float:
    """With the first places in the order of the scores, the others behind them as they were."""
    places = [place for place, _ in found.fused]
    ranked = [places[place] for place in order_of(scores)] + places[len(scores) :]
    return ndcg_at(CUTOFF, [one.documents[place] for place in ranked], one.judgements[query])


class Ways:
    """The ways of reranking, with the models that they need."""

    def __init__(self, models: Path, encoder: str, starter: str | None) -> None:
        self._late = LateInteraction(models / encoder)
        self._trained = {
            name: CrossEncoder(models / starter, precision=precision)
            for name, precision in (("starter", "fp32"), ("starter int8", "int8"))
            if starter is not None
        }

    def close(self) -> None:
        """Frees the models, and keeps what they said."""
        self._late.close()
        for model in self._trained.values():
            model.close()

    def read(self, one: Judged) -> None:
        """Before any query of a set."""
        self._late.read(one.passages)

    def scores(self, query: str, found: Found, passages: Sequence[str]) -> dict[str, Sequence[float]]:
        """Of the first TOP passages that were found, in fused order, by each way."""
        head = found.fused[:TOP]
        fused = [score for _, score in head]
        texts = [passages[place] for place, _ in head]
        plain, weighted = self._late.score(query, texts)
        cosines = [found.cosines[place] for place, _ in head]
        keywords = [found.keywords.get(place, 0.0) for place, _ in head]
        ways: dict[str, Sequence[float]] = {
            NONE: fused,
            "late interaction": within_falls(by_ranks(plain), fused).tolist(),
            "MaxSim alone": plain,
            "mixture": mixed(cosines, weighted, keywords).tolist(),
        }
        for name, model in self._trained.items():
            logits = model.score(query, texts)
            ways[name] = blended(logits, fused).tolist()
            ways[f"{name} alone"] = logits
        return ways

    def milliseconds(self, query: str, found: Found, passages: Sequence[str]) -> dict[str, float]:
        """Of one query, with nothing known before."""
        texts = [passages[place] for place, _ in found.fused[:TOP]]
        timed: dict[str, Callable[[], object]] = {
            "late interaction": lambda: self._late.score(query, texts, fresh=True)
        }
        for name, model in self._trained.items():
            timed[name] = lambda model=model: model.score(query, texts, fresh=True)  # type: ignore[misc]  # bound now
        taken = {}
        for name, call in timed.items():
            started = time.perf_counter()
            call()
            taken[name] = (time.perf_counter() - started) * 1000
        return taken


def measure(one: Judged, ways: Ways, encoder: Encoder, *, timed: int) -> dict[str, Measured]:
    """All ways on a set; `timed` of its queries are read anew for the time they take."""

    def progress(message: str) -> None:
        print(f"{one.name}: {message}", file=sys.stderr, flush=True)

    found = fused_order(encoder, one.passages, one.queries, progress=progress)
    ways.read(one)
    values: dict[str, list[float]] = {}
    for query, (text, of_query) in enumerate(zip(one.queries, found, strict=True)):
        for name, scores in ways.scores(text, of_query, one.passages).items():
            values.setdefault(name, []).append(ndcg_of(one, query, of_query, scores))
        if query % 25 == 0:
            progress(f"query {query} of {len(one.queries)}")
    taken: dict[str, list[float]] = {}
    for text, of_query in list(zip(one.queries, found, strict=True))[:timed]:
        for name, milliseconds in ways.milliseconds(text, of_query, one.passages).items():
            taken.setdefault(name, []).append(milliseconds)
    return compare(values, {name: statistics.median(own) for name, own in taken.items()})


SHOWN = ("late interaction", "mixture", "starter", "starter int8")


def render(found: Mapping[str, Mapping[str, Measured]]) -> str:
    """As Markdown: nDCG@10 with the gain over no reranking, then the milliseconds."""
    shown = [name for name in SHOWN if any(name in ways for ways in found.values())]
    lines = [
        f"| set | queries | none | {' | '.join(shown)} |",
        "|---|---|---|" + "---|" * len(shown),
    ]
    for name, ways in found.items():
        cells = [_cell(ways[way]) for way in shown]
        lines.append(f"| {name} | {len(ways[NONE].values)} | {_figure(ways[NONE].ndcg)} | {' | '.join(cells)} |")
    timed = [way for way in shown if any(ways[way].milliseconds is not None for ways in found.values())]
    if timed:
        lines += ["", f"| milliseconds of {TOP} passages | {' | '.join(timed)} |", "|---|" + "---|" * len(timed)]
        for name, ways in found.items():
            cells = [_time(ways[way].milliseconds) for way in timed]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(one: Measured) -> str:
    gain = one.gain
    return f"{_figure(one.ndcg)} {gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"


def _figure(value: float) -> str:
    return f"{value:.3f}".lstrip("0") if value < 1 else f"{value:.3f}"


def _time(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.0f}"


def read_page(path: Path) -> str:
    """Raises ValueError where it has no marks."""
    page = path.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} has no {BEGIN} and {END}")
    return page


def write_between_marks(path: Path, table: str) -> None:
    """Raises ValueError where the page has no marks."""
    page = read_page(path)
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    path.write_text(between.sub(lambda _: f"{BEGIN}\n{table}\n{END}", page), encoding="utf-8")


def verdict(found: Mapping[str, Mapping[str, Measured]], way: str) -> list[str]:
    """Why a trained model may not be shipped. Nothing where it may: it raises nDCG@10 on scifact by more than chance,
    and lowers it by more than chance on no other set."""
    against = []
    if found["scifact"][way].gain.low <= 0:
        against.append(f"scifact: {found['scifact'][way].gain.estimate:+.3f}, no gain beyond chance")
    against += [
        f"{name}: {ways[way].gain.estimate:+.3f}, all of the interval below 0"
        for name, ways in found.items()
        if name != "scifact" and ways[way].gain.high < 0
    ]
    return against


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.table", description=__doc__)
    parser.add_argument("--sets", type=Path, nargs="+", required=True)
    parser.add_argument("--models", type=Path, default=Path.home() / ".kbmesh" / "models")
    parser.add_argument("--starter", help="name of the trained model among them; left out where there is none")
    parser.add_argument("--queries", type=int, help="the most of a set, drawn with a fixed seed; all by default")
    parser.add_argument("--timed", type=int, default=10, help="queries of each set whose time is taken")
    parser.add_argument("--write", type=Path, help="a page with the marks")
    parser.add_argument("--json", type=Path, help="all figures, those of each query too")
    options = parser.parse_args(arguments)
    if options.write:
        # Before hours of measuring, and not after them.
        read_page(options.write)
    encoder = Encoder(options.models)
    ways = Ways(options.models, encoder.card.name, options.starter)
    found = {}
    try:
        for path in options.sets:
            one = read_set(path, most=options.queries)
            found[one.name] = measure(one, ways, encoder, timed=options.timed)
    finally:
        ways.close()
        encoder.close()
    table = render(found)
    print(table)
    for way in ("starter", "starter int8"):
        if options.starter and "scifact" in found:
            print(f"{way}: {'; '.join(verdict(found, way)) or 'may be shipped'}")
    if options.json:
        figures = {name: {way: asdict(one) for way, one in ways_of.items()} for name, ways_of in found.items()}
        options.json.write_text(json.dumps(figures), encoding="utf-8")
    if options.write:
        write_between_marks(options.write, table)


if __name__ == "__main__":
    main()
