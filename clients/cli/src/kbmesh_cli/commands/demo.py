"""`kbmesh demo`: a mesh, some documents, five questions."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import KbmeshClient, KnowledgeBaseAlreadyExists, Retrieval
from rich.console import Console
from rich.markup import escape

from kbmesh_cli.commands.search import show_answer
from kbmesh_cli.errors import CliError
from kbmesh_cli.ingestion import ingest_files, tally_of
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.mesh import DEFAULT_MODEL
from kbmesh_cli.models import ensure_model
from kbmesh_cli.output import counted, messages, print_json, results
from kbmesh_cli.private_mesh import private_mesh
from kbmesh_cli.rendering import retrieval_to_json
from kbmesh_cli.sources import find_files

KNOWLEDGE_BASES: Mapping[str, str] = {
    "handbook": "Runbooks, policies and code of the platform team",
    "conversations": "Mails and Slack threads of the platform team",
}
"""Description of each knowledge base. Its documents are in the folder of its name."""

QUESTIONS = (
    "How do I roll back a bad release of the checkout service?",
    "Who may restore a customer backup?",
    "Why did the payment webhooks arrive twice?",
    "How many connections did the order database have open at the peak?",
    "Why are the search pods slower on the ARM nodes?",
)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with its answer."""

    question: str
    answer: Retrieval


def demo(
    context: typer.Context,
    documents: Annotated[
        Path | None, typer.Option(help="Folder of the example documents. The repository's by default.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Start a mesh on free ports, take in the example documents, ask five questions, and stop.

    Everything but the model lives in a temporary folder, unless --home names one.
    """
    options = invocation(context)
    console = messages() if json_output else results()
    folder = _examples(documents)
    began = time.monotonic()
    ensure_model(DEFAULT_MODEL, options.models_folder)
    console.print("[bold]1. Starting a mesh: edge, chunker, embedder, reranker, retriever[/]")
    with contextlib.ExitStack() as stack:
        mesh = stack.enter_context(
            private_mesh(
                models_folder=options.models_folder,
                home=options.home if options.home_named else None,
                show_progress=False,
            )
        )
        client = stack.enter_context(options.client_at(mesh.endpoint or "", private=True))
        console.print(f"   ready at {mesh.endpoint}")
        console.print(f"[bold]2. Taking in {escape(str(folder))}[/]")
        counts = {name: _fill(client, name, folder, console) for name in KNOWLEDGE_BASES}
        console.print("[bold]3. Asking five questions[/]")
        answered = []
        for question in QUESTIONS:
            answer = client.retrieve(question, list(KNOWLEDGE_BASES), top_k=2)
            answered.append(Answered(question=question, answer=answer))
            if not json_output:
                console.print(f"\n[bold cyan]{escape(question)}[/]")
                show_answer(answer, console)
        console.print("[bold]4. Stopping[/]")
    seconds = time.monotonic() - began
    console.print(f"done after {seconds:.1f} s; `kbmesh up` starts a mesh that stays")
    if json_output:
        print_json(
            {
                "seconds": round(seconds, 2),
                "knowledge_bases": counts,
                "answers": [{"question": each.question, **retrieval_to_json(each.answer)} for each in answered],
            }
        )


def _fill(client: KbmeshClient, name: str, folder: Path, console: Console) -> dict[str, int]:
    with contextlib.suppress(KnowledgeBaseAlreadyExists):
        client.create_knowledge_base(name, description=KNOWLEDGE_BASES[name])
    files = find_files([folder / name], base=folder)
    outcome = list(ingest_files(client, name, files))
    for result in outcome:
        if result.error is not None:
            raise CliError(result.error.reason, f"{result.external_id}: {result.error.message}")
    counts = tally_of(outcome).counts()
    console.print(
        f"   {name}: {counted(counts['total'], 'document')}, {counted(counts['chunks'], 'chunk')}, "
        f"{counted(counts['tokens'], 'token')} embedded"
    )
    return counts


def _examples(named: Path | None) -> Path:
    # Below the working directory, or in the checkout that this file is installed from.
    places = [named] if named else [Path("examples"), *(parent / "examples" for parent in Path(__file__).parents)]
    for place in places:
        folder = place / "documents" if (place / "documents").is_dir() else place
        if all((folder / name).is_dir() for name in KNOWLEDGE_BASES):
            return folder
    if named is None:
        raise CliError(
            "FILE_NOT_FOUND",
            "the example documents were not found",
            hint="run it in a checkout of kbmesh, or name the folder with --documents",
        )
    missing = ", ".join(name for name in KNOWLEDGE_BASES if not (named / name).is_dir())
    raise CliError(
        "FILE_NOT_FOUND",
        f"{named} has no folder {missing}" if named.is_dir() else f"there is no folder {named}",
        hint=f"the demo takes in the folders {' and '.join(KNOWLEDGE_BASES)}, as in examples/documents",
    )
