"""`kbmesh ingest`: files into a knowledge base."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import IngestResult, KbmeshClient, KbmeshError, KnowledgeBaseAlreadyExists, ServiceUnavailable
from rich.markup import escape

from kbmesh_cli.errors import CliError, failure_of
from kbmesh_cli.ingestion import IngestChoices, Tally, ingest_files, show_tally, with_progress
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.manifest import Shard, count_manifest, read_manifest
from kbmesh_cli.output import messages, print_failure, print_json
from kbmesh_cli.pruning import check_share, folder_names, missing_documents, prune
from kbmesh_cli.rendering import ingest_result_to_json
from kbmesh_cli.sources import SourceFile, find_files
from kbmesh_cli.watching import Changes, WatchedFiles

pause = time.sleep
"""Between two looks at watched files."""

PASSING = frozenset({"DEPENDENCY_UNAVAILABLE", "DEADLINE_EXCEEDED", "QUEUE_FULL", "SHUTTING_DOWN", "MODEL_NOT_READY"})
"""Reasons for which a watched file that failed is tried again although it has not changed."""


def ingest(
    context: typer.Context,
    knowledge_base: Annotated[str, typer.Argument(metavar="KB", help="Name or id of the knowledge base.")],
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH...", help="Files and folders.")] = None,
    base: Annotated[
        Path | None, typer.Option(help="Name documents by their path below this folder. As given by default.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the knowledge base where there is none.")] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help='Take in what this file lists: JSON lines of {"external_id", "path" or "uri"}, in place of PATH.'
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Only the I-th of N parts, from 0. N alone: I is JOB_COMPLETION_INDEX of Kubernetes."
        ),
    ] = None,
    job: Annotated[
        str, typer.Option(help="Keep the results under this name; called again, what is done is left out.")
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Then take files in as they change, until Ctrl-C.")] = False,
    watch_seconds: Annotated[float, typer.Option(min=0.05, help="Pause between two looks at the files.")] = 1.0,
    prune_missing: Annotated[
        bool, typer.Option("--prune", help="Delete documents of the folders whose files are gone.")
    ] = False,
    prune_anyway: Annotated[
        bool, typer.Option("--prune-anyway", help="The same, also where it is more than a third of them.")
    ] = False,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="It is meant that little or nothing is left of documents.")
    ] = False,
    into_rebuild: Annotated[
        bool,
        typer.Option(
            "--into-rebuild", help="Into the rebuild that `kbmesh kb rebuild start` began, unseen by readers."
        ),
    ] = False,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Who may read these documents: a user or a group. May be given several times. Everybody by default.",
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="WORD", help="Tags them, to filter by. May be given several times."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=0, max=256, help="Documents at once. 0: the mesh's own choice.")] = 0,
    keep_going_ok: Annotated[
        bool, typer.Option("--keep-going-ok", help="Exit with 0 even where some documents failed.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Take files into a knowledge base. What is unchanged costs nothing.

    Folders are searched for files; hidden ones and folders such as node_modules are skipped unless they are named.
    Exit code 1 where a document failed, unless --keep-going-ok is given.
    """
    part = Shard.parse(shard) if shard is not None else None
    prunes = prune_missing or prune_anyway
    folders = _check_usage(paths or [], manifest, part, base=base, watch=watch, prunes=prunes)
    choices = IngestChoices(
        job_id=_job_of(job, part),
        allow_shrink=allow_shrink,
        into_rebuild=into_rebuild,
        principals=principal or (),
        tags=tag or (),
        concurrency=concurrency,
    )

    def find() -> list[SourceFile]:
        found = find_files(paths or [], base=base)
        return [source for source in found if part is None or part.has(source.external_id)]

    with invocation(context).client() as client:
        run = _Run(client, knowledge_base, choices, json_output=json_output)
        if manifest is not None:
            total = count_manifest(manifest, part) if messages().is_terminal else None
            run.begin(create=create)
            run.take(read_manifest(manifest, part), total=total)
            run.end()
        else:
            watched = WatchedFiles(find)
            files = watched.begin()
            if not files:
                names = escape(", ".join(map(str, paths or [])))
                messages().print(f"note: no files were found in {names}", soft_wrap=True)
            run.begin(create=create)
            run.take(files, total=len(files))
            if prunes:
                run.prune(folders, {source.external_id for source in files}, anyway=prune_anyway)
            run.end()
            if watch:
                _watch(run, watched, folders if prunes else None, anyway=prune_anyway, seconds=watch_seconds)
    if run.failed and not keep_going_ok:
        raise typer.Exit(1)


