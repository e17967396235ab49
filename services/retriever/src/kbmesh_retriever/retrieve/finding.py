"""From a question to the lists of its knowledge bases: resolve, rephrase, embed, search."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import FeatureUnsupported, KbmeshError, Reason

from kbmesh_retriever.catalog.port import Catalog
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort
from kbmesh_retriever.retrieve.journal import Journal
from kbmesh_retriever.retrieve.plan import Plan, make_plan
from kbmesh_retriever.retrieve.query_vectors import Model, QueryVectors, embed_queries, is_mismatch
from kbmesh_retriever.retrieve.request import Question, RetrievalLimits, RetrievalRequest, check
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.retrieve.search import Probe, Searcher, SearchOutcome
from kbmesh_retriever.retrieve.stage import Degradation, Stage, Strategy
from kbmesh_retriever.retrieve.time_budget import TimeBudget, within
from kbmesh_retriever.stores.port import VectorStore

_SHARE_BEFORE_SEARCH = 0.5
"""Of the time left that rephrasing and, where keywords can do without it, embedding may take."""
_SEARCH_SHARE = 0.8
"""Of the time left that a search may take: one slow knowledge base must leave the others time to be attributed."""
_SEARCH_SHARE_BEFORE_RERANK = 0.6
"""The same where reranking is to follow."""


class Finder:
    """Finds candidates. `rephraser` is None where none is configured; `reranking` tells whether a reranker is, so that
    the search leaves it its time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: VectorStore,
        embedder: EmbedderPort,
        rephraser: Rephraser | None,
        reranking: bool,
        limits: RetrievalLimits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._rephraser = rephraser
        self._reranking = reranking
        self._limits = limits
        self._clock = clock
        self._searcher = Searcher(store, catalog, concurrency=limits.search_concurrency, clock=clock)

    async def find(
        self, request: RetrievalRequest, tenant: str, principals: Collection[str], deadline: Deadline | None
    ) -> Run:
        """Raises as `Retrieval.answer` does."""
        question = check(request, self._limits)
        journal = Journal(explain=question.explain, clock=self._clock)
        caller = deadline or Deadline.after(self._limits.default_deadline_seconds)
        budget = TimeBudget(deadline=caller.less(self._limits.reserve_seconds))
        with journal.timing(Stage.RESOLVE):
            planning = make_plan(self._catalog, tenant, question, principals=principals)
            plan = await within(budget.seconds(), Stage.RESOLVE, planning)
        journal.name_targets(plan.targets)
        queries = await self._queries(question, plan, journal, budget)
        with journal.timing(Stage.EMBED):
            vectors = await self._vectors(question, plan, queries, budget)
        failures = dict(plan.refused)
        _note_embedding(question, plan, vectors, failures, journal)
        probes = _probes(question, plan, queries, vectors, failures)
        share = _SEARCH_SHARE_BEFORE_RERANK if question.strategy.reranks and self._reranking else _SEARCH_SHARE
        with journal.timing(Stage.SEARCH):
            budget.check(Stage.SEARCH)
            found = await self._searcher.search(
                probes,
                seconds=budget.seconds(share=share, at_most=self._limits.search_timeout_seconds),
                budget=budget,
            )
        failures |= found.failures
        _note_search(found, journal)
        journal.note_lists(found.lists)
        return Run(
            question=question,
            journal=journal,
            budget=budget,
            plan=plan,
            queries=queries,
            failures=failures,
            found=found,
        )

    async def _queries(self, question: Question, plan: Plan, journal: Journal, budget: TimeBudget) -> tuple[str, ...]:
        """The caller's own, then rephrasings where the strategy asks for them and the language model gives any."""
        if question.strategy is not Strategy.ADVANCED or not plan.targets:
            return (question.query,)
        seconds = budget.seconds(share=_SHARE_BEFORE_SEARCH, at_most=self._limits.rephrase_timeout_seconds)
        try:
            with journal.timing(Stage.REPHRASE):
                if self._rephraser is None:
                    raise FeatureUnsupported("rephrasing")
                rephrasings = await within(
                    seconds, Stage.REPHRASE, self._rephraser.rephrase(question.query, timeout_seconds=seconds)
                )
            return (question.query, *rephrasings)
        except KbmeshError as error:
            message = f"{error.message}: the query was searched alone"
            journal.degradations.append(Degradation(stage=Stage.REPHRASE, reason=error.reason, message=message))
            return (question.query,)

    async def _vectors(
        self, question: Question, plan: Plan, queries: Sequence[str], budget: TimeBudget
    ) -> Mapping[Model, QueryVectors | KbmeshError]:
        seconds = (
            budget.seconds(share=_SHARE_BEFORE_SEARCH, at_most=self._limits.embed_timeout_seconds)
            if question.strategy.uses_keywords
            else budget.seconds()
        )
        vectors = await embed_queries(self._embedder, plan.targets, queries, seconds=seconds)
        errors = [one for one in vectors.values() if isinstance(one, KbmeshError)]
        if not question.strategy.uses_keywords and len(errors) == len(vectors) and not all(map(is_mismatch, errors)):
            raise next(error for error in errors if not is_mismatch(error))
        return vectors


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
