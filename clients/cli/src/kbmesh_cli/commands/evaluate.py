"""`kbmesh eval`: how good and how fast ways to look are on a judged set."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import KbmeshClient
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from kbmesh_cli import plot
from kbmesh_cli.beir import RetrievalSet, open_retrieval_set
from kbmesh_cli.bootstrap import Interval
from kbmesh_cli.errors import CliError
from kbmesh_cli.evaluation import METRICS, Measurement, Outcome, Questions, ask_all, summarise
from kbmesh_cli.invocation import Invocation, JsonOption, invocation
from kbmesh_cli.judged_corpus import JudgedCorpus, judged_corpus
from kbmesh_cli.output import messages, print_json, results
from kbmesh_cli.private_mesh import private_mesh
from kbmesh_cli.progress_lines import ProgressLines
from kbmesh_cli.variants import SWEPT, Variant, parse_variants

DECIMALS = {"p50_ms": 2, "p95_ms": 2}
"""Digits after the point. 5 where nothing is said."""


def evaluate(
    context: typer.Context,
    dataset: Annotated[
        Path, typer.Argument(help="Folder or .tar.gz with corpus.jsonl, queries.jsonl and qrels/test.tsv.")
    ],
    strategy: Annotated[
        str, typer.Option("--strategy", "--strategies", help="Strategies to compare, comma separated.")
    ] = "vector_only,hybrid,hybrid_rerank",
    fusion: Annotated[
        str,
        typer.Option(
            help="Fusion methods to compare: adaptive, rrf, weighted, distribution. The mesh's own by default."
        ),
    ] = "",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION=VALUE,VALUE",
            help=f"Compare values of an option ({', '.join(SWEPT)}). May be given several times: all combinations.",
        ),
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="Ask a sample of so many queries. All by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample and of the intervals.")] = 0,
    split: Annotated[str, typer.Option(help="Judgements to use: the name of a file in qrels.")] = "test",
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Documents asked for.")] = 20,
    candidates: Annotated[int, typer.Option(min=1, max=1000, help="Hits asked of each channel.")] = 50,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Queries asked at once.")] = 1,
    model: Annotated[str, typer.Option(help="Embedding model. The mesh's default when left out.")] = "",
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the knowledge base, so that the next call need not take the documents in."),
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Measure without judgements, queries and doubles that are broken.")
    ] = False,
    per_query: Annotated[bool, typer.Option("--per-query", help="With --json: the values of each query.")] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw what was found.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Measure retrieval on a judged set in the layout of BEIR.

    Takes the documents into a knowledge base of their own, on the running mesh or on one started for this call, asks
    the judged queries in every way, and removes the knowledge base. The first way is what the others are compared to.
    A document ranks where its best chunk does.
    """
    variants = parse_variants(strategy, fusion, sweep or ())
    _check_plot(plot_file)
    options = invocation(context)
    with open_retrieval_set(dataset, split=split, skip_broken=skip_broken) as judged:
        for broken in judged.left_out:
            messages().print(f"[yellow]left out[/]: {escape(broken)}", soft_wrap=True)
        asked = _sample(judged, queries, seed)
        with (
            _mesh(options, keep=keep) as client,
            judged_corpus(client, judged, model=model, candidates=candidates, keep=keep) as corpus,
        ):
            questions = Questions(
                knowledge_base=corpus.knowledge_base, queries=asked, judgements=judged.judgements, top_k=top_k
            )
            outcomes = _ask(client, questions, variants, concurrency)
    measured = summarise(variants, outcomes, seed=seed)
    if plot_file is not None:
        _write_plot(plot_file, f"{judged.name}, {len(asked):,} queries", measured)
    if json_output:
        print_json(_to_json(judged, corpus, list(asked), measured, seed=seed, per_query=per_query))
    else:
        _show(judged, corpus, measured)


def _sample(judged: RetrievalSet, size: int | None, seed: int) -> dict[str, str]:
    """In the order of the file."""
    if size is None or size >= len(judged.queries):
        return judged.queries
    chosen = set(random.Random(seed).sample(sorted(judged.queries), size))
    return {query: text for query, text in judged.queries.items() if query in chosen}