class _Run:
    """One call of the command: takes files in and tells of them, round by round."""

    def __init__(self, client: KbmeshClient, knowledge_base: str, choices: IngestChoices, *, json_output: bool) -> None:
        self._client = client
        self._knowledge_base = knowledge_base
        self._choices = choices
        self._json_output = json_output
        self.failed = False
        self._round()

    def _round(self) -> None:
        self._tally = Tally()
        self._pruned = 0
        self._began = time.monotonic()

    def begin(self, *, create: bool) -> None:
        """Makes the knowledge base, or fails where there is none, before any file is read."""
        if create:
            with contextlib.suppress(KnowledgeBaseAlreadyExists):
                self._client.create_knowledge_base(self._knowledge_base)
        else:
            self._client.get_knowledge_base(self._knowledge_base)

    def take(self, files: Iterable[SourceFile | IngestResult], *, total: int | None) -> dict[str, str]:
        """Takes files in. Gives the reasons of those that failed, by name."""
        reasons = {}
        ingested = ingest_files(self._client, self._knowledge_base, files, self._choices)
        for result in with_progress(ingested, total=total):
            self._tally.add(result)
            if result.error is not None:
                reasons[result.external_id] = result.error.reason
            if self._json_output:
                print_json(ingest_result_to_json(result))
        return reasons

    def prune(self, folders: Sequence[str], found: set[str], *, anyway: bool) -> None:
        """Deletes documents whose files are gone. Where that is refused, the rest of the round is told of first."""
        missing, below = missing_documents(self._client, self._knowledge_base, folders, found)
        try:
            check_share(len(missing), below, anyway=anyway)
        except CliError:
            self.end()
            raise
        self._pruned += prune(self._client, self._knowledge_base, missing)

    def end(self) -> None:
        """Tells of the round."""
        seconds = time.monotonic() - self._began
        self.failed = self.failed or self._tally.failed > 0
        if self._json_output:
            print_json(
                {
                    "knowledge_base": self._knowledge_base,
                    **self._tally.counts(),
                    "pruned": self._pruned,
                    "seconds": round(seconds, 3),
                    "failures": [
                        {"external_id": result.external_id, "reason": result.error.reason}
                        for result in self._tally.failures
                        if result.error is not None
                    ],
                }
            )
        else:
            show_tally(self._tally, seconds, pruned=self._pruned)
        self._round()

    def tell(self, error: KbmeshError | CliError) -> None:
        """Tells of an error that ends no watch."""
        print_failure(failure_of(error), as_json=self._json_output)


def _watch(run: _Run, watched: WatchedFiles, folders: Sequence[str] | None, *, anyway: bool, seconds: float) -> None:
    """Takes files in as they change, until Ctrl-C. A mesh that is away is waited for; nothing that changes is missed
    meanwhile. `folders`: of which documents are deleted whose files are gone."""
    messages().print("watching; Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            pause(seconds)
            try:
                changes = watched.look()
                if not changes.files and not (changes.gone and folders is not None):
                    continue
                _take_changes(run, watched, changes, folders, anyway=anyway)
            except ServiceUnavailable as error:
                run.tell(error)
                pause(min(10 * seconds, 10.0))
            except (KbmeshError, CliError) as error:
                run.tell(error)
            except OSError as error:
                run.tell(CliError("FILE_NOT_FOUND", f"the files cannot be looked at: {error.strerror or error}"))


def _take_changes(
    run: _Run, watched: WatchedFiles, changes: Changes, folders: Sequence[str] | None, *, anyway: bool
) -> None:
    reasons = run.take(changes.files, total=len(changes.files)) if changes.files else {}
    watched.taken(changes)
    for external_id, reason in reasons.items():
        if reason in PASSING:
            watched.again(external_id)
    if folders is not None and changes.gone:
        run.prune(folders, watched.names(), anyway=anyway)
    run.end()


def _check_usage(
    paths: Sequence[Path], manifest: Path | None, part: Shard | None, *, base: Path | None, watch: bool, prunes: bool
) -> list[str]:
    """Raises CliError for what does not go together. Gives the folders to prune."""
    if (manifest is None) != bool(paths):
        raise CliError("USAGE", "either PATH... or --manifest says what to take in")
    if manifest is not None and (watch or prunes or base is not None):
        raise CliError("USAGE", "--watch, --prune and --base are for folders; a manifest names its documents itself")
    if part is not None and prunes:
        raise CliError("USAGE", "--prune needs all files, and --shard takes a part of them")
    return folder_names(paths, base=base) if prunes else []


def _job_of(job: str, part: Shard | None) -> str:
    """Each part of a list has a job of its own, so that none has more results than are kept."""
    return job if not job or part is None else f"{job}:{part.index}-of-{part.count}"
