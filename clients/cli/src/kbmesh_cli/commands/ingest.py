"""`kbmesh ingest`: files into a knowledge base."""

import contextlib
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import (
    RECONNECT_SECONDS,
    IngestOutcome,
    IngestResult,
    KbmeshClient,
    KbmeshError,
    KnowledgeBaseAlreadyExists,
)
from rich.markup import escape

from kbmesh_cli.errors import CliError, failure_of
from kbmesh_cli.ingestion import (
    FAILURES_SHOWN,
    SKIPPED_SHOWN,
    IngestChoices,
    Tally,
    ingest_files,
    show_skipped,
    show_tally,
    with_progress,
)
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.manifest import Shard, count_manifest, read_manifest
from kbmesh_cli.output import counted, messages, print_failure, print_json, results
from kbmesh_cli.pruning import PrunedFolder, check_share, missing_documents, prune, pruned_folders
from kbmesh_cli.rendering import ingest_result_to_json
from kbmesh_cli.sources import SkippedPath, SourceFile, find_files
from kbmesh_cli.watching import Changes, Waits, WatchedFiles

pause = time.sleep
"""Between two looks at watched files."""

FIRST_WAIT_SECONDS = 1.0
"""Before the second try, where the mesh is away; each further one waits twice as long."""

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
    reconnect_seconds: Annotated[
        float,
        typer.Option(min=0, help="How long a mesh that went away in the middle is waited for. 0: not at all."),
    ] = RECONNECT_SECONDS,
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
        reconnect_seconds=reconnect_seconds,
    )

    skipped: list[SkippedPath] = []

    def find() -> list[SourceFile]:
        skipped.clear()
        found = find_files(paths or [], base=base, skipped=skipped)
        return [source for source in found if part is None or part.has(source.external_id)]

    with invocation(context).client() as client:
        run = _Run(client, knowledge_base, choices, skipped, json_output=json_output)
        left = 0
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
            pruned = folders if prunes else None
            if watch:
                watch_files = _Watch(run, watched, pruned, anyway=prune_anyway)
                left = watch_files.go_on(files, create=create, seconds=watch_seconds)
            else:
                run.begin(create=create)
                run.take(files, total=len(files))
                if pruned is not None:
                    run.prune(pruned, {source.external_id for source in files}, anyway=prune_anyway)
                run.end()
    if (run.failed or left) and not keep_going_ok:
        raise typer.Exit(1)


class _Run:
    """One call of the command: takes files in and tells of them, round by round."""

    def __init__(
        self,
        client: KbmeshClient,
        knowledge_base: str,
        choices: IngestChoices,
        skipped: Sequence[SkippedPath],
        *,
        json_output: bool,
    ) -> None:
        """`skipped` is what was found last and is not taken in."""
        self._client = client
        self._knowledge_base = knowledge_base
        self._choices = choices
        self._skipped = skipped
        self._told_of: Sequence[SkippedPath] = ()
        self._json_output = json_output
        self._all = Tally()
        self._all_pruned = 0
        self._rounds = 0
        self._first_began = time.monotonic()
        self._failing: dict[str, IngestResult] = {}
        self._round()

    def _round(self) -> None:
        self._tally = Tally()
        self._pruned = 0
        self._began = time.monotonic()

    @property
    def failed(self) -> bool:
        """Whether the last that is known of some document is that it did not go in."""
        return bool(self._failing)

    def forget(self, external_ids: Iterable[str]) -> None:
        """The files of these are gone: that they did not go in is no failure any more."""
        for external_id in external_ids:
            self._failing.pop(external_id, None)

    def begin(self, *, create: bool) -> None:
        """Makes the knowledge base, or fails where there is none, before any file is read."""
        if create:
            with contextlib.suppress(KnowledgeBaseAlreadyExists):
                self._client.create_knowledge_base(self._knowledge_base)
        else:
            self._client.get_knowledge_base(self._knowledge_base)

    def take(self, files: Iterable[SourceFile | IngestResult], *, total: int | None) -> None:
        """Takes files in."""
        for _ in self.results(files, total=total):
            pass

    def results(
        self, files: Iterable[SourceFile | IngestResult], *, total: int | None
    ) -> Generator[IngestResult, None, None]:
        """Takes files in, and gives what became of each as it is known."""
        ingested = ingest_files(self._client, self._knowledge_base, files, self._choices)
        for result in with_progress(ingested, total=total):
            self._tally.add(result)
            self._all.add(result)
            self._failing.pop(result.external_id, None)
            if result.error is not None:
                self._failing[result.external_id] = result
            if self._json_output:
                print_json(ingest_result_to_json(result))
            yield result

    def prune(self, folders: Sequence[PrunedFolder], found: set[str], *, anyway: bool) -> None:
        """Deletes documents whose files are gone. Where that is refused, the rest of the round is told of first."""
        # What a link led to may be on a share that is not mounted, and what was a folder may be behind a link now.
        there = found | {one.kept for one in self._skipped}
        missing, below = missing_documents(self._client, self._knowledge_base, folders, there)
        try:
            check_share(len(missing), below, anyway=anyway)
        except CliError:
            self.end()
            raise
        pruned = prune(self._client, self._knowledge_base, missing)
        self._pruned += pruned
        self._all_pruned += pruned

    def end(self) -> None:
        """Tells of the round."""
        self._tell_tally(self._tally, time.monotonic() - self._began, self._pruned, {})
        self._rounds += 1
        self._round()

    def end_all(self) -> None:
        """Tells of all rounds together, and of what has not gone in until now."""
        self._all.failures = list(self._failing.values())[:FAILURES_SHOWN]
        self._all.outcomes[IngestOutcome.FAILED] = len(self._failing)
        self._all.total = sum(self._all.outcomes.values())
        if not self._json_output:
            results().print(f"{counted(self._rounds, 'round')}, in all:")
        seconds = time.monotonic() - self._first_began
        self._tell_tally(self._all, seconds, self._all_pruned, {"rounds": self._rounds})

    def _tell_tally(self, tally: Tally, seconds: float, pruned: int, more: Mapping[str, int]) -> None:
        if not self._json_output:
            if self._skipped != self._told_of:
                self._told_of = list(self._skipped)
                show_skipped(self._told_of)
            show_tally(tally, seconds, pruned=pruned)
            return
        print_json(
            {
                "knowledge_base": self._knowledge_base,
                **tally.counts(),
                "pruned": pruned,
                "skipped": len(self._skipped),
                "skipped_files": [{"name": one.name, "why": one.why} for one in self._skipped[:SKIPPED_SHOWN]],
                "seconds": round(seconds, 3),
                "failures": [
                    {"external_id": result.external_id, "reason": result.error.reason}
                    for result in tally.failures
                    if result.error is not None
                ],
                **more,
            }
        )

    def tell(self, error: KbmeshError | CliError) -> None:
        """Tells of an error that ends no watch."""
        print_failure(failure_of(error), as_json=self._json_output)