def _ask(
    client: KbmeshClient, questions: Questions, variants: Sequence[Variant], concurrency: int
) -> list[list[Outcome]]:
    console = messages()
    with Progress(
        TextColumn("asking" if len(variants) == 1 else f"asking in {len(variants)} ways"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=len(questions.queries))
        lines = ProgressLines("asked {done} of {total} queries", total=len(questions.queries))

        def on_done() -> None:
            progress.advance(task)
            lines.advance()

        return ask_all(client, questions, variants, concurrency=concurrency, on_done=on_done)


@contextlib.contextmanager
def _mesh(options: Invocation, *, keep: bool) -> Iterator[KbmeshClient]:
    if options.endpoint or options.running_mesh():
        with options.client() as client:
            yield client
        return
    # What is kept of a query would make the next way to look faster than the first.
    environment = {"KBMESH_CACHE": "off"}
    with (
        private_mesh(
            models_folder=options.models_folder, home=options.home if keep else None, environment=environment
        ) as mesh,
        options.client_at(mesh.endpoint or "", private=True) as client,
    ):
        yield client


def _check_plot(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() != ".svg":
        raise CliError(
            "USAGE",
            f"--plot writes SVG, not {path.suffix or 'a file without an extension'}",
            hint="name a file that ends in .svg: browsers show it, and `rsvg-convert` or Inkscape make a PNG of it",
        )
    if not path.absolute().parent.is_dir():
        raise CliError("FILE_NOT_FOUND", f"there is no folder {path.absolute().parent} to write {path.name} in")


def _write_plot(path: Path, title: str, measured: Sequence[Measurement]) -> None:
    try:
        path.write_text(plot.draw(title, measured), encoding="utf-8")
    except OSError as error:
        messages().print(f"[red]the plot could not be written[/]: {escape(str(error))}", soft_wrap=True)


def _to_json(
    judged: RetrievalSet,
    corpus: JudgedCorpus,
    queries: Sequence[str],
    measured: Sequence[Measurement],
    *,
    seed: int,
    per_query: bool,
) -> dict[str, object]:
    return {
        "dataset": judged.name,
        "split": judged.split,
        "documents": corpus.documents,
        "failed": corpus.failed,
        "chunks": corpus.chunks,
        "queries": len(queries),
        "left_out": list(judged.left_out),
        "knowledge_base": corpus.knowledge_base if corpus.kept else None,
        "reused": corpus.reused,
        "seed": seed,
        "compared_to": measured[0].variant.name,
        "strategies": {
            one.variant.name: {
                **{metric: _rounded(metric, one.figures[metric].estimate) for metric in METRICS},
                "queries": len(one.outcomes),
                "degraded": one.degraded,
                "degraded_by_reason": one.degraded_by_reason(),
                "intervals": {
                    metric: {
                        "low": _rounded(metric, interval.low),
                        "high": _rounded(metric, interval.high),
                    }
                    for metric, interval in one.figures.items()
                },
                "differences": {
                    metric: {
                        "difference": _rounded(metric, interval.estimate),
                        "low": _rounded(metric, interval.low),
                        "high": _rounded(metric, interval.high),
                    }
                    for metric, interval in one.differences.items()
                },
                **({"per_query": _per_query(queries, one)} if per_query else {}),
            }
            for one in measured
        },
    }


def _per_query(queries: Sequence[str], one: Measurement) -> dict[str, dict[str, float]]:
    return {
        query: {
            "ndcg@10": round(outcome.ndcg_at_10, 5),
            "recall@20": round(outcome.recall_at_20, 5),
            "reciprocal_rank": round(outcome.reciprocal_rank, 5),
            "ms": round(outcome.milliseconds, 2),
        }
        for query, outcome in zip(queries, one.outcomes, strict=True)
    }


def _rounded(metric: str, value: float) -> float:
    return round(value, DECIMALS.get(metric, 5))


def _show(judged: RetrievalSet, corpus: JudgedCorpus, measured: Sequence[Measurement]) -> None:
    console = results()
    where = f"kept as {corpus.knowledge_base}" if corpus.kept else ""
    told = [
        f"{corpus.documents:,} documents",
        f"{corpus.chunks:,} chunks",
        f"{len(measured[0].outcomes):,} queries",
        *([f"[red]{corpus.failed:,} documents failed[/]"] if corpus.failed else []),
        *([where] if where else []),
    ]
    console.print(f"{escape(judged.name)}: {', '.join(told)}", soft_wrap=True)
    table = Table("strategy", "nDCG@10", "recall@20", "MRR", "p50 ms", "p95 ms", "degraded")
    for one in measured:
        shown = [_figure(metric, one.figures[metric].estimate) for metric in METRICS]
        table.add_row(escape(one.variant.name), *shown, str(one.degraded))
    console.print(table)
    for one in measured:
        for reason, count in one.degraded_by_reason().items():
            console.print(
                f"[yellow]degraded[/] {escape(one.variant.name)}: {count:,} × {escape(reason)}", soft_wrap=True
            )
    if len(measured) == 1:
        return
    first = escape(measured[0].variant.name)
    table = Table(f"difference to {first}", "nDCG@10", "recall@20", "MRR", "p50 ms", "p95 ms")
    for one in measured[1:]:
        table.add_row(escape(one.variant.name), *(_difference(metric, one.differences[metric]) for metric in METRICS))
    console.print(table)
    console.print("[dim]in brackets: 95 % interval over the queries; dim: 0 lies in it[/]", soft_wrap=True)


def _figure(metric: str, value: float) -> str:
    return f"{value:.1f}" if metric in DECIMALS else f"{value:.4f}"


def _difference(metric: str, interval: Interval) -> str:
    digits = 1 if metric in DECIMALS else 4
    said = f"{interval.estimate:+.{digits}f} \\[{interval.low:+.{digits}f}, {interval.high:+.{digits}f}]"
    return f"[dim]{said}[/]" if interval.is_noise else said
