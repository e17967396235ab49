"""A question from its knowledge bases to its answer, under one deadline."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import FeatureUnsupported, KbmeshError, Reason

from kbmesh_retriever.attribution.context_block import ContextBlock, Source, build_context_block
from kbmesh_retriever.attribution.sources import display_fields, label_of, preview_of
from kbmesh_retriever.catalog.port import Catalog
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort, RerankerPort
from kbmesh_retriever.retrieve.answer import Answer, KnowledgeBaseReport, Place, Result
from kbmesh_retriever.retrieve.candidates import fuse
from kbmesh_retriever.retrieve.deduplicate import deduplicate
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.journal import Journal
from kbmesh_retriever.retrieve.plan import Plan, Target, make_plan
from kbmesh_retriever.retrieve.query_vectors import Model, QueryVectors, embed_queries, is_mismatch
from kbmesh_retriever.retrieve.request import Question, RetrievalLimits, RetrievalRequest, check
from kbmesh_retriever.retrieve.rerank import RerankOutcome, in_fused_order, rerank
from kbmesh_retriever.retrieve.search import Probe, Searcher, SearchOutcome
from kbmesh_retriever.retrieve.stage import Degradation, RerankMethod, ScoreStage, Stage, Status, Strategy, status_of
from kbmesh_retriever.retrieve.threshold import choose, sift
from kbmesh_retriever.retrieve.time_budget import TimeBudget, within
from kbmesh_retriever.stores.port import VectorStore

_SHARE_BEFORE_SEARCH = 0.5
"""Of the time left that rephrasing and, where keywords can do without it, embedding may take."""
_FEWEST_CANDIDATES = 100
_SEARCH_SHARE = 0.8
"""Of the time left that a search may take: one slow knowledge base must leave the others time to be attributed."""
_SEARCH_SHARE_BEFORE_RERANK = 0.6
"""The same where reranking is to follow."""


@dataclass(kw_only=True)
class _Run:
    """What one retrieval knows so far."""

    question: Question
    journal: Journal
    budget: TimeBudget
    plan: Plan
    queries: tuple[str, ...]
    failures: dict[int, KbmeshError] = field(default_factory=dict)
    """By place in the request."""
    found: SearchOutcome
    passed: dict[int, set[UUID]] = field(default_factory=dict)
    """Chunks of each knowledge base that passed all thresholds so far, by place in the request."""

    @property
    def targets(self) -> dict[int, Target]:
        return {target.position: target for target in self.plan.targets}


class Retrieval:
    """Answers questions. `reranker` and `rephraser` are None where none is configured."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        store: VectorStore,
        embedder: EmbedderPort,
        reranker: RerankerPort | None,
        rephraser: Rephraser | None,
        limits: RetrievalLimits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._catalog = catalog
        self._embedder = embedder
        self._reranker = reranker
        self._rephraser = rephraser
        self._limits = limits
        self._clock = clock
        self._searcher = Searcher(store, catalog, concurrency=limits.search_concurrency, clock=clock)

    async def answer(
        self,
        request: RetrievalRequest,
        *,
        tenant: str,
        deadline: Deadline | None,
        principals: Collection[str] = (),
    ) -> Answer:
        """The final answer, for a caller who is all of `principals`. Raises InvalidField, RequestTooLarge, EmptyText,
        FeatureUnsupported, KnowledgeBaseNotFound (the tenant has none of those named), DeadlineExceeded or
        DependencyUnavailable (before anything was found), and for VECTOR_ONLY what the embedder raises."""
        run = await self._find(request, tenant, principals, deadline)
        survivors = self._survivors(run)
        return await self._finish(run, await self._reranked(run, survivors), is_final=True)

    async def answers(
        self,
        request: RetrievalRequest,
        *,
        tenant: str,
        deadline: Deadline | None,
        principals: Collection[str] = (),
    ) -> AsyncGenerator[Answer, None]:
        """The fused order first, without a context block, where a reranked one is to follow; then the final answer.
        Raises as `answer` does."""
        run = await self._find(request, tenant, principals, deadline)
        survivors = self._survivors(run)
        if run.question.strategy.reranks and survivors:
            yield await self._finish(run, in_fused_order(survivors), is_final=False)
        yield await self._finish(run, await self._reranked(run, survivors), is_final=True)

    async def _find(
        self, request: RetrievalRequest, tenant: str, principals: Collection[str], deadline: Deadline | None
    ) -> _Run:
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
        share = _SEARCH_SHARE_BEFORE_RERANK if question.strategy.reranks and self._reranker else _SEARCH_SHARE
        with journal.timing(Stage.SEARCH):
            budget.check(Stage.SEARCH)
            found = await self._searcher.search(
                probes,
                seconds=budget.seconds(share=share, at_most=self._limits.search_timeout_seconds),
                budget=budget,
            )
        failures |= found.failures
        if found.failures:
            journal.degradations.append(_not_searched(found.failures))
        if found.partial_failures:
            error = found.partial_failures[0]
            count = len(found.partial_failures)
            journal.degradations.append(
                Degradation(
                    stage=Stage.SEARCH, reason=error.reason, message=f"{count} searches failed: {error.message}"
                )
            )
        if without_words := {lists.target.position for lists in found.lists if not lists.keyword_served}:
            which = f"{len(without_words)} knowledge base{'s' if len(without_words) > 1 else ''}"
            message = f"{which} cannot be searched by words, for want of sparse vectors: searched by vectors alone"
            journal.degradations.append(
                Degradation(stage=Stage.SEARCH, reason=Reason.FEATURE_UNSUPPORTED, message=message)
            )
        journal.note_lists(found.lists)
        return _Run(
            question=question,
            journal=journal,
            budget=budget,
            plan=plan,
            queries=queries,
            failures=failures,
            found=found,
        )

    async def _queries(
        self, question: Question, plan: Plan, journal: Journal, budget: TimeBudget
    ) -> tuple[str, ...]:
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

    def _survivors(self, run: _Run) -> tuple[Candidate, ...]:
        """In fused order, above the thresholds up to there, each saying something of its own."""
        with run.journal.timing(Stage.FUSE):
            fused = fuse(run.found.lists)
            for candidate in fused:
                run.passed.setdefault(candidate.target, set()).add(candidate.chunk_id)
            sifted = self._sift(run, fused, ScoreStage.FUSED)
        run.journal.note(Stage.FUSE, fused, dropped=_reasons(sifted, fused, ScoreStage.FUSED))
        most = _most_candidates(run.question)
        with run.journal.timing(Stage.DEDUPLICATE):
            distinct = deduplicate(sifted[:most])
        reasons = {one.chunk_id: f"beyond the best {most}" for one in sifted[most:]}
        reasons |= {dropped: f"says the same as {survivor}" for dropped, survivor in distinct.dropped.items()}
        run.journal.note(Stage.DEDUPLICATE, sifted, dropped=reasons)
        return distinct.survivors

    async def _reranked(self, run: _Run, survivors: Sequence[Candidate]) -> RerankOutcome:
        question, journal = run.question, run.journal
        if not question.strategy.reranks:
            outcome = in_fused_order(survivors)
        else:
            with journal.timing(Stage.RERANK):
                outcome = await rerank(
                    self._reranker,
                    question.query,
                    survivors,
                    top_n=question.rerank_top_n,
                    seconds=run.budget.seconds(at_most=self._limits.rerank_timeout_seconds),
                    min_seconds=self._limits.min_rerank_seconds,
                )
        journal.degradations += outcome.degradations
        kept: Sequence[Candidate] = outcome.candidates
        stages = [ScoreStage.FINAL]
        if outcome.method is RerankMethod.CROSS_ENCODER:
            stages.insert(0, ScoreStage.RERANK_PROBABILITY)
        elif question.strategy.reranks and outcome.method is RerankMethod.NONE:
            # The final score is of another scale then: its threshold would drop everything.
            stages = []
        self._note_unused_thresholds(run, stages)
        for stage in stages:
            kept = self._sift(run, kept, stage)
        if question.strategy.reranks:
            reasons = _reasons(kept, outcome.candidates, *stages)
            journal.note(Stage.RERANK, outcome.candidates, dropped=reasons, label=outcome.method.value)
        return RerankOutcome(candidates=tuple(kept), method=outcome.method, degradations=outcome.degradations)

    def _note_unused_thresholds(self, run: _Run, used: Sequence[ScoreStage]) -> None:
        late = {ScoreStage.RERANK_PROBABILITY, ScoreStage.FINAL}
        asked = {stage for target in run.plan.targets for stage in target.thresholds}
        for stage in sorted((asked & late) - set(used)):
            message = f"the threshold on {stage.value} was not applied: there is no such score in this answer"
            run.journal.degradations.append(
                Degradation(stage=Stage.RERANK, reason=Reason.FEATURE_UNSUPPORTED, message=message)
            )

    def _sift(self, run: _Run, candidates: Sequence[Candidate], stage: ScoreStage) -> tuple[Candidate, ...]:
        sifted = sift(candidates, run.targets, stage)
        for candidate in sifted.dropped:
            run.passed[candidate.target].discard(candidate.chunk_id)
        return sifted.kept

    async def _finish(self, run: _Run, outcome: RerankOutcome, *, is_final: bool) -> Answer:
        with run.journal.timing(Stage.ATTRIBUTE):
            chosen = choose(outcome.candidates, run.targets, run.question.top_k)
            places = [_place(run, candidate) for candidate in chosen]
            wants_context = is_final and run.question.context_budget_tokens > 0
            context = await self._context(run, places) if wants_context else None
        return Answer(
            results=tuple(_result(run, rank, place, context) for rank, place in enumerate(places, start=1)),
            reports=_reports(run),
            degradations=tuple(run.journal.degradations),
            timings=run.journal.timings(),
            context=context,
            rerank_method=outcome.method,
            strategy=run.question.strategy,
            queries=run.queries,
            explanation=run.journal.explanation(),
            is_final=is_final,
        )

    async def _context(self, run: _Run, places: Sequence[Place]) -> ContextBlock:
        model = places[0].knowledge_base.embedding_model if places else ""

        async def count(texts: Sequence[str]) -> Sequence[int]:
            seconds = run.budget.seconds(at_most=self._limits.count_timeout_seconds)
            return await within(seconds, Stage.ATTRIBUTE, self._embedder.count_tokens(texts, model=model))

        sources = [
            Source(
                chunk_id=place.candidate.chunk_id,
                label=label_of(
                    place.document,
                    place.knowledge_base.name,
                    place.candidate.fragment.metadata,
                    heading_path=place.candidate.fragment.heading_path,
                    pages=place.candidate.fragment.pages,
                ),
                context=place.candidate.fragment.context,
                text=place.candidate.fragment.text,
            )
            for place in places
        ]
        return await build_context_block(sources, run.question.context_budget_tokens, count)


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


