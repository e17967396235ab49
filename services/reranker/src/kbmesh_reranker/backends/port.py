"""The port behind which a reranking model stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kbmesh_rpc.errors import KbmeshError


class Method(StrEnum):
    """The way a score comes about."""

    CROSS_ENCODER = "cross_encoder"
    """The model reads query and document together and gives a logit."""
    LATE_INTERACTION = "late_interaction"
    """Token vectors of query and document are compared (MaxSim); there is no logit."""


class Priority(StrEnum):
    """The lane a call waits in."""

    INTERACTIVE = "interactive"
    BULK = "bulk"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a caller wants his documents read."""

    priority: Priority = Priority.INTERACTIVE
    max_windows: int | None = None
    """Windows of one document. None leaves it to the server, whose limit holds in any case."""
    may_cut: bool = True
    """Whether a document that is longer than its windows is cut. Else it fails as TextTooLong."""


DEFAULT_READING = Reading()


ELSEWHERE = "remote"
"""Device of a model that runs at a vendor's."""


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What callers may know of a model."""

    name: str
    fingerprint: str
    method: Method
    max_tokens: int
    """Tokens it reads at most, special ones included."""
    device: str
    """Device in use: "cpu", "cuda:0 (NVIDIA H200)", "remote"."""
    precision: str
    """Precision in use: "fp32", "fp16", "int8", "unknown" where it runs elsewhere."""
    backend: str
    """Which implementation of the port it is."""


@dataclass(frozen=True, kw_only=True)
class DocumentScore:
    """What became of one document."""

    score: float | None = None
    """The model's own number, higher is better: a logit, or the mean of the best cosines. None where it failed."""
    tokens: int = 0
    """Tokens of the document that the model read."""
    tokens_cut: int = 0
    """Tokens of the document that stand in no window."""
    tokens_estimated: bool = False
    """Whether both numbers are estimates, because the model runs elsewhere and its tokenizer is not at hand."""
    windows: int = 0
    """Windows that were scored; `score` is their maximum."""
    error: KbmeshError | None = None


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where the time of a call went."""

    queue_seconds: float = 0.0
    tokenize_seconds: float = 0.0
    infer_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of some documents, in their order."""

    documents: tuple[DocumentScore, ...]
    query_tokens_cut: int
    """Tokens of the query that the model could not read."""
    timings: Timings


class RerankBackend(Protocol):
    """One loaded model.

    A document that cannot be scored has its error in its score; only what concerns the whole call is raised: EmptyText
    (the query), InferenceFailed (the query), QueueFull, DeadlineExceeded, ModelNotReady, ShuttingDown.
    """

    @property
    def description(self) -> ModelDescription: ...

    @property
    def fault(self) -> str:
        """Why it cannot be run any more: its device is lost, or it hangs. Empty where it can."""
        ...

    @property
    def suspect(self) -> bool:
        """Whether it failed on all that it was given of late, and should be tried with something harmless."""
        ...

    async def warm_up(self) -> None:
        """Runs the model over documents of several lengths. Raises where it does not give usable scores."""
        ...

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        """Scores each document. `deadline` is a time of `time.monotonic`."""
        ...

    async def close(self) -> None:
        """Ends what runs and gives memory back."""
        ...
