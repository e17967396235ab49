"""From a question to the lists of its knowledge bases: resolve, rephrase, embed, search."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import EmptyText, KbmeshError, Reason

from kbmesh_retriever.catalog.port import CatalogReader
from kbmesh_retriever.keywords.analyser import MAX_QUERY_TERMS, encode_query, terms_left_out
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort
from kbmesh_retriever.retrieve.estimates import Step
from kbmesh_retriever.retrieve.journal import Journal
from kbmesh_retriever.retrieve.pace import Pace
from kbmesh_retriever.retrieve.plan import Plan, make_plan
from kbmesh_retriever.retrieve.query_vectors import Model, QueryVectors, embed_queries, is_mismatch
from kbmesh_retriever.retrieve.rephrasing import Rephrasing
from kbmesh_retriever.retrieve.request import Question, RetrievalLimits, RetrievalRequest, check
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.retrieve.search import Probe, Searcher, SearchOutcome
from kbmesh_retriever.retrieve.stage import Degradation, Stage, Strategy
from kbmesh_retriever.retrieve.time_budget import TimeBudget, within
from kbmesh_retriever.stores.port import StoreReader


class Finder:
    """Finds candidates. `rephraser` is None where none is configured."""

    def __init__(
        self,
        *,
        catalog: CatalogReader,
        store: StoreReader,
        embedder: EmbedderPort,
        rephraser: Rephraser | None,
        pace: Pace,
        limits: RetrievalLimits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._rephrasing = Rephrasing(rephraser)
        self._pace = pace
        self._estimates = pace.estimates
        self._limits = limits
        self._clock = clock
        self._searcher = Searcher(
            store, catalog, concurrency=limits.search_concurrency, estimates=pace.estimates, clock=clock
        )

    async def find(
        self, request: RetrievalRequest, tenant: str, principals: Collection[str], deadline: Deadline | None
    ) -> Run:
        """Raises as `Retrieval.answer` does."""
        question = check(request, self._limits)
        journal = Journal(explain=question.explain, clock=self._clock)
        caller = deadline or Deadline.after(self._limits.default_deadline_seconds)
        budget = TimeBudget.of(caller, reserve_seconds=self._limits.reserve_seconds)
        with journal.timing(Stage.RESOLVE), self._estimates.timing(Step.RESOLVE):
            planning = make_plan(self._catalog, tenant, question, principals=principals)
            plan = await within(budget.seconds(), Stage.RESOLVE, planning)
        journal.name_targets(plan.targets)
        queries, hypothesis = await self._queries(question, plan, tenant, journal, budget)
        with journal.timing(Stage.EMBED):
            vectors, guessed = await self._vectors(question, plan, queries, hypothesis, budget)
        failures = dict(plan.refused)
        _note_embedding(question, plan, vectors, failures, journal)
        _note_hypothesis(guessed, vectors, journal)
        probes = _probes(question, plan, queries, vectors, failures)
        probes += _hypothetical_probes(plan, guessed, failures, query=len(queries))
        with journal.timing(Stage.SEARCH):
            budget.check(Stage.SEARCH)
            seconds = self._pace.search_seconds(question, budget)
            journal.decide(Stage.SEARCH, f"up to {seconds * 1000:.0f} ms")
            found = await self._searcher.search(probes, seconds=seconds, budget=budget)
        failures |= found.failures
        _note_words(question, probes, journal)
        _note_search(found, journal)
        journal.note_lists(found.lists, found.documents)
        return Run(
            question=question,
            journal=journal,
            budget=budget,
            plan=plan,
            queries=queries,
            failures=failures,
            found=found,
        )

    async def _queries(
        self, question: Question, plan: Plan, tenant: str, journal: Journal, budget: TimeBudget
    ) -> tuple[tuple[str, ...], str]:
        """The caller's own, then rephrasings where the strategy asks for them and the language model gives any; and
        what an answer might say, empty where it is not known."""
        if question.strategy is not Strategy.ADVANCED or not plan.targets:
            return (question.query,), ""
        with journal.timing(Stage.REPHRASE):
            rephrased = await self._rephrasing.of(
                question.query,
                tenant=tenant,
                hypothesize=question.hypothetical_answer,
                seconds=self._pace.rephrase_seconds(question, budget),
            )
        for instead, error in (
            ("the query was searched alone", rephrased.rephrasings),
            ("searched without a hypothetical answer", rephrased.hypothesis),
        ):
            if isinstance(error, KbmeshError):
                message = f"{error.message}: {instead}"
                journal.degradations.append(Degradation(stage=Stage.REPHRASE, reason=error.reason, message=message))
        return rephrased.queries(question.query), rephrased.guess

    async def _vectors(
        self, question: Question, plan: Plan, queries: Sequence[str], hypothesis: str, budget: TimeBudget
    ) -> tuple[Mapping[Model, QueryVectors | KbmeshError], Mapping[Model, QueryVectors | KbmeshError]]:
        """By model those of the queries, and those of the hypothetical answer."""
        seconds = self._pace.embed_seconds(question, budget)
        started = self._clock()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(embed_queries(self._embedder, plan.targets, queries, seconds=seconds))
            guessed = (
                group.create_task(
                    embed_queries(self._embedder, plan.targets, [hypothesis], seconds=seconds, input_type="document")
                )
                if hypothesis
                else None
            )
        vectors = asked.result()
        if any(isinstance(one, QueryVectors) for one in vectors.values()):
            self._estimates.observe(Step.EMBED, self._clock() - started)
        errors = [one for one in vectors.values() if isinstance(one, KbmeshError)]
        unread = len(errors) == len(vectors) and any(isinstance(error, EmptyText) for error in errors)
        if unread and not _has_words(question):
            raise EmptyText("query")  # such as a zero-width space: no fault of the knowledge bases
        if not question.strategy.uses_keywords and len(errors) == len(vectors) and not all(map(is_mismatch, errors)):
            raise next(error for error in errors if not is_mismatch(error))
        return vectors, {} if guessed is None else guessed.result()


def _has_words(question: Question) -> bool:
    """Whether there is anything to search by but vectors."""
    return question.strategy.uses_keywords and bool(encode_query(question.query).indices)


def _note_words(question: Question, probes: Sequence[Probe], journal: Journal) -> None:
    """The caller's own query alone: a rephrasing adds to it."""
    if any(probe.sparse is not None for probe in probes) and (left_out := terms_left_out(question.query)):
        message = f"the query has {left_out} distinct words over the limit of {MAX_QUERY_TERMS}: searched without these"
        journal.degradations.append(Degradation(stage=Stage.SEARCH, reason=Reason.TEXT_TOO_LONG, message=message))


