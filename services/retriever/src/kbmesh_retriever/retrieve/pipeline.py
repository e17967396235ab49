"""A question from its knowledge bases to its answer, under one deadline: finding, ranking, finishing."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence

from kbmesh_rpc.deadline import Deadline

from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.catalog.port import CatalogReader
from kbmesh_retriever.llm import Rephraser
from kbmesh_retriever.mesh.port import EmbedderPort, RerankerPort
from kbmesh_retriever.retrieve import metrics
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.estimates import Estimates
from kbmesh_retriever.retrieve.finding import Finder
from kbmesh_retriever.retrieve.finishing import Finisher
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.pace import Pace
from kbmesh_retriever.retrieve.ranking import Ranker
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest
from kbmesh_retriever.retrieve.rerank import in_fused_order
from kbmesh_retriever.retrieve.run import Run
from kbmesh_retriever.stores.port import StoreReader


class Retrieval:
    """Answers questions. `reranker` and `rephraser` are None where none is configured."""

    def __init__(
        self,
        *,
        catalog: CatalogReader,
        store: StoreReader,
        embedder: EmbedderPort,
        reranker: RerankerPort | None,
        rephraser: Rephraser | None,
        limits: RetrievalLimits,
        tokenizers: ContextTokenizers | None = None,
        estimates: Estimates | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        pace = Pace(estimates=estimates or Estimates(), limits=limits, reranking=reranker is not None)
        self._finder = Finder(
            catalog=catalog,
            store=store,
            embedder=embedder,
            rephraser=rephraser,
            pace=pace,
            limits=limits,
            clock=clock,
        )
        self._ranker = Ranker(reranker=reranker, pace=pace)
        self._finisher = Finisher(
            store=store, embedder=embedder, tokenizers=tokenizers or ContextTokenizers({}), pace=pace
        )

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
        DependencyUnavailable (before anything was ranked), and for VECTOR_ONLY what the embedder raises."""
        run = await self._finder.find(request, tenant, principals, deadline)
        survivors = self._ranker.survivors(run)
        return await self._finished(run, survivors)

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
        run = await self._finder.find(request, tenant, principals, deadline)
        survivors = self._ranker.survivors(run)
        if run.question.strategy.reranks and survivors:
            yield await self._finisher.finish(run, in_fused_order(survivors), is_final=False)
        yield await self._finished(run, survivors)

    async def _finished(self, run: Run, survivors: Sequence[Candidate]) -> Answer:
        answer = await self._finisher.finish(run, await self._ranker.reranked(run, survivors), is_final=True)
        metrics.count(answer)
        metrics.count_served(answer, answer.strategy)
        return answer
