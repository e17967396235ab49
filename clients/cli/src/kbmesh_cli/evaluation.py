"""Measures ways to look on a judged set, through the real call."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from kbmesh_client import KbmeshClient, KnowledgeBaseStatus, Overloaded, Retrieval

from kbmesh_cli.bootstrap import Bootstrap, Interval, Statistic, mean
from kbmesh_cli.errors import CliError
from kbmesh_cli.relevance import first_of_each, ndcg_at, percentile, recall_at, reciprocal_rank
from kbmesh_cli.variants import Variant

QUERY_SECONDS = 60.0
"""Deadline of a query: what is measured is how long it takes, not whether it is cut off."""
ATTEMPTS = 5
"""Of a query that a busy mesh refuses."""

METRICS: Mapping[str, Statistic] = {
    "ndcg@10": mean,
    "recall@20": mean,
    "mrr": mean,
    "p50_ms": lambda values: percentile(values, 0.5),
    "p95_ms": lambda values: percentile(values, 0.95),
}
"""What is told of a way to look: a statistic over its queries."""
_USELESS = frozenset({KnowledgeBaseStatus.NOT_FOUND, KnowledgeBaseStatus.DENIED, KnowledgeBaseStatus.MODEL_MISMATCH})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one query went."""

    ndcg_at_10: float
    recall_at_20: float
    reciprocal_rank: float
    milliseconds: float
    """Of the call, as the caller sees it."""
    degraded: tuple[str, ...] = ()
    """Stages that were skipped or fell back, each with its reason."""

    def value(self, metric: str) -> float:
        """What a metric is made of."""
        values = {"ndcg@10": self.ndcg_at_10, "recall@20": self.recall_at_20, "mrr": self.reciprocal_rank}
        return values.get(metric, self.milliseconds)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one way to look reached."""

    variant: Variant
    outcomes: tuple[Outcome, ...]
    """One for each query, in their order."""
    figures: Mapping[str, Interval]
    """Each metric."""
    differences: Mapping[str, Interval]
    """Of each metric to that of the first way to look. Empty for that one itself."""

    @property
    def degraded(self) -> int:
        """Answers in which a stage was skipped or fell back."""
        return sum(bool(outcome.degraded) for outcome in self.outcomes)

    def degraded_by_reason(self) -> dict[str, int]:
        """How many answers, by stage and reason."""
        counts: dict[str, int] = {}
        for outcome in self.outcomes:
            for reason in outcome.degraded:
                counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items()))


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What is asked, and of whom."""

    knowledge_base: str
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]
    top_k: int


def ask_all(
    client: KbmeshClient,
    questions: Questions,
    variants: Sequence[Variant],
    *,
    concurrency: int = 1,
    on_done: Callable[[], None] = lambda: None,
) -> list[list[Outcome]]:
    """Asks each query in every way, one way after another, and gives for each way its outcomes in the order of the
    queries. The way that comes first changes from query to query: so what the machine does meanwhile, and a query's
    vector that the mesh keeps, favour none. Each way is asked once before, untimed.

    Raises KbmeshError where the mesh fails, and CliError where the knowledge base cannot be asked."""
    queries = list(questions.queries)
    for variant in variants:
        _ask(client, questions, queries[0], variant, threading.Event())
    stopped = threading.Event()

    def ask_each_way(number: int) -> list[Outcome]:
        first = number % len(variants)
        outcomes: dict[int, Outcome] = {}
        for way in [*range(first, len(variants)), *range(first)]:
            outcomes[way] = _ask(client, questions, queries[number], variants[way], stopped)
        return [outcomes[way] for way in range(len(variants))]

    by_query: list[list[Outcome]] = [[] for _ in queries]
    with ThreadPoolExecutor(concurrency) as pool:
        asked = {pool.submit(ask_each_way, number): number for number in range(len(queries))}
        try:
            for future in as_completed(asked):
                by_query[asked[future]] = future.result()
                on_done()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [[outcomes[way] for outcomes in by_query] for way in range(len(variants))]


def summarise(variants: Sequence[Variant], outcomes: Sequence[Sequence[Outcome]], *, seed: int) -> list[Measurement]:
    """Figures with their intervals, and with the difference of each to the first."""
    bootstrap = Bootstrap(len(outcomes[0]), seed=seed)
    sampled = [
        {
            metric: bootstrap.sample([outcome.value(metric) for outcome in of_one], statistic)
            for metric, statistic in METRICS.items()
        }
        for of_one in outcomes
    ]
    return [
        Measurement(
            variant=variant,
            outcomes=tuple(outcomes[way]),
            figures={metric: figure.interval() for metric, figure in sampled[way].items()},
            differences={metric: figure.above(sampled[0][metric]) for metric, figure in sampled[way].items()}
            if way
            else {},
        )
        for way, variant in enumerate(variants)
    ]


def ranking_of(answer: Retrieval) -> list[str]:
    """Documents by their best fragment, each once. One that was dropped as it says the same ranks right behind the one
    that was kept, as it is cited there."""
    return first_of_each(
        [
            name
            for result in answer.results
            for name in (
                result.document.external_id,
                *(duplicate.document.external_id for duplicate in result.duplicates),
            )
        ]
    )


def _ask(client: KbmeshClient, questions: Questions, query: str, variant: Variant, stopped: threading.Event) -> Outcome:
    for attempt in range(1, ATTEMPTS + 1):
        began = time.perf_counter()
        try:
            answer = client.retrieve(
                questions.queries[query],
                questions.knowledge_base,
                skip_cache=True,
                timeout_seconds=QUERY_SECONDS,
                **variant.options(top_k=questions.top_k),
            )
        except Overloaded as error:
            if attempt == ATTEMPTS or stopped.wait(error.retry_after_seconds or 1.0):
                raise
            continue
        milliseconds = (time.perf_counter() - began) * 1000
        return _outcome(answer, questions.judgements[query], milliseconds)
    raise AssertionError("the loop returns or raises")


def _outcome(answer: Retrieval, judgements: Mapping[str, int], milliseconds: float) -> Outcome:
    for report in answer.knowledge_bases:
        if report.status in _USELESS:
            why = f": {report.error.message}" if report.error else ""
            raise CliError(report.status.value, f"{report.knowledge_base} cannot be asked{why}")
    ranking = ranking_of(answer)
    return Outcome(
        ndcg_at_10=ndcg_at(10, ranking, judgements),
        recall_at_20=recall_at(20, ranking, judgements),
        reciprocal_rank=reciprocal_rank(ranking, judgements),
        milliseconds=milliseconds,
        degraded=tuple(f"{each.stage.value.lower()} {each.reason}" for each in answer.degraded),
    )
