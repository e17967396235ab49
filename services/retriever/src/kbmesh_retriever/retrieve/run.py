"""What one retrieval knows so far; the stages hand it on."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

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
    passed: Counter[int] = field(default_factory=Counter)
    """How many chunks of each knowledge base passed all thresholds so far, by place in the request."""

    @cached_property
    def targets(self) -> dict[int, Target]:
        return {target.position: target for target in self.plan.targets}
