"""`kbmesh kb`: knowledge bases."""

from enum import StrEnum
from typing import Annotated

import typer
from kbmesh_client import ChunkingConfig, KnowledgeBase
from rich.markup import escape
from rich.table import Column, Table

from kbmesh_cli.errors import CliError
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.output import counted, messages, print_json, results
from kbmesh_cli.rendering import document_to_json, knowledge_base_to_json
from kbmesh_cli.strategy_options import names as option_names
from kbmesh_cli.strategy_options import parse_options

app = typer.Typer(help="Create, list, show, update, rebuild and delete knowledge bases.", no_args_is_help=True)
rebuild_app = typer.Typer(
    help="Change the model or the chunking of a knowledge base that is in use: begin, send every document again with "
    "`kbmesh ingest --into-rebuild`, and finish.",
    no_args_is_help=True,
)
app.add_typer(rebuild_app, name="rebuild")


class StrategyChoice(StrEnum):
    """Chunking strategies by their names on the command line."""

    AUTO = "auto"
    FIXED = "fixed"
    SEMANTIC = "semantic"
    DOCUMENT = "document"
    EMAIL = "email"
    SLACK = "slack"
    CODE = "code"
    SIMILARITY = "similarity"
    PROPOSITION = "proposition"


class UnitChoice(StrEnum):
    """Units of chunk sizes by their names on the command line."""

    CHARACTERS = "characters"
    TOKENS = "tokens"


class PlacementChoice(StrEnum):
    """Placements by their names on the command line."""

    DEDICATED = "dedicated"
    SHARED = "shared"


class DistanceChoice(StrEnum):
    """Ways to compare vectors by their names on the command line."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"
    DOT = "dot"


NameArgument = Annotated[str, typer.Argument(help="Name or id of the knowledge base.")]
StrategyOption = Annotated[
    StrategyChoice,
    typer.Option(
        help="The way documents are cut. proposition needs a language model (docs/chunking.md).", case_sensitive=False
    ),
]
OptionOption = Annotated[
    list[str],
    typer.Option(
        "--option",
        metavar="STRATEGY.NAME=VALUE",
        help="An option of a strategy, such as email.exclude_quotes=true. May be given again for the same strategy. "
        f"There are {', '.join(option_names())}.",
    ),
]
SizeOption = Annotated[int | None, typer.Option(min=1, help="Size a chunk should have at most. 1500 by default.")]
OverlapOption = Annotated[
    int | None, typer.Option(min=0, help="How much of a chunk's end the next one repeats. 150 by default.")
]
MinimumOption = Annotated[
    int | None, typer.Option(min=0, help="A smaller piece is merged with its neighbour. 500 by default.")
]
ReaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reader",
        metavar="PRINCIPAL",
        help="Who may search it: a user or a group. May be given several times. Everybody when left out.",
    ),
]
UnitOption = Annotated[UnitChoice, typer.Option(help="What the sizes count.", case_sensitive=False)]


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='Letters, digits, "-", "_" and "."; at most 63.')],
    description: Annotated[str, typer.Option(help="For people.")] = "",
    model: Annotated[str, typer.Option(help="Embedding model. The mesh's default when left out.")] = "",
    strategy: StrategyOption = StrategyChoice.AUTO,
    size: SizeOption = None,
    overlap: OverlapOption = None,
    minimum: MinimumOption = None,
    unit: UnitOption = UnitChoice.CHARACTERS,
    option: OptionOption = [],  # noqa: B006 - typer reads it and nobody writes it
    placement: Annotated[
        PlacementChoice, typer.Option(help="A collection of its own, or one shared with others.", case_sensitive=False)
    ] = PlacementChoice.DEDICATED,
    distance: Annotated[
        DistanceChoice, typer.Option(help="How vectors are compared. Fixed from then on.", case_sensitive=False)
    ] = DistanceChoice.COSINE,
    reader: ReaderOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a knowledge base. To change model or chunking afterwards, `kbmesh kb rebuild`."""
    chunking = ChunkingConfig(
        strategy=strategy.value,
        size=size,
        overlap=overlap,
        minimum=minimum,
        unit=unit.value,
        options=parse_options(option),
    )
    with invocation(context).client() as client:
        created = client.create_knowledge_base(
            name,
            description=description,
            chunking=chunking,
            embedding_model=model,
            placement=placement.value,
            readers=reader or (),
            distance=distance.value,
        )
    if json_output:
        print_json(knowledge_base_to_json(created))
    else:
        results().print(f"created {escape(created.name)} ({created.id}), model {escape(created.embedding_model)}")


