"""Files on their way into a knowledge base, and what became of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_client import (
    MAX_DOCUMENT_BYTES,
    RECONNECT_SECONDS,
    DocumentWarning,
    IngestDocument,
    IngestOutcome,
    IngestResult,
    KbmeshClient,
)
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from kbmesh_cli.output import counted, messages, results
from kbmesh_cli.sources import SkippedPath, SourceFile, read_document

FAILURES_SHOWN = 50
NOTES_SHOWN = 200
SKIPPED_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class IngestChoices:
    """How files are taken in, whatever they are."""

    job_id: str = ""
    allow_shrink: bool = False
    into_rebuild: bool = False
    principals: Sequence[str] = ()
    """Who may read those files that do not say so themselves."""
    tags: Sequence[str] = ()
    """Of every file, besides its own."""
    concurrency: int = 0
    reconnect_seconds: float = RECONNECT_SECONDS


def ingest_files(
    client: KbmeshClient,
    knowledge_base: str,
    files: Iterable[SourceFile | IngestResult],
    choices: IngestChoices | None = None,
) -> Iterator[IngestResult]:
    """Gives a result for each file. Files are read as the mesh takes them. A result among them is that of a file that
    cannot be sent, and is given as it is."""
    choices = choices or IngestChoices()
    unread: list[IngestResult] = []

    def documents() -> Iterator[IngestDocument]:
        for source in files:
            document = read_document(source, max_bytes=MAX_DOCUMENT_BYTES) if isinstance(source, SourceFile) else source
            if isinstance(document, IngestDocument):
                yield _chosen(document, source, choices)
            else:
                unread.append(document)

    for result in client.ingest(
        knowledge_base,
        documents(),
        concurrency=choices.concurrency,
        job_id=choices.job_id,
        allow_shrink=choices.allow_shrink,
        into_rebuild=choices.into_rebuild,
        reconnect_seconds=choices.reconnect_seconds,
    ):
        yield result
        while unread:
            yield unread.pop(0)
    yield from unread


def _chosen(document: IngestDocument, source: SourceFile | IngestResult, choices: IngestChoices) -> IngestDocument:
    says_itself = isinstance(source, SourceFile) and "principals" in source.described
    return replace(
        document,
        principals=document.principals if says_itself else choices.principals,
        tags=tuple(dict.fromkeys((*document.tags, *choices.tags))),
    )


def with_progress(ingested: Iterable[IngestResult], *, total: int | None) -> Iterator[IngestResult]:
    """Shows done and all, documents a second and the remaining time on stderr, where that is a terminal."""
    console = messages()
    with Progress(
        TextColumn("ingesting"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=total)
        for result in ingested:
            progress.update(task, advance=1, description=escape(result.external_id[-50:]))
            yield result


class RateColumn(ProgressColumn):
    """Documents a second."""

    def render(self, task: Task) -> Text:
        """As it is lately."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f}/s", style="progress.data.speed")


@dataclass(kw_only=True)
class Tally:
    """What became of many documents, in little memory: sums, and the first failures and notes."""

    total: int = 0
    outcomes: dict[IngestOutcome, int] = field(default_factory=dict)
    resumed: int = 0
    chunks: int = 0
    embedded: int = 0
    tokens: int = 0
    truncated: int = 0
    failures: list[IngestResult] = field(default_factory=list)
    notes: list[tuple[str, DocumentWarning]] = field(default_factory=list)

    def add(self, result: IngestResult) -> None:
        """Counts one more."""
        self.total += 1
        self.outcomes[result.outcome] = self.outcomes.get(result.outcome, 0) + 1
        self.resumed += result.resumed
        self.chunks += result.chunks
        if not result.resumed:
            self.embedded += result.embedded
            self.tokens += result.tokens
        self.truncated += result.truncated
        if result.error is not None and len(self.failures) < FAILURES_SHOWN:
            self.failures.append(result)
        if len(self.notes) < NOTES_SHOWN:
            self.notes += [(result.external_id, warning) for warning in result.warnings]

    @property
    def failed(self) -> int:
        """Documents that did not go in."""
        return self.outcomes.get(IngestOutcome.FAILED, 0)

    def counts(self) -> dict[str, int]:
        """Documents by outcome, chunks, embedded texts, tokens."""
        return {
            "total": self.total,
            "new": self.outcomes.get(IngestOutcome.NEW, 0),
            "changed": self.outcomes.get(IngestOutcome.CHANGED, 0),
            "unchanged": self.outcomes.get(IngestOutcome.UNCHANGED, 0),
            "failed": self.failed,
            "resumed": self.resumed,
            "chunks": self.chunks,
            "embedded": self.embedded,
            "tokens": self.tokens,
            "truncated": self.truncated,
        }


def tally_of(outcome: Iterable[IngestResult]) -> Tally:
    """Counts all."""
    tally = Tally()
    for result in outcome:
        tally.add(result)
    return tally


def show_skipped(skipped: Sequence[SkippedPath]) -> None:
    """Prints how many paths are no files, and the first of them."""
    if not skipped:
        return
    first = ", ".join(f"{one.name} ({one.why})" for one in skipped[:SKIPPED_SHOWN])
    more = ", …" if len(skipped) > SKIPPED_SHOWN else ""
    results().print(f"[yellow]skipped[/] {counted(len(skipped), 'path')}: {escape(first + more)}", soft_wrap=True)


def show_tally(tally: Tally, seconds: float, *, pruned: int = 0) -> None:
    """Prints what became of the documents, failures first."""
    console = results()
    for result in tally.failures:
        if result.error is not None:
            console.print(
                f"[red]failed[/] {escape(result.external_id)}: {result.error.reason}: {escape(result.error.message)}",
                soft_wrap=True,
            )
    if tally.failed > len(tally.failures):
        console.print(f"… and {tally.failed - len(tally.failures):,} more; --json lists them all")
    for external_id, warning in tally.notes:
        console.print(
            f"[yellow]note[/] {escape(external_id)}: {warning.reason}: {escape(warning.message)}", soft_wrap=True
        )
    counts = tally.counts()
    console.print(
        f"{counted(counts['total'], 'document')}: {counts['new']:,} new, {counts['changed']:,} changed, "
        f"{counts['unchanged']:,} unchanged, {counts['failed']:,} failed"
        + (f", {pruned:,} deleted" if pruned else "")
        + (f"; {tally.resumed:,} of them were done before" if tally.resumed else ""),
        soft_wrap=True,
    )
    if counts["unchanged"] and not counts["embedded"]:
        console.print(f"{counts['unchanged']:,} unchanged, nothing embedded, {seconds:.1f} s", soft_wrap=True)
    else:
        rate = f", {counts['total'] / seconds:,.1f} documents/s" if seconds >= 1 else ""
        console.print(
            f"{counted(counts['chunks'], 'chunk')}, {counted(counts['embedded'], 'text')} embedded, "
            f"{counted(counts['tokens'], 'token')}, {seconds:.1f} s{rate}",
            soft_wrap=True,
        )
    if counts["truncated"]:
        console.print(f"cut off at what the model reads: {counted(counts['truncated'], 'chunk')}")
