"""How an answer came about, for people: when each stage ran, what it decided, and the way of each candidate."""

from collections.abc import Mapping
from dataclasses import dataclass

from kbmesh_client import CacheState, CandidateTrace, KnowledgeBaseStatus, RerankMethod, Retrieval, Stage, StageTrace
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kbmesh_cli.output import counted, print_rule
from kbmesh_cli.rendering import title_of

BAR_COLUMNS = 40
CANDIDATES_SHOWN = 40
CACHE_WORDS: Mapping[CacheState, str] = {
    CacheState.UNASKED: "computed; no cache was asked",
    CacheState.MISS: "computed for this call",
    CacheState.HIT: "kept from an earlier call: the stages are of that one",
    CacheState.SHARED: "computed for an equal call at the same time: the stages are of that one",
    CacheState.UNKNOWN: "from a cache of a newer server",
}

Standing = tuple[int, float]
"""Rank, from 1, and score in a list."""


@dataclass(frozen=True, kw_only=True)
class StageSpan:
    """When a stage ran."""

    stage: Stage
    started: float
    """Milliseconds after the call began."""
    milliseconds: float
    notes: tuple[str, ...]
    """What it decided, and what it fell back from."""


@dataclass(kw_only=True)
class Journey:
    """A candidate's way through the stages. None where a stage did not see it."""

    chunk_id: str
    knowledge_base: str
    name: str = ""
    """What its document is called."""
    vector: Standing | None = None
    keyword: Standing | None = None
    fused: Standing | None = None
    reranked: Standing | None = None
    final: int | None = None
    """Its place among the results."""
    dropped: str = ""
    """Where and why it ended. Empty for a result."""

    @property
    def shown(self) -> str:
        """Its document, and which piece of it."""
        return f"{self.name} {self.chunk_id[:8]}".strip()


def spans_of(answer: Retrieval) -> list[StageSpan]:
    """One for each stage, as they began. Every list that a stage saw carries the stage's own times."""
    spans: dict[Stage, StageSpan] = {}
    for trace in answer.explanation:
        notes = dict.fromkeys([*(spans[trace.stage].notes if trace.stage in spans else ()), trace.note])
        spans[trace.stage] = StageSpan(
            stage=trace.stage,
            started=trace.started_milliseconds,
            milliseconds=trace.milliseconds,
            notes=tuple(filter(None, notes)),
        )
    return sorted(spans.values(), key=lambda span: span.started)


def journeys_of(answer: Retrieval) -> list[Journey]:
    """One for each candidate: results first, then those that came far."""
    journeys: dict[str, Journey] = {}
    for trace in answer.explanation:
        for candidate in trace.candidates:
            journey = journeys.setdefault(
                candidate.chunk_id, Journey(chunk_id=candidate.chunk_id, knowledge_base=candidate.knowledge_base)
            )
            journey.name = journey.name or candidate.title or candidate.external_id
            # Where reranking fell back, its list is the fused one again.
            if trace.stage is not Stage.RERANK or answer.rerank_method is not RerankMethod.NONE:
                _stand(journey, trace, candidate)
            # What one list dropped and a later one has goes on by that one.
            journey.dropped = f"{trace.stage.value.lower()}: {candidate.dropped}" if candidate.dropped else ""
    for result in answer.results:
        journey = journeys.setdefault(
            result.chunk_id, Journey(chunk_id=result.chunk_id, knowledge_base=result.knowledge_base)
        )
        journey.name, journey.final, journey.dropped = title_of(result), result.rank, ""
    for journey in journeys.values():
        if journey.final is None and not journey.dropped:
            journey.dropped = f"not among the {counted(len(answer.results), 'result')}"
        # The server names another candidate by its id; here each has one name.
        words = journey.dropped.split(" ")
        journey.dropped = " ".join(journeys[word].shown if word in journeys else word for word in words)
    return sorted(journeys.values(), key=_place)


def _stand(journey: Journey, trace: StageTrace, candidate: CandidateTrace) -> None:
    standing = (candidate.rank, candidate.score)
    kind = trace.label.partition(" ")[0]
    if trace.stage is Stage.SEARCH and kind == "vector":
        journey.vector = journey.vector or standing
    elif trace.stage is Stage.SEARCH and kind == "keyword":
        journey.keyword = journey.keyword or standing
    elif trace.stage is Stage.FUSE:
        journey.fused = standing
    elif trace.stage is Stage.RERANK:
        journey.reranked = standing


