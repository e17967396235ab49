"""What one retrieval knows so far; the stages hand it on."""

from dataclasses import dataclass, field
from uuid import UUID

from kbmesh_rpc.errors import KbmeshError

from kbmesh_retriever.retrieve.journal import Journal
from kbmesh_retriever.retrieve.plan import Plan, Target
from kbmesh_retriever.retrieve.request import Question
from kbmesh_retriever.retrieve.search import SearchOutcome
from kbmesh_retriever.retrieve.time_budget import TimeBudget


@dataclass(kw_only=True)
class Run:
    """Of one question."""

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
