"""How much of the time left each stage of a retrieval may take, from what each usually takes."""

from dataclasses import dataclass

from kbmesh_retriever.retrieve.estimates import Estimates, Step
from kbmesh_retriever.retrieve.request import Question, RetrievalLimits
from kbmesh_retriever.retrieve.time_budget import TimeBudget

_AFTER_SEARCH = (Step.VALIDATE, Step.RANK, Step.FINISH)
_AFTER_EMBEDDING = (Step.SEARCH, *_AFTER_SEARCH)
_AFTER_REPHRASING = (Step.EMBED, *_AFTER_EMBEDDING)
_SLACK_SHARE = 0.5
"""Of the time to spare that a stage may take before the search."""
_SEARCH_SLACK_SHARE = 0.8
"""The same for the search: one slow knowledge base must leave the others time to be attributed."""
_SEARCH_SLACK_SHARE_BEFORE_RERANK = 0.6
"""The same where reranking is to follow."""
FEWEST_TO_RERANK = 5
"""With time for fewer fragments, and more than these to rerank, none are: moving so few about is not worth the wait."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Of one server."""

    estimates: Estimates
    limits: RetrievalLimits
    reranking: bool
    """Whether there is a reranker."""

    def rephrase_seconds(self, question: Question, budget: TimeBudget) -> float:
        return budget.grant(
            self.estimates.p95(Step.REPHRASE),
            later=self.estimates.p95(*_AFTER_REPHRASING),
            wanted=self._rerank_seconds(question),
            slack_share=_SLACK_SHARE,
            needed=False,
            at_most=self.limits.rephrase_timeout_seconds,
        )

    def embed_seconds(self, question: Question, budget: TimeBudget) -> float:
        """A strategy that can search by keyword does not wait longer than `embed_timeout_seconds`."""
        hybrid = question.strategy.uses_keywords
        own, later = self.estimates.p95(Step.EMBED), self.estimates.p95(*_AFTER_EMBEDDING)
        if not hybrid:
            return budget.grant(own, later=later, slack_share=_SEARCH_SLACK_SHARE)
        return budget.grant(
            own,
            later=later,
            wanted=self._rerank_seconds(question),
            slack_share=_SLACK_SHARE,
            needed=False,
            at_most=self.limits.embed_timeout_seconds,
        )

    def search_seconds(self, question: Question, budget: TimeBudget) -> float:
        wanted = self._rerank_seconds(question)
        return budget.grant(
            self.estimates.p95(Step.SEARCH),
            later=self.estimates.p95(*_AFTER_SEARCH),
            wanted=wanted,
            slack_share=_SEARCH_SLACK_SHARE_BEFORE_RERANK if wanted else _SEARCH_SLACK_SHARE,
            at_most=self.limits.search_timeout_seconds,
        )

    def rerank_seconds(self, budget: TimeBudget) -> float:
        left = budget.seconds() - self.estimates.p95(Step.FINISH)
        return min(max(left, 0.0), self.limits.rerank_timeout_seconds)

    def affordable(self, wanted: int, seconds: float) -> int:
        """How many of `wanted` fragments can be reranked in that time; 0 where it is not worth it."""
        each = self.estimates.p95(Step.RERANK_ONE)
        count = wanted if each * wanted <= seconds else int(seconds / each)
        return count if count >= min(wanted, FEWEST_TO_RERANK) else 0

    def _rerank_seconds(self, question: Question) -> float:
        if not (self.reranking and question.strategy.reranks):
            return 0.0
        return self.estimates.p95(Step.RERANK_ONE) * question.rerank_top_n
