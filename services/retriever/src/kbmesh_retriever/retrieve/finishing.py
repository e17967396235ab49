"""From candidates in their order to the answer: attribution, context block, and what each knowledge base gave."""

import asyncio
from collections.abc import Sequence

from kbmesh_retriever.attribution.context_block import ContextBlock, Source, build_context_block
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.attribution.display import DisplayKind, display_of, kind_of
from kbmesh_retriever.attribution.sources import label_of, preview_of
from kbmesh_retriever.mesh.port import EmbedderPort
from kbmesh_retriever.retrieve.answer import Answer, KnowledgeBaseReport, Place, Result
from kbmesh_retriever.retrieve.diversity import diversify
from kbmesh_retriever.retrieve.estimates import Step
from kbmesh_retriever.retrieve.expansion import Expanded, Expansion, expand
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.pace import Pace
from kbmesh_retriever.retrieve.rerank import RerankOutcome
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.retrieve.stage import Degradation, Stage, Status, status_of
from kbmesh_retriever.retrieve.threshold import Allowance
from kbmesh_retriever.retrieve.time_budget import within
from kbmesh_retriever.stores.port import StoreReader

_EXPANSION_SHARE = 0.5
"""Of the time left that reading neighbouring chunks may take."""
_LINED_TYPES = frozenset({"definition", "statements", "lines", "code_block", "table"})
"""Chunks that are cut between lines, not between sentences."""


class Finisher:
    """Makes answers."""

    def __init__(
        self, *, store: StoreReader, embedder: EmbedderPort, tokenizers: ContextTokenizers, pace: Pace
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._tokenizers = tokenizers
        self._limits = pace.limits
        self._estimates = pace.estimates

    async def finish(self, run: Run, outcome: RerankOutcome, *, is_final: bool) -> Answer:
        """`is_final` is False for the fused order that goes before the reranked one; it has no context block, and no
        neighbouring chunks."""
        with run.journal.timing(Stage.ATTRIBUTE), self._estimates.timing(Step.FINISH):
            chosen = await _chosen(run, outcome.candidates)
            expanded = await self._expanded(run, chosen) if is_final and run.question.expand else _as_they_are(chosen)
            places = [_place(run, candidate) for candidate in expanded.candidates]
            wants_context = is_final and run.question.context_budget_tokens > 0
            context = await self._context(run, places, expanded) if wants_context else None
        return Answer(
            results=tuple(_result(run, rank, place, context, expanded) for rank, place in enumerate(places, start=1)),
            reports=_reports(run),
            degradations=tuple(run.journal.degradations),
            timings=run.journal.timings(),
            context=context,
            rerank_method=outcome.method,
            strategy=run.question.strategy,
            fusion=run.question.fusion.method if run.question.strategy.uses_keywords else None,
            queries=run.queries,
            explanation=run.journal.explanation(),
            is_final=is_final,
        )

    async def _expanded(self, run: Run, chosen: Sequence[Candidate]) -> Expanded:
        expanded = await expand(
            self._store,
            chosen,
            run.targets,
            each_side=run.question.expand,
            seconds=run.budget.seconds(share=_EXPANSION_SHARE, at_most=self._limits.expand_timeout_seconds),
        )
        if expanded.failures:
            first = expanded.failures[0]
            count = f"{len(expanded.failures)} knowledge base{'s' if len(expanded.failures) > 1 else ''}"
            message = f"no neighbouring chunks from {count}: {first.message}"
            run.journal.degradations.append(Degradation(stage=Stage.ATTRIBUTE, reason=first.reason, message=message))
        dropped = {part: f"is part of the text around {whole}" for part, whole in expanded.merged.items()}
        run.journal.note(Stage.ATTRIBUTE, chosen, dropped=dropped)
        return expanded

    async def _context(self, run: Run, places: Sequence[Place], expanded: Expanded) -> ContextBlock:
        model = places[0].knowledge_base.embedding_model if places else ""
        name = run.question.context_tokenizer

        async def count(texts: Sequence[str]) -> Sequence[int]:
            if name:
                return await self._tokenizers.count(texts, name=name)
            seconds = run.budget.seconds(at_most=self._limits.count_timeout_seconds)
            return await within(seconds, Stage.ATTRIBUTE, self._embedder.count_tokens(texts, model=model))

        sources = [_source(place, expanded.expansions.get(place.candidate.chunk_id)) for place in places]
        block = await build_context_block(sources, run.question.context_budget_tokens, count)
        if block.uncounted is not None:
            message = f"{block.uncounted.message}: the tokens of the context block were estimated"
            run.journal.degradations.append(
                Degradation(stage=Stage.ATTRIBUTE, reason=block.uncounted.reason, message=message)
            )
        return block


def _as_they_are(candidates: Sequence[Candidate]) -> Expanded:
    return Expanded(candidates=tuple(candidates), expansions={}, merged={}, failures=())


def _source(place: Place, expansion: Expansion | None) -> Source:
    fragment = place.candidate.fragment

    def label(heading_path: Sequence[str], pages: Sequence[int]) -> str:
        return label_of(
            place.document, place.knowledge_base.name, fragment.metadata, heading_path=heading_path, pages=pages
        )

    by_lines = fragment.chunk_type in _LINED_TYPES or kind_of(place.document, fragment.metadata) is DisplayKind.CODE
    alone = Source(
        chunk_id=fragment.chunk_id,
        label=label(fragment.heading_path, fragment.pages),
        context=fragment.context,
        text=fragment.text,
        by_lines=by_lines,
    )
    if expansion is None or expansion.text == fragment.text:
        return alone
    return Source(
        chunk_id=fragment.chunk_id,
        label=label(expansion.heading_path, expansion.pages),
        context=expansion.context,
        text=expansion.text,
        by_lines=by_lines,
        shorter=alone,
    )


async def _chosen(run: Run, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    question = run.question
    allowance = Allowance(run.targets, per_document=question.max_results_per_document)

    def choose() -> tuple[Candidate, ...]:
        return diversify(candidates, diversity=question.diversity, most=question.top_k, admits=allowance.admits)

    # Texts are compared for it, which takes the processor for a while.
    return await asyncio.to_thread(choose) if question.diversity else choose()


def _place(run: Run, candidate: Candidate) -> Place:
    return Place(
        candidate=candidate,
        document=run.found.documents[candidate.fragment.version],
        knowledge_base=run.targets[candidate.target].knowledge_base,
    )


def _result(run: Run, rank: int, place: Place, context: ContextBlock | None, expanded: Expanded) -> Result:
    fragment = place.candidate.fragment
    return Result(
        rank=rank,
        place=place,
        citation=context.number_of(fragment.chunk_id) if context else 0,
        preview=preview_of(fragment.text),
        display=display_of(place.document, fragment.metadata, heading_path=fragment.heading_path, pages=fragment.pages),
        duplicates=tuple(_place(run, duplicate) for duplicate in place.candidate.duplicates),
        expansion=expanded.expansions.get(fragment.chunk_id),
    )


def _reports(run: Run) -> tuple[KnowledgeBaseReport, ...]:
    answered = {lists.target.position for lists in run.found.lists if lists.dense or lists.keyword}
    reports: list[KnowledgeBaseReport] = []
    for position, selector in enumerate(run.question.selectors):
        error = run.failures.get(position)
        target = run.targets.get(position)
        hits = run.passed[position]
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
