"""How long each step usually takes, learned from what it took last."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum

from kbmesh_retriever.mesh.usual_time import Window


class Step(StrEnum):
    """What time is kept for."""

    RESOLVE = "resolve"
    REPHRASE = "rephrase"
    EMBED = "embed"
    SEARCH = "search"
    """One knowledge base."""
    VALIDATE = "validate"
    """The catalog query about all hits."""
    RANK = "rank"
    """Fusion and the search for duplicates."""
    RERANK_ONE = "rerank_one"
    """One fragment of those that are reranked together."""
    FINISH = "finish"
    """Attribution and the context block."""


DEFAULT_SECONDS: Mapping[Step, float] = {
    Step.RESOLVE: 0.005,
    Step.REPHRASE: 1.5,
    Step.EMBED: 0.05,
    Step.SEARCH: 0.05,
    Step.VALIDATE: 0.005,
    Step.RANK: 0.005,
    Step.RERANK_ONE: 0.02,
    Step.FINISH: 0.01,
}
"""The 95th percentile that counts until a step was measured a few times."""


class Estimates:
    """Of all steps, for one process."""

    def __init__(
        self,
        defaults: Mapping[Step, float] = DEFAULT_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._windows = {step: Window(defaults[step], wary=step is Step.RERANK_ONE, clock=clock) for step in Step}

    def p95(self, *steps: Step) -> float:
        """Seconds that these take one after the other, each in 95 of 100 cases."""
        return sum(self._windows[step].quantile(0.95) for step in steps)

    def timing(self, step: Step) -> AbstractContextManager[None]:
        """Observes what happens inside, where it ends well."""
        return self._windows[step].timing()

    def observe(self, step: Step, seconds: float) -> None:
        self._windows[step].observe(seconds)

    def observe_cut_off(self, step: Step, seconds: float) -> None:
        self._windows[step].observe_cut_off(seconds)