@app.command("list")
def list_command(context: typer.Context, json_output: JsonOption = False) -> None:
    """List all knowledge bases."""
    with invocation(context).client() as client:
        found = list(client.list_knowledge_bases())
    if json_output:
        print_json({"knowledge_bases": [knowledge_base_to_json(each) for each in found]})
        return
    if not found:
        results().print("no knowledge bases yet; `kbmesh kb create NAME` makes one")
        return
    table = Table(Column("name", overflow="fold"), "documents", "chunks", "model", "updated", "description")
    for each in found:
        table.add_row(
            escape(each.name),
            f"{each.document_count:,}",
            f"{each.chunk_count:,}",
            escape(each.embedding_model),
            f"{each.updated_at:%Y-%m-%d %H:%M}" if each.updated_at else "",
            escape(each.description),
        )
    results().print(table)


@app.command()
def show(
    context: typer.Context,
    name: NameArgument,
    documents: Annotated[bool, typer.Option("--documents", help="List its documents as well.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show a knowledge base."""
    with invocation(context).client() as client:
        found = client.get_knowledge_base(name)
        listed = list(client.list_documents(name)) if documents else None
    if json_output:
        shown = knowledge_base_to_json(found)
        if listed is not None:
            shown["documents"] = [document_to_json(document) for document in listed]
        print_json(shown)
        return
    _print_fields(found)
    if listed is not None:
        table = Table(Column("external id", overflow="fold"), "title", "kind", "chunks", "ingested")
        for document in listed:
            table.add_row(
                escape(document.external_id),
                escape(document.title),
                document.source_type.lower(),
                str(document.chunk_count),
                f"{document.ingested_at:%Y-%m-%d %H:%M}" if document.ingested_at else "",
            )
        results().print(table)


@app.command()
def update(
    context: typer.Context,
    name: NameArgument,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    reader: Annotated[
        list[str] | None,
        typer.Option(
            "--reader",
            metavar="PRINCIPAL",
            help="Who may search it from now on, in place of who might: a user or a group. May be given several times.",
        ),
    ] = None,
    everybody: Annotated[bool, typer.Option("--everybody", help="Everybody of the tenant may search it.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Change who may search a knowledge base, or its description."""
    if reader and everybody:
        raise CliError("USAGE", "--reader names who may search it, and --everybody lets all; give one of them")
    if description is None and not reader and not everybody:
        raise CliError("USAGE", "nothing to change: give --description, --reader or --everybody")
    with invocation(context).client() as client:
        updated = client.update_knowledge_base(
            name, description=description, readers=reader or (() if everybody else None)
        )
    if json_output:
        print_json(knowledge_base_to_json(updated))
    else:
        who = ", ".join(updated.readers) or "everybody of the tenant"
        results().print(f"updated {escape(updated.name)}; it may be searched by {escape(who)}", soft_wrap=True)


@app.command()
def delete(
    context: typer.Context,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Delete a knowledge base with all its documents."""
    with invocation(context).client() as client:
        found = client.get_knowledge_base(name)
        if not yes:
            if json_output:
                raise CliError("CONFIRMATION_NEEDED", "with --json nobody is asked", hint="add --yes")
            messages().print(
                f"delete {escape(found.name)} with {counted(found.document_count, 'document')}? \\[y/N] ", end=""
            )
            try:
                answer = input()
            except EOFError:
                messages().print()  # the question's line is still open
                answer = ""
            if answer.strip().lower() not in ("y", "yes"):
                raise CliError("CONFIRMATION_NEEDED", "nothing was deleted", hint="add --yes to be not asked")
        # Deletion touches every document's row; a large knowledge base takes longer than a question.
        deleted = client.delete_knowledge_base(name, timeout_seconds=120)
    if json_output:
        print_json({"deleted": found.name, "documents_deleted": deleted})
    else:
        results().print(f"deleted {escape(found.name)} with {counted(deleted, 'document')}")


@rebuild_app.command("start")
def rebuild_start(
    context: typer.Context,
    name: NameArgument,
    model: Annotated[str, typer.Option(help="Embedding model. What it is when left out.")] = "",
    strategy: Annotated[
        StrategyChoice | None, typer.Option(help="The way documents are cut.", case_sensitive=False)
    ] = None,
    size: SizeOption = None,
    overlap: OverlapOption = None,
    minimum: MinimumOption = None,
    unit: Annotated[UnitChoice | None, typer.Option(help="What the sizes count.", case_sensitive=False)] = None,
    option: OptionOption = [],  # noqa: B006 - typer reads it and nobody writes it
    placement: Annotated[
        PlacementChoice | None,
        typer.Option(help="A collection of its own, or one shared with others.", case_sensitive=False),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Begin a rebuild. Chunking stays as it is, or becomes what is said and the defaults of what is not."""
    said = strategy or unit or option or any(value is not None for value in (size, overlap, minimum))
    chunking = ChunkingConfig(
        strategy=(strategy or StrategyChoice.AUTO).value,
        size=size,
        overlap=overlap,
        minimum=minimum,
        unit=(unit or UnitChoice.CHARACTERS).value,
        options=parse_options(option),
    )
    with invocation(context).client() as client:
        begun = client.rebuild_knowledge_base(
            name,
            chunking=chunking if said else None,
            embedding_model=model,
            placement=None if placement is None else placement.value,
        )
    if json_output:
        print_json(knowledge_base_to_json(begun))
        return
    done = f"{begun.rebuild.documents_done:,} of {begun.rebuild.documents_total:,}" if begun.rebuild else "none"
    results().print(f"rebuilding {escape(begun.name)}: {done} documents are there")


@rebuild_app.command("finish")
def rebuild_finish(
    context: typer.Context,
    name: NameArgument,
    drop_outstanding: Annotated[
        bool, typer.Option("--drop-outstanding", help="Drop documents that were not sent again.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Put the rebuild in the knowledge base's place, at once for every reader."""
    with invocation(context).client() as client:
        now, dropped = client.finish_rebuild(name, drop_outstanding=drop_outstanding, timeout_seconds=120)
    if json_output:
        print_json({"knowledge_base": knowledge_base_to_json(now), "documents_dropped": dropped})
    else:
        results().print(
            f"rebuilt {escape(now.name)} with {counted(now.document_count, 'document')}, {dropped:,} dropped"
        )


@rebuild_app.command("cancel")
def rebuild_cancel(context: typer.Context, name: NameArgument, json_output: JsonOption = False) -> None:
    """Give a rebuild up; readers notice nothing."""
    with invocation(context).client() as client:
        client.cancel_rebuild(name)
    if json_output:
        print_json({"cancelled": name})
    else:
        results().print(f"gave the rebuild of {escape(name)} up")


def _print_fields(found: KnowledgeBase) -> None:
    table = Table(Column(no_wrap=True), Column(overflow="fold"), show_header=False, box=None)
    for field, value in knowledge_base_to_json(found).items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {part}" for key, part in value.items() if part not in (None, "", False))
        if field == "readers" and isinstance(value, list):
            value = ", ".join(value) or "everybody of the tenant"
        if value is None:
            value = "none"
        table.add_row(field.replace("_", " "), escape(str(value)))
    results().print(table)
