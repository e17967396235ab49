"""A question's options and its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from kbmesh_client.chunks import Span
from kbmesh_client.documents import ItemError
from kbmesh_client.enums import (
    CacheState,
    DisplayKind,
    FusionMethod,
    KnowledgeBaseStatus,
    RerankMethod,
    RetrievalStrategy,
    ScoreStage,
    SourceType,
    Stage,
)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A test of one field of a document: one of some values, or a range of numbers."""

    field: str
    """ "source_type", "document_id", "external_id", "media_type", "strategy", "chunk_type", "author", "tags", "time"
    (seconds since 1970 UTC, a range), or "metadata.NAME"."""
    any_of: Sequence[str] = ()
    """The field has one of these values."""
    gte: float | None = None
    """The field is a number not below this."""
    lte: float | None = None
    """The field is a number not above this."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Keeps what passes all of `all`, at least one of `any` (where there are some) and none of `none`."""

    all: Sequence[Condition] = ()
    """Each must hold. At most 20."""
    any: Sequence[Condition] = ()
    """One must hold. At most 20."""
    none: Sequence[Condition] = ()
    """None may hold. At most 20."""


FilterLike = Filter | Mapping[str, str | Sequence[str]]
"""A filter, or its short form: {"source_type": "SLACK", "metadata.team": ["ops", "data"]}, where each must hold."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBaseSelector:
    """A knowledge base to search, and how."""

    knowledge_base: str
    """Name or id."""
    max_results: int | None = None
    """Keeps at most so many of its hits in the answer."""
    min_score: float | None = None
    """Drops hits whose score at `min_score_stage` is below."""
    min_score_stage: ScoreStage | str = ScoreStage.VECTOR
    """The stage of `min_score`."""
    weight: float | None = None
    """Weight of its lists in fusion."""
    filter: FilterLike | None = None
    """Applies to this knowledge base besides the request's filter."""


KnowledgeBasesLike = str | KnowledgeBaseSelector | Sequence[str | KnowledgeBaseSelector]
"""A name, a selector, or several of either."""


@dataclass(frozen=True, kw_only=True)
class FusionOptions:
    """How the lists of a query become one order."""

    method: FusionMethod | str | None = None
    """The method; the server's own choice by default."""
    vector_weight: float | None = None
    """Weight of vector lists, 0 to 100. The method's own by default."""
    keyword_weight: float | None = None
    """Weight of keyword lists, 0 to 100. The method's own by default."""
    rrf_k: int | None = None
    """The constant of RRF, 1 to 1000. 60 by default."""


class RetrievalOptions(TypedDict, total=False):
    """How to look, for `retrieve` and for profiles. What is left out, or None, is not said: there the profile's word
    holds, else the server's default."""

    strategy: RetrievalStrategy | str | None
    """HYBRID_RERANK by default."""
    top_k: int | None
    """Results to return; 5 by default."""
    filter: FilterLike | None
    """Keeps only what passes, such as {"source_type": "SLACK"}."""
    context_budget_tokens: int | None
    """Size of the context block; 2000 by default, 0 leaves it out."""
    rerank_top_n: int | None
    """Candidates to rerank; 20 by default."""
    fusion: FusionOptions | None
    """How lists are fused."""
    thresholds: Mapping[ScoreStage | str, float] | None
    """Least score at a stage, for all knowledge bases that have none of their own on it."""
    max_results_per_document: int | None
    """Results of one document at most."""
    diversity: float | None
    """0 orders by relevance alone, 1 by difference alone; 0 by default."""
    expand: int | None
    """Neighbouring chunks on each side that come with each result; 0 by default."""
    hypothetical_answer: bool
    """ADVANCED also searches with the vector of a hypothetical answer."""
    context_tokenizer: str
    """Tokenizer that counts the context block, by a name the server knows."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How an agent asks, under one name."""

    name: str
    """Unique within the tenant."""
    description: str
    """For people."""
    knowledge_bases: tuple[KnowledgeBaseSelector, ...]
    """What is searched where a request names none."""
    options: RetrievalOptions
    """What holds where a request says nothing."""
    created_at: datetime | None
    """When it was made, in UTC."""
    updated_at: datetime | None
    """When it was last changed, in UTC."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a result, each of its own meaning. None where the stage did not see it."""

    vector: float | None
    """Cosine similarity of query and passage, -1 to 1."""
    keyword: float | None
    """BM25 score, above 0."""
    fused: float | None
    """Score of fusion, whose scale is the method's own: with RRF the sum of weight / (k + rank) over its lists."""
    rerank_logit: float | None
    """Raw output of the cross-encoder."""
    rerank_probability: float | None
    """Sigmoid of that."""
    final: float | None
    """What results are ordered by."""
    max_sim: float | None
    """Mean over query tokens of the best cosine with a passage token."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The places of a result in each list, from 1. None where the list does not have it."""

    vector: int | None
    keyword: int | None
    fused: int | None
    rerank: int | None


@dataclass(frozen=True, kw_only=True)
class DocumentSource:
    """The document a result comes from."""

    id: str
    """UUID of the document."""
    external_id: str
    """The caller's name for it."""
    title: str
    """Title to show."""
    source_type: SourceType
    """Kind of place it comes from."""
    uri: str
    """Where a person can open it."""
    media_type: str
    """Media type."""
    author: str
    """Who wrote it."""
    created_at: datetime | None
    """When it was written, in UTC."""
    ingested_at: datetime | None
    """When its current version was taken in, in UTC."""


@dataclass(frozen=True, kw_only=True)
class DisplayField:
    """A labelled line to show with a result, such as ("Channel", "#ops")."""

    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class FurtherCitation:
    """Another place that says the same."""

    document: DocumentSource
    knowledge_base: str
    span: Span
    chunk_id: str
    link: str = ""
    """What to open: as in `RetrieveResult`."""


