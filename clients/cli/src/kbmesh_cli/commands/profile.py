"""`kbmesh profile`: how an agent asks, under one name."""

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from kbmesh_client import KbmeshClient, KnowledgeBaseSelector, RetrievalOptions
from rich.markup import escape
from rich.table import Column, Table

from kbmesh_cli.errors import CliError
from kbmesh_cli.filters import parse_filter
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.output import print_json, results
from kbmesh_cli.profile_files import ProfileFile, profile_to_json, read_profile
from kbmesh_cli.retrieval_flags import RetrievalChoice, parse_thresholds

app = typer.Typer(
    help="Create, list, show, update and delete retrieval profiles: how an agent asks, for `kbmesh search --profile`.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(help="Name of the profile.")]
DescriptionOption = Annotated[str | None, typer.Option(help="For people.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="JSON or YAML with description, knowledge_bases and options, as `kbmesh profile show --json` prints them. "
        "Flags win over it.",
    ),
]
KbOption = Annotated[
    list[str] | None, typer.Option("--kb", help="Knowledge base to search. May be given several times.")
]
StrategyOption = Annotated[RetrievalChoice | None, typer.Option(help="How to look.", case_sensitive=False)]
TopKOption = Annotated[int | None, typer.Option(min=1, max=100, help="Results to return.")]
RerankOption = Annotated[int | None, typer.Option(min=1, max=200, help="Candidates to rerank.")]
FilterOption = Annotated[
    list[str] | None, typer.Option("--filter", metavar="FIELD=VALUE", help="As of `kbmesh search`.")
]
ContextOption = Annotated[int | None, typer.Option(min=0, max=100_000, help="Size of the context block in tokens.")]
ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="STAGE=MIN",
        help="Drops what scores below at vector, keyword, fused, rerank_probability or final.",
    ),
]


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='Letters, digits, "-", "_" and "."; at most 63.')],
    description: DescriptionOption = None,
    file: FileOption = None,
    kb: KbOption = None,
    strategy: StrategyOption = None,
    top_k: TopKOption = None,
    rerank_top_n: RerankOption = None,
    filter_: FilterOption = None,
    context_tokens: ContextOption = None,
    threshold: ThresholdOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a profile, from flags, a file or both. Its knowledge bases need not exist yet."""
    said = read_profile(file) if file is not None else _nothing()
    flags = _flags(strategy, top_k, rerank_top_n, filter_, context_tokens, threshold)
    with invocation(context).client() as client:
        made = client.create_profile(
            name,
            kb or said.knowledge_bases,
            description=said.description or "" if description is None else description,
            **cast(RetrievalOptions, {**said.options, **flags}),
        )
    if json_output:
        print_json(profile_to_json(made))
    else:
        results().print(f"created {escape(made.name)}; `kbmesh search --profile {escape(made.name)}` asks by it")


@app.command("list")
def list_command(context: typer.Context, json_output: JsonOption = False) -> None:
    """List all profiles."""
    with invocation(context).client() as client:
        found = list(client.list_profiles())
    if json_output:
        print_json({"profiles": [profile_to_json(each) for each in found]})
        return
    if not found:
        results().print("no profiles yet; `kbmesh profile create NAME` makes one")
        return
    table = Table(Column("name", overflow="fold"), "knowledge bases", "options", "updated", "description")
    for each in found:
        table.add_row(
            escape(each.name),
            escape(", ".join(one.knowledge_base for one in each.knowledge_bases)),
            escape(", ".join(each.options)),
            f"{each.updated_at:%Y-%m-%d %H:%M}" if each.updated_at else "",
            escape(each.description),
        )
    results().print(table)


@app.command()
def show(context: typer.Context, name: NameArgument, json_output: JsonOption = False) -> None:
    """Show a profile."""
    with invocation(context).client() as client:
        found = profile_to_json(client.get_profile(name))
    if json_output:
        print_json(found)
        return
    for field, value in found.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        results().print(f"[bold]{field}[/]: {escape(shown)}", soft_wrap=True)


@app.command()
def update(
    context: typer.Context,
    name: NameArgument,
    description: DescriptionOption = None,
    file: FileOption = None,
    kb: KbOption = None,
    strategy: StrategyOption = None,
    top_k: TopKOption = None,
    rerank_top_n: RerankOption = None,
    filter_: FilterOption = None,
    context_tokens: ContextOption = None,
    threshold: ThresholdOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change what is given; the rest stays. A file takes the place of all knowledge bases and options there were."""
    flags = _flags(strategy, top_k, rerank_top_n, filter_, context_tokens, threshold)
    if description is None and file is None and not kb and not flags:
        raise CliError("USAGE", "nothing to change", hint="give --description, --file or what the profile is to say")
    with invocation(context).client() as client:
        said = read_profile(file) if file is not None else _kept(client, name)
        updated = client.update_profile(
            name,
            kb or said.knowledge_bases,
            description=said.description if description is None else description,
            **cast(RetrievalOptions, {**said.options, **flags}),
        )
    if json_output:
        print_json(profile_to_json(updated))
    else:
        results().print(f"updated {escape(updated.name)}")


@app.command()
def delete(context: typer.Context, name: NameArgument, json_output: JsonOption = False) -> None:
    """Delete a profile. Knowledge bases stay as they are."""
    with invocation(context).client() as client:
        client.delete_profile(name)
    if json_output:
        print_json({"deleted": name})
    else:
        results().print(f"deleted {escape(name)}")


def _nothing() -> ProfileFile:
    return ProfileFile(description=None, knowledge_bases=(), options={})


def _kept(client: KbmeshClient, name: str) -> ProfileFile:
    kept = client.get_profile(name)
    selectors: tuple[KnowledgeBaseSelector, ...] = kept.knowledge_bases
    return ProfileFile(description=None, knowledge_bases=selectors, options=kept.options)


def _flags(
    strategy: RetrievalChoice | None,
    top_k: int | None,
    rerank_top_n: int | None,
    filter_: list[str] | None,
    context_tokens: int | None,
    threshold: list[str] | None,
) -> dict[str, Any]:
    """Those that were given, as options."""
    options: dict[str, Any] = {
        "strategy": strategy.value if strategy is not None else None,
        "top_k": top_k,
        "rerank_top_n": rerank_top_n,
        "filter": parse_filter(filter_ or []),
        "context_budget_tokens": context_tokens,
        "thresholds": parse_thresholds(threshold or []),
    }
    return {name: value for name, value in options.items() if value is not None}
