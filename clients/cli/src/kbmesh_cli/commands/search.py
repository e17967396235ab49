"""`kbmesh search`: a question and its answers."""

from enum import StrEnum
from typing import Annotated

import typer
from kbmesh_client import Condition, Filter, KnowledgeBaseStatus, Retrieval, RetrieveResult
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kbmesh_cli.errors import CliError
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.output import print_json, results
from kbmesh_cli.rendering import retrieval_to_json

PREVIEW_CHARACTERS = 400
SHOWN_ANYWAY = frozenset({"Section", "Page", "Pages"})
"""Display fields that repeat a result's heading path and pages."""


class RetrievalChoice(StrEnum):
    """Retrieval strategies by their names on the command line."""

    VECTOR_ONLY = "vector_only"
    HYBRID = "hybrid"
    HYBRID_RERANK = "hybrid_rerank"
    ADVANCED = "advanced"


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The question.")],
    kb: Annotated[list[str], typer.Option("--kb", help="Knowledge base to search. May be given several times.")],
    strategy: Annotated[
        RetrievalChoice, typer.Option(help="How to look.", case_sensitive=False)
    ] = RetrievalChoice.HYBRID_RERANK,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Results to return.")] = 5,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FIELD=VALUE",
            help="Keep only documents whose field has this value, such as source_type=slack or metadata.team=ops. "
            "Several values of one field widen, several fields narrow.",
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each stage saw.")] = False,
    context_block: Annotated[
        bool, typer.Option("--context", help="Show the context block, ready to paste into a prompt.")
    ] = False,
    context_tokens: Annotated[
        int | None, typer.Option(min=0, max=100_000, help="Size of the context block in tokens. 2000 by default.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Ask a question of one or more knowledge bases."""
    with invocation(context).client() as client:
        answer = client.retrieve(
            query,
            kb,
            strategy=strategy.value,
            top_k=top_k,
            filter=parse_filter(filter_ or []),
            context_budget_tokens=context_tokens,
            explain=explain,
        )
    if json_output:
        print_json(retrieval_to_json(answer))
    else:
        show_answer(answer, results(), explain=explain, context_block=context_block)


def parse_filter(conditions: list[str]) -> Filter | None:
    """Reads FIELD=VALUE pairs: values of one field are alternatives, fields must all hold. Raises CliError."""
    values: dict[str, list[str]] = {}
    for condition in conditions:
        field, separator, value = condition.partition("=")
        if not separator or not field.strip() or not value:
            raise CliError("USAGE", f"--filter needs FIELD=VALUE, not {condition!r}", hint="such as source_type=slack")
        values.setdefault(field.strip(), []).append(value)
    if not values:
        return None
    return Filter(all=[Condition(field=field, any_of=wanted) for field, wanted in values.items()])


def show_answer(answer: Retrieval, console: Console, *, explain: bool = False, context_block: bool = False) -> None:
    """Prints an answer for people."""
    for result in answer.results:
        show_result(result, console)
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
    searched = ", ".join(f"{report.knowledge_base} {report.hits}" for report in answer.knowledge_bases)
    console.print(
        f"[dim]{answer.strategy.value.lower()}, {answer.timings.get('total', 0.0):.0f} ms, hits: {escape(searched)}[/]",
        soft_wrap=True,
    )
    if context_block and answer.context is not None:
        console.rule("context")
        console.print(Text(answer.context.text), soft_wrap=True)
        console.rule(f"{answer.context.tokens} tokens{' (estimated)' if answer.context.estimated else ''}")
    if explain:
        _show_explanation(answer, console)


def show_result(result: RetrieveResult, console: Console) -> None:
    """Prints one result as a card: where it is from, how it scored, what it says."""
    title = result.document.title or result.document.external_id
    citation = f" [cyan]\\[{result.citation}][/]" if result.citation else ""
    console.print(f"[bold]{result.rank}. {escape(title)}[/]{citation}  [dim]{result.score:.3f}[/]", soft_wrap=True)
    place = [" › ".join(result.heading_path)] if result.heading_path else []
    if result.pages:
        place.append("page " + ", ".join(map(str, result.pages)))
    place += [f"{field.label} {field.value}" for field in result.display if field.label not in SHOWN_ANYWAY]
    where = [result.knowledge_base, *place, result.document.uri or result.document.external_id]
    console.print(f"   [dim]{escape(' · '.join(part for part in where if part))}[/]", soft_wrap=True)
    preview = " ".join(result.text.split())
    if len(preview) > PREVIEW_CHARACTERS:
        preview = preview[:PREVIEW_CHARACTERS].rsplit(" ", 1)[0] + " …"
    console.print(Padding(Text(preview), (0, 0, 0, 3)))
    for duplicate in result.duplicates:
        console.print(
            f"   [dim]also in {escape(duplicate.document.title)} ({escape(duplicate.knowledge_base)})[/]",
            soft_wrap=True,
        )
    console.print()


def _show_explanation(answer: Retrieval, console: Console) -> None:
    for trace in answer.explanation:
        title = f"{trace.stage.value.lower()} {escape(trace.label)}".strip() + f" ({trace.milliseconds:.1f} ms)"
        if not trace.candidates:
            console.print(f"[italic]{title}[/]")
            continue
        table = Table("rank", "score", "knowledge base", "chunk", "dropped", title=title, title_justify="left")
        for candidate in trace.candidates:
            table.add_row(
                str(candidate.rank),
                f"{candidate.score:.4f}",
                escape(candidate.knowledge_base),
                candidate.chunk_id[:8],
                escape(candidate.dropped),
            )
        console.print(table)