@dataclass(frozen=True, kw_only=True)
class RetrieveResult:
    """A fragment that answers the query."""

    rank: int
    """Place in the answer, from 1."""
    score: float
    """Equals `scores.final`."""
    scores: Scores
    """Each stage's score."""
    ranks: Ranks
    """Each stage's rank."""
    text: str
    """The exact slice of the document."""
    context: str
    """What the slice needs to be understood."""
    citation: int
    """Number of the citation in the context block, from 1. Zero where the budget left it out."""
    document: DocumentSource
    """Where it comes from."""
    knowledge_base: str
    """Name of the knowledge base."""
    knowledge_base_id: str
    """UUID of the knowledge base."""
    span: Span
    """Where in the document."""
    chunk_id: str
    """UUID of the chunk."""
    chunk_type: str
    """What kind of piece it is."""
    heading_path: tuple[str, ...]
    """Headings above it, outermost first."""
    pages: tuple[int, ...]
    """Pages it stands on."""
    metadata: Mapping[str, str]
    """The chunk's metadata."""
    preview: str
    """The first words, for a list."""
    display: tuple[DisplayField, ...]
    """What to show beside it, by kind of source."""
    duplicates: tuple[FurtherCitation, ...]
    """Other places that say the same."""
    tags: tuple[str, ...] = ()
    """Words of the document to filter by."""
    display_kind: DisplayKind = DisplayKind.GENERIC
    """The kind of block that `display` makes."""
    link: str = ""
    """What a person opens: the document's URI, or a presigned URL where the server makes those."""
    link_expires_at: datetime | None = None
    """When the link ends to work, in UTC. None where it does not."""
    expanded_text: str = ""
    """The slice with its neighbours, where `expand` asked for them."""
    expanded_span: Span | None = None
    """Where that stands in the document."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBaseReport:
    """What one knowledge base gave."""

    knowledge_base: str
    """What the request called it."""
    id: str
    """Its id. Empty where it was not found."""
    status: KnowledgeBaseStatus
    """What it gave."""
    hits: int
    """Distinct chunks it gave after thresholds."""
    milliseconds: float
    """How long it took."""
    error: ItemError | None
    """Why, where the status is not OK or EMPTY."""


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """A stage that was skipped or fell back, and why."""

    stage: Stage
    """The stage."""
    reason: str
    """Why, for a machine: the name of an ErrorReason without its prefix."""
    message: str
    """What was done instead, for a person."""


@dataclass(frozen=True, kw_only=True)
class NotApplied:
    """An option of the profile that does nothing beside what the request says, and was left out."""

    field: str
    """Its path in the request, such as "rerank_top_n" or "fusion.rrf_k"."""
    message: str
    """Why, for a person."""


@dataclass(frozen=True, kw_only=True)
class Citation:
    """One numbered source of the context block."""

    number: int
    chunk_id: str
    label: str
    """Title, place and link in one line."""
    cut: bool = False
    """Whether its text was cut after a sentence to fit in the budget."""


@dataclass(frozen=True, kw_only=True)
class ContextBlock:
    """Text to paste into a prompt."""

    text: str
    """Numbered fragments, [1] [2], with their sources."""
    tokens: int
    """Tokens of the text."""
    estimated: bool
    """Whether the tokens were estimated because no tokenizer could be reached."""
    citations: tuple[Citation, ...]
    """What the numbers stand for."""


@dataclass(frozen=True, kw_only=True)
class CandidateTrace:
    """A candidate at a stage."""

    chunk_id: str
    knowledge_base: str
    rank: int
    score: float
    dropped: str
    """Why it was dropped here. Empty where it went on."""
    external_id: str = ""
    """The caller's name for its document."""
    title: str = ""
    """Title of its document."""


@dataclass(frozen=True, kw_only=True)
class StageTrace:
    """What a stage saw."""

    stage: Stage
    label: str
    """Which list, such as "vector ops-docs" or "query 2"."""
    milliseconds: float
    candidates: tuple[CandidateTrace, ...]
    """The candidates, best first."""
    started_milliseconds: float = 0.0
    """When it began, after the call did."""
    note: str = ""
    """What it decided, for a person: the trust in each channel, why something was skipped."""


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """The ranked, attributed answer to a question."""

    results: tuple[RetrieveResult, ...]
    """The results, best first."""
    knowledge_bases: tuple[KnowledgeBaseReport, ...]
    """What each knowledge base gave, in the order of the request."""
    degraded: tuple[Degradation, ...]
    """Stages that were skipped or fell back. Empty for a full answer."""
    timings: Mapping[str, float]
    """Milliseconds by stage, and "total"."""
    context: ContextBlock | None
    """Text to paste into a prompt. None where the budget was 0."""
    rerank_method: RerankMethod
    """How the reranker came to its order."""
    strategy: RetrievalStrategy
    """The strategy that was used."""
    queries: tuple[str, ...]
    """The queries that were searched: the caller's own, then rephrasings."""
    explanation: tuple[StageTrace, ...]
    """What each stage saw, where it was asked for."""
    request_id: str
    """The request's id, to look up in logs and traces."""
    fusion: FusionMethod | None = None
    """How lists were fused. None where nothing was."""
    cache: CacheState = CacheState.UNASKED
    """Where the answer comes from."""
    not_applied: tuple[NotApplied, ...] = ()
    """Options of the profile that do nothing beside what the request says, and were left out."""
    is_final: bool = True
    """False for the fused order that `retrieve_stream` gives before the reranked one."""
