"""`kbmesh eval`: how good and how fast the strategies are on a judged set."""

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import (
    IngestDocument,
    KbmeshClient,
    KbmeshError,
    RetrievalDefaults,
    RetrievalStrategy,
)
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kbmesh_cli.beir import RetrievalSet, open_retrieval_set
from kbmesh_cli.errors import CliError
from kbmesh_cli.ingestion import tally_of, with_progress
from kbmesh_cli.invocation import Invocation, JsonOption, invocation
from kbmesh_cli.output import messages, print_json, results
from kbmesh_cli.private_mesh import private_mesh
from kbmesh_cli.relevance import first_of_each, ndcg_at, percentile, recall_at, reciprocal_rank


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one strategy reached."""

    ndcg_at_10: float
    recall_at_20: float
    mrr: float
    p50_ms: float
    p95_ms: float
    queries: int
    degraded: int
    """Answers in which a stage was skipped or fell back."""

    def to_json(self) -> dict[str, float | int]:
        """The object that is printed."""
        return {
            "ndcg@10": round(self.ndcg_at_10, 5),
            "recall@20": round(self.recall_at_20, 5),
            "mrr": round(self.mrr, 5),
            "p50_ms": round(self.p50_ms, 2),
            "p95_ms": round(self.p95_ms, 2),
            "queries": self.queries,
            "degraded": self.degraded,
        }


def evaluate(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder or .tar.gz with corpus.jsonl, queries.jsonl, qrels/test.tsv.")],
    strategies: Annotated[
        str, typer.Option(help="Strategies to compare, comma separated.")
    ] = "vector_only,hybrid,hybrid_rerank",
    limit: Annotated[int, typer.Option(min=1, help="Ask at most so many queries.")] = 1_000_000,
    candidates: Annotated[
        int, typer.Option(min=20, max=100, help="Hits asked of each channel, and results asked for.")
    ] = 50,
    model: Annotated[str, typer.Option(help="Embedding model. The mesh's default when left out.")] = "",
    json_output: JsonOption = False,
) -> None:
    """Measure retrieval on a judged set in the layout of BEIR.

    Makes a temporary knowledge base on the running mesh, or on one started for this call, and deletes it again.
    A document ranks where its best chunk does.
    """
    wanted = parse_strategies(strategies)
    options = invocation(context)
    with (
        open_retrieval_set(folder) as judged,
        _mesh(options) as client,
        _temporary_name(client, judged, model, candidates) as name,
    ):
        ingested = tally_of(
            with_progress(
                client.ingest(
                    name,
                    (
                        IngestDocument(external_id=identifier, content=text, media_type="text/plain")
                        for identifier, text in judged.documents()
                    ),
                ),
                total=judged.count_documents(),
            )
        ).counts()
        if not ingested["chunks"]:
            raise CliError("DATASET_UNREADABLE", f"no document of {judged.name} could be taken in")
        queries = dict(list(judged.queries.items())[:limit])
        measured = {
            label: measure(client, name, judged, queries, strategy, candidates) for label, strategy in wanted.items()
        }
    if json_output:
        print_json(
            {
                "dataset": judged.name,
                "documents": ingested["total"],
                "failed": ingested["failed"],
                "chunks": ingested["chunks"],
                "strategies": {label: each.to_json() for label, each in measured.items()},
            }
        )
        return
    console = results()
    console.print(
        f"{judged.name}: {ingested['total']:,} documents, {ingested['chunks']:,} chunks, {len(queries):,} queries"
        + (f", [red]{ingested['failed']:,} documents failed[/]" if ingested["failed"] else "")
    )
    table = Table("strategy", "nDCG@10", "recall@20", "MRR", "p50 ms", "p95 ms", "degraded")
    for label, each in measured.items():
        table.add_row(
            label,
            f"{each.ndcg_at_10:.4f}",
            f"{each.recall_at_20:.4f}",
            f"{each.mrr:.4f}",
            f"{each.p50_ms:.1f}",
            f"{each.p95_ms:.1f}",
            str(each.degraded),
        )
    console.print(table)


def parse_strategies(names: str) -> dict[str, RetrievalStrategy]:
    """Reads a comma-separated list. Raises CliError for a strategy that there is not."""
    wanted: dict[str, RetrievalStrategy] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            strategy = RetrievalStrategy(name)
        except ValueError as error:
            known = ", ".join(each.value.lower() for each in RetrievalStrategy if each is not RetrievalStrategy.UNKNOWN)
            raise CliError("USAGE", f"there is no strategy {name!r}", hint=f"there are {known}") from error
        wanted[name] = strategy
    if not wanted:
        raise CliError("USAGE", "--strategies names none")
    return wanted


def measure(
    client: KbmeshClient,
    knowledge_base: str,
    judged: RetrievalSet,
    queries: dict[str, str],
    strategy: RetrievalStrategy,
    candidates: int,
) -> Measurement:
    """Asks every query once, one after another. Times are the caller's, one question that is not counted before."""
    ndcg, recall, ranks, milliseconds = [], [], [], []
    degraded = 0
    for number, (identifier, text) in enumerate(_with_bar(queries, strategy)):
        if number == 0:
            client.retrieve(text, knowledge_base, strategy=strategy, top_k=candidates, timeout_seconds=60)
        began = time.perf_counter()
        answer = client.retrieve(
            text, knowledge_base, strategy=strategy, top_k=candidates, context_budget_tokens=0, timeout_seconds=60
        )
        milliseconds.append((time.perf_counter() - began) * 1000)
        degraded += bool(answer.degraded)
        ranking = first_of_each([result.document.external_id for result in answer.results])
        judgements = judged.judgements[identifier]
        ndcg.append(ndcg_at(10, ranking, judgements))
        recall.append(recall_at(20, ranking, judgements))
        ranks.append(reciprocal_rank(ranking, judgements))
    return Measurement(
        ndcg_at_10=_mean(ndcg),
        recall_at_20=_mean(recall),
        mrr=_mean(ranks),
        p50_ms=percentile(milliseconds, 0.5),
        p95_ms=percentile(milliseconds, 0.95),
        queries=len(queries),
        degraded=degraded,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _with_bar(queries: dict[str, str], strategy: RetrievalStrategy) -> Iterator[tuple[str, str]]:
    console = messages()
    with Progress(
        TextColumn(strategy.value.lower()),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield from progress.track(queries.items(), total=len(queries))


@contextlib.contextmanager
def _mesh(options: Invocation) -> Iterator[KbmeshClient]:
    if options.endpoint or options.running_mesh():
        with options.client() as client:
            yield client
        return
    with private_mesh(models_folder=options.models_folder) as mesh, options.client_at(mesh.endpoint or "") as client:
        yield client


@contextlib.contextmanager
def _temporary_name(client: KbmeshClient, judged: RetrievalSet, model: str, candidates: int) -> Iterator[str]:
    readable = re.sub(r"[^A-Za-z0-9]+", "-", judged.name)[:40].strip("-")
    name = f"eval-{readable}-{secrets.token_hex(4)}"
    client.create_knowledge_base(
        name,
        description=f"Made by `kbmesh eval` for {judged.name}; can be deleted",
        embedding_model=model,
        retrieval=RetrievalDefaults(vector_top_k=candidates),
    )
    try:
        yield name
    finally:
        try:
            client.delete_knowledge_base(name, timeout_seconds=120)
        except KbmeshError as error:
            messages().print(f"the temporary knowledge base {name} could not be deleted: {error}", markup=False)