class _Watch:
    """Files as they change, round by round."""

    def __init__(
        self, run: _Run, watched: WatchedFiles, folders: Sequence[PrunedFolder] | None, *, anyway: bool
    ) -> None:
        """`folders`: of which documents are deleted whose files are gone."""
        self._run = run
        self._watched = watched
        self._folders = folders
        self._anyway = anyway
        self._begun = False
        self._prune_due = folders is not None
        self._has_pruned = False
        self._left: set[str] = set()

    def go_on(self, files: Sequence[SourceFile], *, create: bool, seconds: float) -> int:
        """Takes `files` in, and then files as they change, until Ctrl-C. A mesh that is away is waited for, also where
        it is at first; nothing that changes is missed meanwhile. Gives how many files it was still to take in."""
        self._left = {source.external_id for source in files}
        waits = Waits(least=max(seconds, FIRST_WAIT_SECONDS))
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                wait = seconds
                try:
                    if self._begun:
                        complete = self._round(self._watched.look())
                    else:
                        self._run.begin(create=create)
                        self._begun = True
                        # Found again: it may have been waited for.
                        complete = self._round(Changes(files=self._watched.begin(), gone=()), first=True)
                        messages().print("watching; Ctrl-C ends it")
                    wait = waits.over(seconds) if complete else waits.next()
                except (KbmeshError, CliError) as error:
                    if self._ends(error):
                        raise
                    self._run.tell(error)
                    wait = waits.next(asked=error.retry_after_seconds if isinstance(error, KbmeshError) else None)
                    messages().print(f"watching; tries again in {wait:.3g} s, Ctrl-C ends it")
                except OSError as error:
                    self._run.tell(
                        CliError("FILE_NOT_FOUND", f"the files cannot be looked at: {error.strerror or error}")
                    )
                pause(wait)
        self._run.end_all()
        if self._left:
            messages().print(f"{counted(len(self._left), 'file')} had not gone in yet")
        return len(self._left)

    def _ends(self, error: KbmeshError | CliError) -> bool:
        """What is wrong from the beginning, and will not pass."""
        if isinstance(error, CliError):
            return error.reason == "PRUNE_REFUSED" and not self._has_pruned
        return not self._begun and error.reason not in PASSING

    def _round(self, changes: Changes, *, first: bool = False) -> bool:
        """False where something is left that will go in later."""
        self._left -= set(changes.gone)
        self._run.forget(changes.gone)
        self._prune_due = self._prune_due or (self._folders is not None and bool(changes.gone))
        if not (changes.files or self._prune_due or first):
            return True
        complete = self._take_in(changes)
        if self._folders is not None and self._prune_due:
            try:
                self._run.prune(self._folders, self._watched.names(), anyway=self._anyway)
            except CliError:
                self._prune_due = False  # told once; a mesh that is away is asked again
                raise
            self._prune_due, self._has_pruned = False, True
        self._run.end()
        return complete

    def _take_in(self, changes: Changes) -> bool:
        """What has no result, or one that will pass, is given again by the next look: then False."""
        self._left |= {source.external_id for source in changes.files}
        try:
            if changes.files:
                for result in self._run.results(changes.files, total=len(changes.files)):
                    if result.error is None or result.error.reason not in PASSING:
                        self._left.discard(result.external_id)
        finally:
            self._watched.taken(changes)
            for external_id in self._left:
                self._watched.again(external_id)
        return not self._left


def _check_usage(
    paths: Sequence[Path], manifest: Path | None, part: Shard | None, *, base: Path | None, watch: bool, prunes: bool
) -> list[PrunedFolder]:
    """Raises CliError for what does not go together. Gives the folders to prune."""
    if (manifest is None) != bool(paths):
        raise CliError("USAGE", "either PATH... or --manifest says what to take in")
    if manifest is not None and (watch or prunes or base is not None):
        raise CliError("USAGE", "--watch, --prune and --base are for folders; a manifest names its documents itself")
    if part is not None and prunes:
        raise CliError("USAGE", "--prune needs all files, and --shard takes a part of them")
    return pruned_folders(paths, base=base) if prunes else []


def _job_of(job: str, part: Shard | None) -> str:
    """Each part of a list has a job of its own, so that none has more results than are kept."""
    return job if not job or part is None else f"{job}:{part.index}-of-{part.count}"