def _place(journey: Journey) -> tuple[float, float, float, float, float, str]:
    def rank(standing: Standing | None) -> float:
        return float("inf") if standing is None else standing[0]

    final = float("inf") if journey.final is None else journey.final
    ranks = rank(journey.reranked), rank(journey.fused), rank(journey.vector), rank(journey.keyword)
    return final, *ranks, journey.chunk_id


def show_explanation(answer: Retrieval, console: Console) -> None:
    """Prints the waterfall, what each knowledge base gave, and the candidates."""
    print_rule(console, "how it came about")
    _show_spans(answer, console)
    _show_knowledge_bases(answer, console)
    _show_journeys(answer, console)


def _show_spans(answer: Retrieval, console: Console) -> None:
    spans = spans_of(answer)
    total = max([answer.timings.get("total", 0.0), *(span.started + span.milliseconds for span in spans)])
    for span in spans:
        bar = bar_of(span, total)
        console.print(
            f"{span.stage.value.lower():<12} [cyan]{bar}[/] {span.milliseconds:7.1f} ms",
            soft_wrap=True,
            highlight=False,
        )
        for note in span.notes:
            console.print(f"{'':<12} [dim]{escape(note)}[/]", soft_wrap=True)
        for each in answer.degraded:
            if each.stage is span.stage:
                console.print(f"{'':<12} [yellow]{each.reason}: {escape(each.message)}[/]", soft_wrap=True)
    fused_by = f", fused by {answer.fusion.value.lower()}" if answer.fusion else ""
    reranked_by = answer.rerank_method.value.lower().replace("_", " ")
    console.print(
        f"{'total':<12} {'':<{BAR_COLUMNS}} {answer.timings.get('total', 0.0):7.1f} ms  "
        f"{answer.strategy.value.lower()}{fused_by}, reranked by {reranked_by}",
        soft_wrap=True,
    )
    console.print(f"{'answer':<12} {CACHE_WORDS[answer.cache]}, request {escape(answer.request_id)}", soft_wrap=True)
    for number, query in enumerate(answer.queries[1:], 2):
        console.print(f"{'query ' + str(number):<12} {escape(query)}", soft_wrap=True)


def bar_of(span: StageSpan, total: float) -> str:
    """The stage's time within that of the whole call, at least one column."""
    if total <= 0:
        return " " * BAR_COLUMNS
    start = min(BAR_COLUMNS - 1, int(span.started / total * BAR_COLUMNS))
    width = max(1, min(BAR_COLUMNS - start, round(span.milliseconds / total * BAR_COLUMNS)))
    return (" " * start + "█" * width).ljust(BAR_COLUMNS)


def _show_knowledge_bases(answer: Retrieval, console: Console) -> None:
    for report in answer.knowledge_bases:
        colour = "green" if report.status in (KnowledgeBaseStatus.OK, KnowledgeBaseStatus.EMPTY) else "yellow"
        why = f": {report.error.reason} {report.error.message}" if report.error else ""
        console.print(
            f"{'searched':<12} {escape(report.knowledge_base)} [{colour}]{report.status.value}[/], "
            f"{counted(report.hits, 'hit')}, {report.milliseconds:.1f} ms{escape(why)}",
            soft_wrap=True,
        )


def _show_journeys(answer: Retrieval, console: Console) -> None:
    journeys = journeys_of(answer)
    if not journeys:
        console.print("no candidates")
        return
    several = len({journey.knowledge_base for journey in journeys}) > 1
    columns = ["final", "fragment", *(["knowledge base"] if several else [])]
    table = Table(*columns, "vector", "keyword", "fused", "reranked", "dropped", title_justify="left")
    for journey in journeys[:CANDIDATES_SHOWN]:
        table.add_row(
            "" if journey.final is None else str(journey.final),
            escape(journey.shown),
            *([escape(journey.knowledge_base)] if several else []),
            *map(_standing, (journey.vector, journey.keyword, journey.fused, journey.reranked)),
            escape(journey.dropped),
        )
    console.print(table)
    console.print("[dim]rank and score in each list[/]", soft_wrap=True)
    if len(journeys) > CANDIDATES_SHOWN:
        console.print(f"… and {len(journeys) - CANDIDATES_SHOWN:,} more candidates; --json lists them all")


def _standing(standing: Standing | None) -> str:
    return "" if standing is None else f"{standing[0]} · {standing[1]:.4g}"
