"""From candidates in their order to the answer: attribution, context block, and what each knowledge base gave."""

from collections.abc import Sequence

from kbmesh_retriever.attribution.context_block import ContextBlock, Source, build_context_block
from kbmesh_retriever.attribution.sources import display_fields, label_of, preview_of
from kbmesh_retriever.mesh.port import EmbedderPort
from kbmesh_retriever.retrieve.answer import Answer, KnowledgeBaseReport, Place, Result
from kbmesh_retriever.retrieve.diversity import diversify
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retrieve.rerank import RerankOutcome
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.retrieve.stage import Stage, Status, status_of
from kbmesh_retriever.retrieve.threshold import Allowance
from kbmesh_retriever.retrieve.time_budget import within


class Finisher:
    """Makes answers."""

    def __init__(self, *, embedder: EmbedderPort, limits: RetrievalLimits) -> None:
        self._embedder = embedder
        self._limits = limits

    async def finish(self, run: Run, outcome: RerankOutcome, *, is_final: bool) -> Answer:
        """`is_final` is False for the fused order that goes before the reranked one; it has no context block."""
        with run.journal.timing(Stage.ATTRIBUTE):
            chosen = _chosen(run, outcome.candidates)
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

    async def _context(self, run: Run, places: Sequence[Place]) -> ContextBlock:
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


def _chosen(run: Run, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    question = run.question
    allowance = Allowance(run.targets, per_document=question.max_results_per_document)
    return diversify(candidates, diversity=question.diversity, most=question.top_k, admits=allowance.admits)


def _place(run: Run, candidate: Candidate) -> Place:
    return Place(
        candidate=candidate,
        document=run.found.documents[candidate.fragment.version],
        knowledge_base=run.targets[candidate.target].knowledge_base,
    )


def _result(run: Run, rank: int, place: Place, context: ContextBlock | None) -> Result:
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


def _reports(run: Run) -> tuple[KnowledgeBaseReport, ...]:
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
