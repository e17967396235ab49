"""What a retrieval gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kbmesh_rpc.errors import KbmeshError

from kbmesh_retriever.attribution.context_block import ContextBlock
from kbmesh_retriever.attribution.display import Display
from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.retrieve.expansion import Expansion
from kbmesh_retriever.retrieve.fragment import Candidate
from kbmesh_retriever.retrieve.fusion import FusionMethod
from kbmesh_retriever.retrieve.stage import Degradation, RerankMethod, Stage, Status, Strategy


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fragment stands, with what is known of its document."""

    candidate: Candidate
    document: Document
    knowledge_base: KnowledgeBase


@dataclass(frozen=True, kw_only=True)
class Result:
    """A fragment that answers the query."""

    rank: int
    """From 1."""
    place: Place
    citation: int
    """Its number in the context block, from 1; 0 where it is not in it."""
    preview: str
    display: Display
    duplicates: tuple[Place, ...]
    """Other places that say the same."""
    expansion: Expansion | None = None
    """The fragment with its neighbours, where they were asked for and could be read."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBaseReport:
    """What one knowledge base gave."""

    knowledge_base: str
    """As the request called it."""
    id: UUID | None
    status: Status
    hits: int
    """Distinct chunks that passed all thresholds."""
    milliseconds: float
    error: KbmeshError | None


@dataclass(frozen=True, kw_only=True)
class CandidateTrace:
    """A candidate at a stage."""

    chunk_id: UUID
    knowledge_base: str
    rank: int
    score: float
    dropped: str = ""
    """Why it went no further; empty where it did."""
    external_id: str = ""
    """The caller's name for its document."""
    title: str = ""
    """How its document is called: as a result of it is."""


@dataclass(frozen=True, kw_only=True)
class StageTrace:
    """What a stage saw."""

    stage: Stage
    label: str
    milliseconds: float
    started_milliseconds: float = 0.0
    """After the call began."""
    note: str = ""
    """What it decided, for a person."""
    candidates: tuple[CandidateTrace, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question."""

    results: tuple[Result, ...]
    reports: tuple[KnowledgeBaseReport, ...]
    """In the order of the request."""
    degradations: tuple[Degradation, ...]
    timings: Mapping[str, float]
    """Milliseconds by stage, and "total"."""
    context: ContextBlock | None
    rerank_method: RerankMethod
    strategy: Strategy
    fusion: FusionMethod | None
    """None where there was one channel alone."""
    queries: tuple[str, ...]
    explanation: tuple[StageTrace, ...]
    is_final: bool
    """False for the fused order that a stream gives before the reranked one."""
