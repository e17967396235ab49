"""`kbmesh chunk`: how a file would be cut."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import ChunkingConfig, IngestDocument, KbmeshClient
from rich.markup import escape
from rich.text import Text

from kbmesh_cli.commands.kb import (
    MinimumOption,
    OptionOption,
    OverlapOption,
    SizeOption,
    StrategyChoice,
    StrategyOption,
    UnitChoice,
    UnitOption,
)
from kbmesh_cli.errors import CliError
from kbmesh_cli.invocation import Invocation, JsonOption, invocation
from kbmesh_cli.mesh import DEFAULT_MODEL
from kbmesh_cli.output import counted, print_json, print_rule, results
from kbmesh_cli.private_mesh import private_mesh
from kbmesh_cli.rendering import chunk_to_json
from kbmesh_cli.strategy_options import parse_options


def chunk(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help='The file; "-" for stdin.')],
    strategy: StrategyOption = StrategyChoice.AUTO,
    size: SizeOption = None,
    overlap: OverlapOption = None,
    minimum: MinimumOption = None,
    unit: UnitOption = UnitChoice.CHARACTERS,
    option: OptionOption = [],  # noqa: B006 - typer reads it and nobody writes it
    model: Annotated[
        str,
        typer.Option(
            help="Embedding model whose token limit no chunk may exceed. When left out, no token limit is applied; "
            "`kbmesh ingest` always applies that of the knowledge base's model."
        ),
    ] = "",
    chunker: Annotated[
        str | None,
        typer.Option(
            help="host:port of a chunker. The running mesh's, else one started for this call.",
            envvar="KBMESH_CHUNKER_ENDPOINT",
        ),
    ] = None,
    media_type: Annotated[str, typer.Option(help="MIME type. Found from name and content when left out.")] = "",
    json_output: JsonOption = False,
) -> None:
    """Show how a file would be cut. Keeps nothing; needs no running mesh."""
    document = _read(file, media_type)
    config = ChunkingConfig(
        strategy=strategy.value,
        size=size,
        overlap=overlap,
        minimum=minimum,
        unit=unit.value,
        embedding_model=model,
        options=parse_options(option),
    )
    needs_embedder = bool(model) or strategy is StrategyChoice.SIMILARITY or unit is UnitChoice.TOKENS
    with _client(invocation(context), chunker, needs_embedder=needs_embedder, model=model) as client:
        chunked = client.chunk(document, config, timeout_seconds=300)
    if json_output:
        for each in chunked.chunks:
            print_json(chunk_to_json(each))
        return
    console = results()
    chosen = f" ({chunked.strategy_reason})" if chunked.strategy_reason else ""
    console.print(
        f"[bold]{counted(len(chunked.chunks), 'chunk')}[/] of {chunked.text_characters:,} characters, "
        f"{chunked.strategy.value.lower()}{escape(chosen)}, {escape(chunked.media_type)}",
        soft_wrap=True,
    )
    if not model:
        console.print(
            "[dim]no token limit is applied without --model; `kbmesh ingest` applies that of the knowledge base's "
            "model, and may cut smaller[/]",
            soft_wrap=True,
        )
    for warning in chunked.warnings:
        console.print(f"[yellow]note[/] {warning.reason}: {escape(warning.message)}", soft_wrap=True)
    for each in chunked.chunks:
        place = f" · {' › '.join(filter(None, each.heading_path))}" if any(each.heading_path) else ""
        place += f" · {'pages' if len(each.pages) > 1 else 'page'} {_range(each.pages)}" if each.pages else ""
        tokens = f" · {counted(each.token_count, 'token')}" if each.token_count is not None else ""
        print_rule(
            console, f"{each.index} {escape(each.type)} \\[{each.span.start}:{each.span.end}]{escape(place)}{tokens}"
        )
        if each.context:
            console.print(Text(each.context, style="dim"), soft_wrap=True)
        if each.embedded_text is not None:
            console.print(Text(f"embedded: {each.embedded_text}", style="dim"), soft_wrap=True)
        console.print(Text(each.text), soft_wrap=True)


def _range(pages: Sequence[int]) -> str:
    return str(pages[0]) if len(pages) == 1 else f"{pages[0]}–{pages[-1]}"


def _read(file: str, media_type: str) -> IngestDocument:
    if file == "-":
        return IngestDocument(external_id="-", content=sys.stdin.buffer.read(), media_type=media_type)
    path = Path(file)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise CliError(
            "FILE_NOT_FOUND", f"there is no file {file}", hint='paths are relative to where you are; "-" is stdin'
        ) from error
    except IsADirectoryError as error:
        raise CliError(
            "USAGE", f"{file} is a folder, and this cuts one file", hint="`kbmesh ingest NAME FOLDER` takes a folder in"
        ) from error
    except OSError as error:
        raise CliError("DOCUMENT_UNREADABLE", f"{file} cannot be read: {error.strerror}") from error
    return IngestDocument(external_id=file, content=content, filename=path.name, media_type=media_type)


@contextlib.contextmanager
def _client(options: Invocation, chunker: str | None, *, needs_embedder: bool, model: str) -> Iterator[KbmeshClient]:
    mesh = options.running_mesh()
    endpoint = chunker or (mesh.endpoint_of("chunker") if mesh else None)
    with contextlib.ExitStack() as stack:
        alone = endpoint is None
        if endpoint is None:
            private = stack.enter_context(
                private_mesh(
                    models_folder=options.models_folder,
                    model=model or DEFAULT_MODEL,
                    services=("chunker", "embedder") if needs_embedder else ("chunker",),
                    show_progress=False,
                )
            )
            endpoint = private.endpoint_of("chunker")
        yield stack.enter_context(options.client_at(endpoint or "", chunker_endpoint=endpoint, private=alone))