def _note_search(found: SearchOutcome, journal: Journal) -> None:
    if found.failures:
        journal.degradations.append(_not_searched(found.failures))
    if found.partial_failures:
        error = found.partial_failures[0]
        message = f"{len(found.partial_failures)} searches failed: {error.message}"
        journal.degradations.append(Degradation(stage=Stage.SEARCH, reason=error.reason, message=message))
    if without_words := {lists.target.position for lists in found.lists if not lists.keyword_served}:
        which = f"{len(without_words)} knowledge base{'s' if len(without_words) > 1 else ''}"
        message = f"{which} cannot be searched by words, for want of sparse vectors: searched by vectors alone"
        journal.degradations.append(Degradation(stage=Stage.SEARCH, reason=Reason.FEATURE_UNSUPPORTED, message=message))


def _not_searched(failures: Mapping[int, KbmeshError]) -> Degradation:
    """So that who reads `degraded` alone does not take the answer for a full one."""
    first = failures[min(failures)]
    count = f"{len(failures)} knowledge base{'s' if len(failures) > 1 else ''}"
    return Degradation(
        stage=Stage.SEARCH, reason=first.reason, message=f"{count} could not be searched: {first.message}"
    )


def _note_embedding(
    question: Question,
    plan: Plan,
    vectors: Mapping[Model, QueryVectors | KbmeshError],
    failures: dict[int, KbmeshError],
    journal: Journal,
) -> None:
    """Knowledge bases that cannot be searched for want of vectors fail; those that can by keyword are degraded."""
    for target in plan.targets:
        of_model = vectors[target.model]
        if isinstance(of_model, KbmeshError) and (is_mismatch(of_model) or not question.strategy.uses_keywords):
            failures[target.position] = of_model
    for (model, _), of_model in sorted(vectors.items()):
        if isinstance(of_model, QueryVectors):
            if of_model.tokens_cut:
                message = f"{model} did not read the last {of_model.tokens_cut} tokens of the query"
                journal.degradations.append(
                    Degradation(stage=Stage.EMBED, reason=Reason.TEXT_TOO_LONG, message=message)
                )
        elif not is_mismatch(of_model):
            message = f"{of_model.message}: searched by keyword alone" if question.strategy.uses_keywords else ""
            journal.degradations.append(
                Degradation(stage=Stage.EMBED, reason=of_model.reason, message=message or of_model.message)
            )


def _note_hypothesis(
    guessed: Mapping[Model, QueryVectors | KbmeshError],
    vectors: Mapping[Model, QueryVectors | KbmeshError],
    journal: Journal,
) -> None:
    """Only where the queries themselves have vectors: else their own failure is told."""
    for model, error in sorted(guessed.items(), key=lambda one: one[0]):
        if isinstance(error, KbmeshError) and isinstance(vectors[model], QueryVectors):
            message = f"{error.message}: searched without the hypothetical answer"
            journal.degradations.append(Degradation(stage=Stage.EMBED, reason=error.reason, message=message))


def _hypothetical_probes(
    plan: Plan,
    guessed: Mapping[Model, QueryVectors | KbmeshError],
    failures: Mapping[int, KbmeshError],
    *,
    query: int,
) -> list[Probe]:
    """By its vector alone: the words of a guess would find what has those words."""
    return [
        Probe(target=target, query=query, dense=of_model.vectors[0], sparse=None)
        for target in plan.targets
        if target.position not in failures and isinstance(of_model := guessed.get(target.model), QueryVectors)
    ]


def _probes(
    question: Question,
    plan: Plan,
    queries: Sequence[str],
    vectors: Mapping[Model, QueryVectors | KbmeshError],
    failures: dict[int, KbmeshError],
) -> list[Probe]:
    terms = [encode_query(query) if question.strategy.uses_keywords else None for query in queries]
    sparse = [vector if vector is not None and vector.indices else None for vector in terms]
    probes: list[Probe] = []
    for target in plan.targets:
        if target.position in failures:
            continue
        of_model = vectors[target.model]
        probed = len(probes)
        for index in range(len(queries)):
            dense = of_model.vectors[index] if isinstance(of_model, QueryVectors) else None
            if dense is not None or sparse[index] is not None:
                probes.append(Probe(target=target, query=index, dense=dense, sparse=sparse[index]))
        if len(probes) == probed and isinstance(of_model, KbmeshError):
            failures[target.position] = of_model  # neither a vector nor a word to search by
    return probes
