"""The port behind which an embedding model stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from kbmesh_rpc.errors import KbmeshError
from numpy.typing import NDArray


class InputType(StrEnum):
    """The role a text plays. Decides which prefix the model puts before it."""

    QUERY = "query"
    DOCUMENT = "document"


class Truncation(StrEnum):
    """What to do with a text over the model's limit."""

    END = "end"
    START = "start"
    NONE = "none"


class Priority(StrEnum):
    """The lane a call waits in."""

    INTERACTIVE = "interactive"
    BULK = "bulk"


ELSEWHERE = "remote"
"""Device of a model that runs at a vendor's."""


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What callers may know of a model."""

    name: str
    fingerprint: str
    """Two vectors may be compared only where it is the same."""
    dimension: int
    max_tokens: int
    """Tokens it reads at most, special ones and prefix included."""
    pooling: str
    normalized: bool
    matryoshka_dimensions: tuple[int, ...]
    query_prefix: str
    document_prefix: str
    device: str
    """Device in use: "cpu", "cuda:0 (NVIDIA H200)", "remote"."""
    precision: str
    """Precision in use: "fp32", "fp16", "int8", "unknown" where it runs elsewhere."""
    backend: str
    """Which implementation of the port it is."""


@dataclass(frozen=True, kw_only=True)
class TextReceipt:
    """What became of one text."""

    tokens: int = 0
    """Tokens that the model read, special ones included."""
    tokens_cut: int = 0
    tokens_estimated: bool = False
    """Whether both numbers are estimates, because the model runs elsewhere and does not tell them for each text."""
    error: KbmeshError | None = None
    """Why there is no vector."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where the time of a call went."""

    queue_seconds: float = 0.0
    tokenize_seconds: float = 0.0
    infer_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """Vectors of some texts, in their order."""

    vectors: NDArray[np.float32]
    """(n, dimension); the row of a failed text is zero."""
    receipts: tuple[TextReceipt, ...]
    timings: Timings


@dataclass(frozen=True, kw_only=True)
class TokenCount:
    """Tokens of one text, without truncation."""

    tokens: int
    """Special ones and prefix included."""
    starts: tuple[int, ...] = field(default=(), repr=False)
    """First code point of each token of the text itself, where offsets were asked for."""
    ends: tuple[int, ...] = field(default=(), repr=False)
    """One past the last code point of each token."""
    estimated: bool = False
    """Whether it is an estimate, for want of the model's tokenizer."""


class EmbeddingBackend(Protocol):
    """One loaded model.

    A text that cannot be embedded has its error in its receipt; only what concerns the whole call is raised: QueueFull,
    DeadlineExceeded, ShuttingDown.
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
        """Runs the model over texts of several lengths. Raises where it does not give usable vectors."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: InputType,
        truncation: Truncation,
        priority: Priority,
        deadline: float | None,
    ) -> Embeddings:
        """Vectors of the model's own size. `deadline` is a time of `time.monotonic`."""
        ...

    async def count_tokens(
        self, texts: Sequence[str], *, input_type: InputType, with_offsets: bool
    ) -> tuple[TokenCount, ...]: ...

    async def close(self) -> None:
        """Ends what runs and gives memory back."""
        ...
