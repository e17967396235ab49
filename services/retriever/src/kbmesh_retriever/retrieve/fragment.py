"""A chunk that was found, and what each stage says of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Self, TypeVar
from uuid import UUID

from kbmesh_rpc.errors import DependencyInvalidResponse

from kbmesh_retriever.stores.port import Hit, Scope, StoredChunk

D = TypeVar("D")


@dataclass(frozen=True, kw_only=True)
class Span:
    """Where a fragment stands in its document: code points, and bytes of UTF-8."""

    start: int
    end: int
    start_byte: int
    end_byte: int


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """A chunk as the store gave it."""

    chunk_id: UUID
    knowledge_base_id: UUID
    document_id: UUID
    generation: int
    index: int
    """Place in its document, from 0."""
    text: str = field(repr=False)
    context: str = field(repr=False)
    span: Span
    chunk_type: str
    heading_path: tuple[str, ...]
    pages: tuple[int, ...]
    metadata: Mapping[str, str] = field(repr=False)
    blank_before: str = field(repr=False, default="")
    """White space that parts it from the chunks before it, as far as it is known."""

    @classmethod
    def from_checked_hit(cls, hit: Hit, scope: Scope) -> Self:
        """Of a hit that `check_hit` let pass. Raises DependencyInvalidResponse where its payload cannot be used, or is
        another tenant's or knowledge base's: the store's filter is the wall, and this is the guard on it."""
        return cls._read(hit.id, hit.payload, scope)

    @classmethod
    def from_chunk(cls, chunk: StoredChunk, scope: Scope) -> Self:
        """Raises as `from_checked_hit`."""
        return cls._read(chunk.id, chunk.payload, scope)

    @classmethod
    def _read(cls, chunk_id: UUID, payload: Mapping[str, Any], scope: Scope) -> Self:
        if payload.get("tenant") != scope.tenant or payload.get("knowledge_base_id") != scope.knowledge_base_text:
            raise DependencyInvalidResponse(
                "qdrant", f"point {chunk_id} is not of the knowledge base that was searched"
            )
        try:
            document_id = _uuid(payload["document_id"])
            generation, index, start, end, start_byte, end_byte = map(int, _numbers(payload))
            heading_path, pages = payload.get("heading_path"), payload.get("pages")
            metadata = payload.get("metadata")
            return _made(
                cls,
                {
                    "chunk_id": chunk_id,
                    "knowledge_base_id": scope.knowledge_base_id,
                    "document_id": document_id,
                    "generation": generation,
                    "version": (document_id, generation),
                    "index": index,
                    "text": str(payload["text"]),
                    "context": str(payload.get("context") or ""),
                    "span": _made(Span, {"start": start, "end": end, "start_byte": start_byte, "end_byte": end_byte}),
                    "chunk_type": str(payload.get("chunk_type") or ""),
                    "heading_path": tuple(map(str, heading_path)) if heading_path else (),
                    "pages": tuple(map(int, pages)) if pages else (),
                    "metadata": _texts(metadata) if metadata else {},
                    "blank_before": str(payload.get("blank_before") or ""),
                },
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DependencyInvalidResponse("qdrant", f"point {chunk_id} has a payload that cannot be read") from error

    @cached_property
    def version(self) -> tuple[UUID, int]:
        """The document and which version of it. Every stage asks for it."""
        return self.document_id, self.generation

    @property
    def passage(self) -> str:
        """What a reranker reads: the text after what it needs to be understood."""
        return f"{self.context}\n\n{self.text}" if self.context else self.text


def check_hit(hit: Hit) -> None:
    """Raises DependencyInvalidResponse where its id or score cannot be used."""
    if not isinstance(hit.id, UUID):
        raise DependencyInvalidResponse("qdrant", "a point has an id that is no UUID")
    if not math.isfinite(hit.score):
        raise DependencyInvalidResponse("qdrant", f"point {hit.id} has a score that is no number")


_numbers = itemgetter("generation", "index", "start", "end", "start_byte", "end_byte")

_uuid = lru_cache(maxsize=16_384)(UUID)
"""The chunks of a document all name it, and so do those of the next question."""


def _made(kind: type[D], values: dict[str, Any]) -> D:
    """As the class itself, for a frozen dataclass that checks nothing, of which `values` are all fields: its own
    constructor sets one after the other, which takes three times as long. A list has hundreds of fragments."""
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in metadata.items()}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Each of its own meaning. None where the stage did not see the candidate."""

    vector: float | None = None
    keyword: float | None = None
    fused: float | None = None
    rerank_logit: float | None = None
    rerank_probability: float | None = None
    max_sim: float | None = None
    final: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Places in each list, from 1. None where the list does not have it."""

    vector: int | None = None
    keyword: int | None = None
    fused: int | None = None
    rerank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A fragment on its way through the stages."""

    fragment: Fragment
    target: int
    """Place in the request of the knowledge base it comes from, from 0."""
    scores: Scores
    ranks: Ranks
    duplicates: tuple["Candidate", ...] = ()
    """Those that say the same and were dropped for it."""

    @property
    def chunk_id(self) -> UUID:
        return self.fragment.chunk_id

    @property
    def fused(self) -> float:
        """The fused score; 0 before fusion."""
        return self.scores.fused or 0.0

    @property
    def final(self) -> float:
        """What candidates are ordered by; 0 before it is known."""
        return self.scores.final or 0.0

    def with_scores(self, **scores: float | None) -> "Candidate":
        return _changed(self, scores=_changed(self.scores, **scores))

    def with_ranks(self, **ranks: int | None) -> "Candidate":
        return _changed(self, ranks=_changed(self.ranks, **ranks))


def _changed(value: D, /, **changes: Any) -> D:
    """As `dataclasses.replace`, for classes that check nothing: a retrieval makes thousands of copies, and there that
    was most of its time."""
    return _made(type(value), {**vars(value), **changes})
