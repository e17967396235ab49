"""`kbmesh ingest`: files into a knowledge base."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import (
    MAX_DOCUMENT_BYTES,
    IngestDocument,
    IngestOutcome,
    IngestResult,
    KbmeshClient,
    KnowledgeBaseAlreadyExists,
)
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.output import counted, messages, print_json, results
from kbmesh_cli.rendering import ingest_result_to_json
from kbmesh_cli.sources import SourceFile, find_files, read_document

FAILURES_SHOWN = 50


def ingest(
    context: typer.Context,
    knowledge_base: Annotated[str, typer.Argument(metavar="KB", help="Name or id of the knowledge base.")],
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders.")],
    base: Annotated[
        Path | None, typer.Option(help="Name documents by their path below this folder. As given by default.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the knowledge base where there is none.")] = False,
    keep_going_ok: Annotated[
        bool, typer.Option("--keep-going-ok", help="Exit with 0 even where some documents failed.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Take files into a knowledge base. What is unchanged costs nothing.

    Folders are searched for files; hidden ones and folders such as node_modules are skipped unless they are named.
    Exit code 1 where a document failed, unless --keep-going-ok is given.
    """
    files = find_files(paths, base=base)
    if not files:
        messages().print(f"note: no files were found in {escape(', '.join(map(str, paths)))}", soft_wrap=True)
    began = time.monotonic()
    with invocation(context).client() as client:
        if create:
            with contextlib.suppress(KnowledgeBaseAlreadyExists):
                client.create_knowledge_base(knowledge_base)
        else:
            client.get_knowledge_base(knowledge_base)  # before any file is read
        outcome = list(with_progress(ingest_files(client, knowledge_base, files), total=len(files)))
    seconds = time.monotonic() - began
    counts = count(outcome)
    if json_output:
        print_json(
            {
                "knowledge_base": knowledge_base,
                **counts,
                "seconds": round(seconds, 3),
                "documents": [ingest_result_to_json(result) for result in outcome],
            }
        )
    else:
        _show(outcome, counts, seconds)
    if counts["failed"] and not keep_going_ok:
        raise typer.Exit(1)


def ingest_files(client: KbmeshClient, knowledge_base: str, files: Sequence[SourceFile]) -> Iterator[IngestResult]:
    """Gives a result for each file. Files are read as the mesh takes them."""
    unread: list[IngestResult] = []

    def documents() -> Iterator[IngestDocument]:
        for source in files:
            document = read_document(source, max_bytes=MAX_DOCUMENT_BYTES)
            if isinstance(document, IngestDocument):
                yield document
            else:
                unread.append(document)

    for result in client.ingest(knowledge_base, documents()):
        yield result
        while unread:
            yield unread.pop(0)
    yield from unread


def with_progress(ingested: Iterator[IngestResult], *, total: int) -> Iterator[IngestResult]:
    """Shows a bar on stderr, where that is a terminal."""
    console = messages()
    with Progress(
        TextColumn("ingesting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=total)
        for result in ingested:
            progress.update(task, advance=1, description=escape(result.external_id[-50:]))
            yield result


def count(outcome: Sequence[IngestResult]) -> dict[str, int]:
    """Sums up results: documents by outcome, chunks, embedded texts, tokens."""
    outcomes = Counter(result.outcome for result in outcome)
    return {
        "total": len(outcome),
        "new": outcomes[IngestOutcome.NEW],
        "changed": outcomes[IngestOutcome.CHANGED],
        "unchanged": outcomes[IngestOutcome.UNCHANGED],
        "failed": outcomes[IngestOutcome.FAILED],
        "chunks": sum(result.chunks for result in outcome),
        "embedded": sum(result.embedded for result in outcome),
        "tokens": sum(result.tokens for result in outcome),
        "truncated": sum(result.truncated for result in outcome),
    }


def _show(outcome: Sequence[IngestResult], counts: dict[str, int], seconds: float) -> None:
    console = results()
    failures = [result for result in outcome if result.error is not None]
    for result in failures[:FAILURES_SHOWN]:
        if result.error is not None:
            console.print(
                f"[red]failed[/] {escape(result.external_id)}: {result.error.reason}: {escape(result.error.message)}",
                soft_wrap=True,
            )
    if len(failures) > FAILURES_SHOWN:
        console.print(f"… and {len(failures) - FAILURES_SHOWN} more; --json lists them all")
    for result in outcome:
        kind = "warning" if result.error else "note"
        for warning in result.warnings:
            console.print(
                f"[yellow]{kind}[/] {escape(result.external_id)}: {warning.reason}: {escape(warning.message)}",
                soft_wrap=True,
            )
    console.print(
        f"{counted(counts['total'], 'document')}: {counts['new']:,} new, {counts['changed']:,} changed, "
        f"{counts['unchanged']:,} unchanged, {counts['failed']:,} failed",
        soft_wrap=True,
    )
    if counts["unchanged"] and not counts["embedded"]:
        console.print(f"{counts['unchanged']:,} unchanged, nothing embedded, {seconds:.1f} s", soft_wrap=True)
    else:
        console.print(
            f"{counted(counts['chunks'], 'chunk')}, {counted(counts['embedded'], 'text')} embedded, "
            f"{counted(counts['tokens'], 'token')}, "
            f"{seconds:.1f} s",
            soft_wrap=True,
        )
    if counts["truncated"]:
        console.print(f"cut off at what the model reads: {counted(counts['truncated'], 'chunk')}")
