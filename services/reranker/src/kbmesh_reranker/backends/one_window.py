"""Scoring what fits into one window, and showing tokens: what a backend with a tokenizer of its own can do besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from kbmesh_onnx.token_reader import TokenReader
from kbmesh_rpc.errors import KbmeshError

from kbmesh_reranker.backends.port import Scores


class Truncation(StrEnum):
    """What to do with a document that does not fit into one window."""

    END = "end"
    START = "start"
    NONE = "none"
    """It fails as TextTooLong."""


@dataclass(frozen=True, kw_only=True)
class WindowScores:
    """Scores, and what they cost."""

    scores: Scores
    tokens_read: int
    """Tokens that the model read: query, documents and special ones."""


@runtime_checkable
class OneWindowBackend(Protocol):
    """A backend that can cut documents in place of reading them window by window."""

    @property
    def token_reader(self) -> TokenReader: ...

    async def score_one_window(
        self, query: str, documents: Sequence[str], *, truncation: Truncation, deadline: float | None
    ) -> WindowScores:
        """Scores each document, of which one window is read.

        Raises what `score` raises, and before the model runs the error of the first document that it cannot be shown:
        TextTooLong where it may not be cut.
        """
        ...


def raise_first(documents: Sequence[object]) -> None:
    """Raises the first error among tokenised documents."""
    for document in documents:
        if isinstance(document, KbmeshError):
            raise document
