"""The ports to the other services of the mesh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from kbmesh_rpc.errors import KbmeshError
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """An embedding model that the embedder serves."""

    name: str
    fingerprint: str
    dimension: int
    max_tokens: int
    provider: str = "onnx"
    """Who serves it: "onnx" where the embedder runs it itself, or the name of a remote provider."""


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """Vectors of some texts, in their order."""

    vectors: NDArray[np.float32]
    """(n, dimension); the row of a failed text is zero."""
    errors: tuple[KbmeshError | None, ...]
    tokens: tuple[int, ...]
    tokens_cut: tuple[int, ...]
    model: str
    fingerprint: str
    queue_seconds: float = 0.0
    """Time in which the model worked on none of the texts, as far as the embedder tells."""


class EmbedderPort(Protocol):
    """Turns texts into vectors. Raises ModelNotFound, ModelMismatch, QueueFull, DependencyUnavailable, DeadlineExceeded
    or DependencyInvalidResponse (fewer rows than texts, another dimension)."""

    async def find_model(self, name: str) -> ModelInfo:
        """The model of that name, or the default where the name is empty. Raises ModelNotFound."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded: ...

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]: ...


@dataclass(frozen=True, kw_only=True)
class Relevance:
    """The score of one document."""

    index: int
    logit: float | None
    probability: float | None
    max_sim: float | None
    error: KbmeshError | None


@dataclass(frozen=True, kw_only=True)
class Reranked:
    """Scores, best first."""

    method: Literal["cross_encoder", "late_interaction"]
    model: str
    fingerprint: str = ""
    results: tuple[Relevance, ...]


class RerankerPort(Protocol):
    """Scores documents against a query. Raises ModelNotReady, QueueFull, DependencyUnavailable, DeadlineExceeded or
    DependencyInvalidResponse."""

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked: ...


@dataclass(frozen=True, kw_only=True)
class SourceDocument:
    """A document to cut."""

    content: str | bytes = field(repr=False)
    media_type: str = ""
    filename: str = ""
    source_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a document."""

    index: int
    type: str
    text: str = field(repr=False)
    context: str = field(repr=False)
    embedded_text: str = field(repr=False)
    """What is embedded: `context`, a blank line and `text` unless the strategy says otherwise."""
    start: int
    end: int
    start_byte: int
    end_byte: int
    heading_path: tuple[str, ...]
    pages: tuple[int, ...]
    token_count: int | None
    metadata: Mapping[str, str]
    embedding_excluded: bool = False
    """Whether the caller asked that nothing of it be embedded. It is found by its words alone."""
    blank_before: str = ""
    """White space that parts it from the chunks before it, as far as it is known."""


@dataclass(frozen=True, kw_only=True)
class Warned:
    """Something that went less than well."""

    reason: str
    message: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Chunked:
    """The chunks of a document and what became of it."""

    chunks: tuple[Chunk, ...]
    strategy: str
    media_type: str
    source_type: str
    title: str
    metadata: Mapping[str, str]
    chunking_fingerprint: str
    warnings: tuple[Warned, ...]


class ChunkerPort(Protocol):
    """Cuts documents. Raises InvalidField, DocumentEmpty, DocumentUnreadable, DocumentTooLarge, UnsupportedMediaType,
    DependencyUnavailable or DeadlineExceeded."""

    async def chunk(
        self, document: SourceDocument, *, chunking: Mapping[str, Any], embedding_model: str
    ) -> Chunked: ...

    async def fingerprint(self) -> str:
        """`chunker_version` of ListStrategies, part of what decides whether a document has to be cut again."""
        ...

    async def strategies(self) -> frozenset[str]:
        """Names of the strategies it offers, such as "STRATEGY_FIXED"."""
        ...
