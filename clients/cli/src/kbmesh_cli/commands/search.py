"""`kbmesh search`: a question and its answers."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer
from kbmesh_client import (
    KbmeshClient,
    KnowledgeBaseReport,
    KnowledgeBaseStatus,
    RerankMethod,
    Retrieval,
    RetrievalOptions,
    RetrieveResult,
)
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from kbmesh_cli.errors import HINTS, CliError
from kbmesh_cli.filters import parse_filter
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.output import messages, print_json, print_rule, results
from kbmesh_cli.rendering import name_of, retrieval_to_json, title_of
from kbmesh_cli.reordering import moves_between
from kbmesh_cli.retrieval_flags import FusionChoice, RetrievalChoice, fusion_options, parse_thresholds
from kbmesh_cli.waterfall import show_explanation

PREVIEW_LINES = 8
LINE_CHARACTERS = 300
NO_ANSWER = frozenset(
    {
        KnowledgeBaseStatus.TIMEOUT,
        KnowledgeBaseStatus.UNAVAILABLE,
        KnowledgeBaseStatus.DENIED,
        KnowledgeBaseStatus.NOT_FOUND,
        KnowledgeBaseStatus.MODEL_MISMATCH,
    }
)
"""A knowledge base of such a status could not be asked."""
NO_ANSWER_HINTS = {
    KnowledgeBaseStatus.TIMEOUT: "`kbmesh doctor` tells which service is down",
    KnowledgeBaseStatus.UNAVAILABLE: "`kbmesh doctor` tells which service is down",
    KnowledgeBaseStatus.DENIED: "`--as NAME` says who asks; `kbmesh kb show NAME` tells who its readers are",
    KnowledgeBaseStatus.NOT_FOUND: HINTS["KNOWLEDGE_BASE_NOT_FOUND"],
    KnowledgeBaseStatus.MODEL_MISMATCH: HINTS["MODEL_MISMATCH"],
}
SCORE_NAMES = {RerankMethod.LATE_INTERACTION: "by rank", RerankMethod.CROSS_ENCODER: "reranked"}
"""What the number on a card is. Without a reranker it is the fused score."""
SHOWN_ANYWAY = frozenset({"Section", "Title"})
"""Display fields that repeat a result's heading path or its own title."""
PAGES = frozenset({"Page", "Pages"})
"""Display fields that say more of a result's pages, as whose they are."""


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The question.")],
    kb: Annotated[
        list[str] | None,
        typer.Option(
            "--kb",
            help="Knowledge base to search. May be given several times, or left out where --profile says which.",
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="Retrieval profile: what it says holds unless said here.")
    ] = "",
    strategy: Annotated[
        RetrievalChoice | None,
        typer.Option(help="How to look. hybrid_rerank by default.", case_sensitive=False),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, max=100, help="Results to return. 5 by default.")] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FIELD=VALUE",
            help="Keep only documents whose field has this value, such as source_type=slack or tags=ops,db. Also "
            "FIELD!=VALUE, and FIELD>=BOUND and FIELD<=BOUND of time and of numbers in metadata. "
            "Several values of one field widen, several conditions narrow.",
        ),
    ] = None,
    principals: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="PRINCIPAL", help="Who asks: a user or a group. May be given several times."),
    ] = None,
    fusion: Annotated[
        FusionChoice | None,
        typer.Option(help="How lists are fused. The mesh's own choice by default.", case_sensitive=False),
    ] = None,
    vector_weight: Annotated[
        float | None, typer.Option(min=0, max=100, help="Weight of vector lists in fusion.")
    ] = None,
    keyword_weight: Annotated[
        float | None, typer.Option(min=0, max=100, help="Weight of keyword lists in fusion.")
    ] = None,
    rrf_k: Annotated[int | None, typer.Option(min=1, max=1000, help="The constant of rrf. 60 by default.")] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="STAGE=MIN",
            help="Drop what scores below at a stage: vector, keyword, fused, rerank_probability or final. "
            "May be given several times.",
        ),
    ] = None,
    max_per_document: Annotated[
        int | None, typer.Option(min=1, max=100, help="Results of one document at most.")
    ] = None,
    diversity: Annotated[
        float | None, typer.Option(min=0, max=1, help="0 orders by relevance alone, 1 by difference alone.")
    ] = None,
    expand: Annotated[
        int | None, typer.Option(min=0, max=5, help="Show so many neighbouring chunks on each side.")
    ] = None,
    rerank_top_n: Annotated[
        int | None, typer.Option(min=1, max=200, help="Candidates to rerank. 20 by default.")
    ] = None,
    hypothetical_answer: Annotated[
        bool, typer.Option("--hypothetical-answer", help="With advanced: search by an imagined answer too.")
    ] = False,
    context_tokenizer: Annotated[
        str, typer.Option(help="Tokenizer that counts the context block, by a name that the mesh knows.")
    ] = "",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compute the answer even where it is kept.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show the fused order first, then what reranking changed.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show when each stage ran, what it decided, and the way of each candidate."),
    ] = False,
    context_block: Annotated[
        bool, typer.Option("--context", help="Show the context block, ready to paste into a prompt.")
    ] = False,
    context_tokens: Annotated[
        int | None, typer.Option(min=0, max=100_000, help="Size of the context block in tokens. 2000 by default.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Ask a question of one or more knowledge bases.

    Exit code 1 where none of them could be asked; the answer, which says why, is printed all the same.
    """
    if not kb and not profile:
        raise CliError("USAGE", "where to look?", hint="name a knowledge base with --kb, or a profile with --profile")
    options: RetrievalOptions = {
        "strategy": None if strategy is None else strategy.value,
        "top_k": top_k,
        "filter": parse_filter(filter_ or []),
        "context_budget_tokens": context_tokens,
        "rerank_top_n": rerank_top_n,
        "fusion": fusion_options(fusion, vector_weight, keyword_weight, rrf_k),
        "thresholds": parse_thresholds(threshold or []),
        "max_results_per_document": max_per_document,
        "diversity": diversity,
        "expand": expand,
        "hypothetical_answer": hypothetical_answer,
        "context_tokenizer": context_tokenizer,
    }
    console = results()
    fused: Retrieval | None = None
    with invocation(context).client(principals=principals or ()) as client:
        asked = client.retrieve_stream if stream else _retrieve_once(client)
        for answer in asked(query, kb or (), profile=profile, explain=explain, skip_cache=no_cache, **options):
            if json_output:
                print_json(retrieval_to_json(answer))
            elif answer.is_final:
                if fused is not None:
                    _show_moves(fused, answer, console)
                show_answer(answer, console, explain=explain, context_block=context_block)
            else:
                fused = answer
                _show_order(answer, console)
    if nobody_answered(answer.knowledge_bases):
        if not json_output:
            hints = (NO_ANSWER_HINTS.get(report.status) for report in answer.knowledge_bases)
            for hint in dict.fromkeys(filter(None, hints)):
                messages().print(f"  hint: {escape(hint)}", soft_wrap=True)
        raise typer.Exit(1)


def _retrieve_once(client: KbmeshClient) -> Callable[..., Iterable[Retrieval]]:
    """`retrieve`, as a stream of one answer."""

    def retrieve(*arguments: Any, **options: Any) -> Iterable[Retrieval]:
        yield client.retrieve(*arguments, **options)

    return retrieve


def _show_order(fused: Retrieval, console: Console) -> None:
    console.print(f"[bold]fused order[/] [dim]after {fused.timings.get('total', 0.0):.0f} ms[/]")
    for result in fused.results:
        console.print(f"  {result.rank}. {escape(title_of(result))}  [dim]{result.score:.3f}[/]", soft_wrap=True)
    if not fused.results:
        console.print("  nothing found")


def _show_moves(fused: Retrieval, final: Retrieval, console: Console) -> None:
    moves = moves_between(fused.results, final.results)
    done = "not reranked" if final.rerank_method is RerankMethod.NONE else "reranked"
    console.print(f"[bold]{done}[/] [dim]after {final.timings.get('total', 0.0):.0f} ms[/]")
    for move in moves:
        console.print(f"  {escape(str(move))}", soft_wrap=True)
    if not moves:
        console.print("  the order is the same")
    console.print()


def nobody_answered(reports: Sequence[KnowledgeBaseReport]) -> bool:
    """Tells whether not one knowledge base could be asked. One that holds no match has answered."""
    return bool(reports) and all(report.status in NO_ANSWER for report in reports)


def show_answer(answer: Retrieval, console: Console, *, explain: bool = False, context_block: bool = False) -> None:
    """Prints an answer for people."""
    for result in answer.results:
        show_result(
            result,
            console,
            score_name=SCORE_NAMES.get(answer.rerank_method, "fused"),
            query=answer.queries[0] if answer.queries else "",
        )
    if not answer.results:
        console.print("nothing found")
    for report in answer.knowledge_bases:
        if report.status not in (KnowledgeBaseStatus.OK, KnowledgeBaseStatus.EMPTY):
            why = f": {report.error.message}" if report.error else ""
            console.print(
                f"[yellow]{escape(report.knowledge_base)} is {report.status.value}[/]{escape(why)}", soft_wrap=True
            )
    for each in answer.degraded:
        console.print(
            f"[yellow]degraded: {each.stage.value.lower()}[/] ({each.reason}): {escape(each.message)}", soft_wrap=True
        )
    for left_out in answer.not_applied:
        console.print(
            f"[yellow]not applied: {escape(left_out.field)} of the profile[/] {escape(left_out.message)}",
            soft_wrap=True,
        )
    searched = ", ".join(f"{report.knowledge_base} {report.hits}" for report in answer.knowledge_bases)
    console.print(
        f"[dim]{answer.strategy.value.lower()}, {answer.timings.get('total', 0.0):.0f} ms, hits: {escape(searched)}[/]",
        soft_wrap=True,
    )
    if context_block and answer.context is not None:
        print_rule(console, "context")
        console.print(Text(answer.context.text), soft_wrap=True)
        print_rule(console, f"{answer.context.tokens} tokens{' (estimated)' if answer.context.estimated else ''}")
    if explain:
        show_explanation(answer, console)


def show_result(result: RetrieveResult, console: Console, *, score_name: str, query: str) -> None:
    """Prints one result as a card: where it is from, how it scored, what it says."""
    title = title_of(result)
    citation = f" [cyan]\\[{result.citation}][/]" if result.citation else ""
    score = f"{result.score:.3f} {score_name}"
    if result.scores.vector is not None:
        score += f", similarity {result.scores.vector:.2f}"
    console.print(f"[bold]{result.rank}. {escape(title)}[/]{citation}  [dim]{score}[/]", soft_wrap=True)
    headings = result.heading_path[1:] if result.heading_path[:1] == (title,) else result.heading_path
    place = [" › ".join(filter(None, headings))] if any(headings) else []
    told = [field for field in result.display if field.label not in SHOWN_ANYWAY]
    if result.pages and not any(field.label in PAGES for field in told):
        place.append("page " + ", ".join(map(str, result.pages)))
    place += [f"{field.label.lower() if field.label in PAGES else field.label} {field.value}" for field in told]
    opened = result.link or result.document.uri or result.document.external_id
    where = [result.knowledge_base, *place, opened]
    console.print(f"   [dim]{escape(' · '.join(part for part in where if part))}[/]", soft_wrap=True)
    for line in preview_lines(result.expanded_text or result.text, query):
        if console.is_terminal:
            console.print(Padding(Text(line), (0, 0, 0, 3)))
        else:
            console.print(Text(f"   {line}"), soft_wrap=True)
    for duplicate in result.duplicates:
        console.print(
            f"   [dim]also in {escape(name_of(duplicate.document))} ({escape(duplicate.knowledge_base)})[/]",
            soft_wrap=True,
        )
    console.print()


def preview_lines(text: str, query: str) -> list[str]:
    """The lines of a fragment that have the most words of the query, its first ones if they do; no blank ones."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    shown = [line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + " …" for line in lines]
    wanted = set(re.findall(r"\w+", query.casefold()))
    words = [wanted.intersection(re.findall(r"\w+", line.casefold())) for line in lines]
    found = [
        len(set().union(*words[first : first + PREVIEW_LINES]))
        for first in range(max(1, len(lines) - PREVIEW_LINES + 1))
    ]
    best = [first for first, number in enumerate(found) if number == max(found)]
    start = 0 if best[0] == 0 else best[len(best) // 2]
    end = start + PREVIEW_LINES
    return [*(["…"] if start else []), *shown[start:end], *(["…"] if end < len(lines) else [])]