def _most_candidates(question: Question) -> int:
    """How many are compared with each other: several times what can be reranked or returned, whatever the number of
    knowledge bases."""
    return max(_FEWEST_CANDIDATES, 4 * question.top_k, 2 * question.rerank_top_n)


def _reasons(kept: Sequence[Candidate], of: Sequence[Candidate], *stages: ScoreStage) -> dict[UUID, str]:
    passed = {candidate.chunk_id for candidate in kept}
    names = " or ".join(stage.value for stage in stages)
    return {one.chunk_id: f"below the {names} threshold" for one in of if one.chunk_id not in passed}


def _place(run: _Run, candidate: Candidate) -> Place:
    return Place(
        candidate=candidate,
        document=run.found.documents[candidate.fragment.version],
        knowledge_base=run.targets[candidate.target].knowledge_base,
    )


def _result(run: _Run, rank: int, place: Place, context: ContextBlock | None) -> Result:
    fragment = place.candidate.fragment
    return Result(
        rank=rank,
        place=place,
        citation=context.number_of(fragment.chunk_id) if context else 0,
        preview=preview_of(fragment.text),
        display=display_fields(
            place.document, fragment.metadata, heading_path=fragment.heading_path, pages=fragment.pages
        ),
        duplicates=tuple(_place(run, duplicate) for duplicate in place.candidate.duplicates),
    )


def _reports(run: _Run) -> tuple[KnowledgeBaseReport, ...]:
    answered = {lists.target.position for lists in run.found.lists if lists.dense or lists.keyword}
    reports: list[KnowledgeBaseReport] = []
    for position, selector in enumerate(run.question.selectors):
        error = run.failures.get(position)
        target = run.targets.get(position)
        hits = len(run.passed.get(position, ()))
        if error is not None:
            status = status_of(error)
        elif hits:
            status = Status.OK
        else:
            status = Status.BELOW_THRESHOLD if position in answered else Status.EMPTY
        reports.append(
            KnowledgeBaseReport(
                knowledge_base=selector.knowledge_base,
                id=target.knowledge_base.public_id if target else None,
                status=status,
                hits=hits,
                milliseconds=run.found.seconds.get(position, 0.0) * 1000,
                error=error,
            )
        )
    return tuple(reports)
