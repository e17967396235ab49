"""What a caller asks, checked."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.errors import EmptyText, FieldViolation, InvalidField, RequestTooLarge, shown

from kbmesh_retriever.retrieve.fusion import FusionMethod, FusionOptions
from kbmesh_retriever.retrieve.stage import ScoreStage, Strategy
from kbmesh_retriever.stores.conditions import NUMBER_FIELDS, TEXT_FIELDS
from kbmesh_retriever.stores.port import Condition, PointFilter

_METADATA_FIELD = re.compile(r'metadata\.[^"\\]{1,128}')
_MOST_CONDITIONS = 20
_MOST_VALUES = 100
_MOST_NAME_CHARACTERS = 63
"""Of a knowledge base; an id has fewer."""


@dataclass(frozen=True, kw_only=True)
class RetrievalLimits:
    """What a request may ask, and how long each stage may take."""

    max_query_characters: int = 10_000
    max_knowledge_bases: int = 64
    default_top_k: int = 5
    max_top_k: int = 100
    default_rerank_top_n: int = 20
    max_rerank_top_n: int = 200
    default_context_tokens: int = 2000
    max_context_tokens: int = 100_000
    max_expand: int = 5
    """Neighbouring chunks on each side."""
    context_tokenizers: frozenset[str] = frozenset()
    """Names of the tokenizers that may count a context block."""
    search_concurrency: int = 32
    """Searches of one request that run at once."""
    default_deadline_seconds: float = 10.0
    """Of a call that came without one."""
    reserve_seconds: float = 0.05
    """Kept of the caller's deadline for writing the answer; of a short deadline a fifth."""
    search_timeout_seconds: float = 5.0
    """A knowledge base that takes longer is answered without."""
    embed_timeout_seconds: float = 3.0
    """After which a strategy that can do without vectors searches by keyword alone."""
    rerank_timeout_seconds: float = 5.0
    """After which the fused order is the answer."""
    count_timeout_seconds: float = 1.0
    """After which the context block's tokens are estimated."""
    expand_timeout_seconds: float = 1.0
    """After which results are returned without their neighbours."""
    rephrase_timeout_seconds: float = 4.0
    """Of the language model."""


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A knowledge base to search, and how."""

    knowledge_base: str
    """Name or id."""
    max_results: int | None = None
    min_score: float | None = None
    min_score_stage: ScoreStage = ScoreStage.VECTOR
    weight: float | None = None
    filter: PointFilter | None = None


@dataclass(frozen=True, kw_only=True)
class RetrievalRequest:
    """A question. None takes the default."""

    query: str = field(repr=False)
    selectors: tuple[Selector, ...]
    strategy: Strategy = Strategy.HYBRID_RERANK
    top_k: int | None = None
    rerank_top_n: int | None = None
    context_budget_tokens: int | None = None
    filter: PointFilter | None = None
    explain: bool = False
    fusion: FusionOptions = field(default_factory=FusionOptions)
    thresholds: tuple[tuple[ScoreStage, float], ...] = ()
    """For all knowledge bases: the least score at a stage."""
    max_results_per_document: int | None = None
    diversity: float = 0.0
    expand: int = 0
    hypothetical_answer: bool = False
    context_tokenizer: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A checked request: no defaults are left open."""

    query: str = field(repr=False)
    selectors: tuple[Selector, ...]
    strategy: Strategy
    top_k: int
    rerank_top_n: int
    context_budget_tokens: int
    explain: bool
    fusion: FusionOptions = field(default_factory=FusionOptions)
    thresholds: Mapping[ScoreStage, float] = field(default_factory=dict)
    """For all knowledge bases: the least score at a stage."""
    max_results_per_document: int | None = None
    """None: no limit."""
    diversity: float = 0.0
    """0: by relevance alone, to 1: by difference alone."""
    expand: int = 0
    """Neighbouring chunks on each side that are returned with each result."""
    hypothetical_answer: bool = False
    """Whether ADVANCED also searches by the vector of a hypothetical answer."""
    context_tokenizer: str = ""
    """Name of the tokenizer that counts the context block; empty: the embedding model's."""


def check(request: RetrievalRequest, limits: RetrievalLimits) -> Question:
    """The question that a request asks. Raises EmptyText, RequestTooLarge or InvalidField (which
    names every wrong field)."""
    if not request.query.strip():
        raise EmptyText("query")
    if len(request.query) > limits.max_query_characters:
        raise InvalidField(
            "query", f"{len(request.query)} characters are over the limit of {limits.max_query_characters}"
        )
    if len(request.selectors) > limits.max_knowledge_bases:
        raise RequestTooLarge(field="knowledge_bases", limit=limits.max_knowledge_bases, actual=len(request.selectors))
    top_k = limits.default_top_k if request.top_k is None else request.top_k
    top_n = limits.default_rerank_top_n if request.rerank_top_n is None else request.rerank_top_n
    budget = limits.default_context_tokens if request.context_budget_tokens is None else request.context_budget_tokens
    violations = [
        *_within("top_k", top_k, 1, limits.max_top_k),
        *_within("rerank_top_n", top_n, 1, limits.max_rerank_top_n),
        *_within("context_budget_tokens", budget, 0, limits.max_context_tokens),
        *_wrong_results(request, limits),
        *_wrong_fusion(request.fusion),
        *_wrong_thresholds(request.thresholds),
        *_wrong_selectors(request.selectors),
        *_wrong_filter("filter", request.filter),
        *options_without_use(request),
    ]
    selectors = []
    for index, selector in enumerate(request.selectors):
        name = f"knowledge_bases[{index}].filter"
        own = _wrong_filter(name, selector.filter)
        violations += own
        if not own and selector.filter and request.filter and selector.filter.any and request.filter.any:
            violations.append(_violation(f"{name}.any", "cannot be combined with `any` of the request's own filter"))
        selectors.append(_with_filter(selector, request.filter))
    if violations:
        raise InvalidField.of(violations)
    return Question(
        query=request.query,
        selectors=tuple(selectors),
        strategy=request.strategy,
        top_k=top_k,
        rerank_top_n=top_n,
        context_budget_tokens=budget,
        explain=request.explain,
        fusion=replace(request.fusion, rrf_k=request.fusion.k),
        thresholds=dict(request.thresholds),
        max_results_per_document=request.max_results_per_document,
        diversity=request.diversity,
        expand=request.expand,
        hypothetical_answer=request.hypothetical_answer,
        context_tokenizer=request.context_tokenizer,
    )


def options_without_use(request: RetrievalRequest) -> list[FieldViolation]:
    """Options that the request names and that do nothing under its strategy, its fusion and its context block. To leave
    them out in silence would let a caller believe in them."""
    strategy, fusion = request.strategy, request.fusion
    named = strategy.name
    unused: list[FieldViolation] = []
    if request.rerank_top_n is not None and not strategy.reranks:
        unused.append(_violation("rerank_top_n", f"is for strategies that rerank, and {named} does not"))
    if request.hypothetical_answer and strategy is not Strategy.ADVANCED:
        unused.append(_violation("hypothetical_answer", f"is only for the strategy ADVANCED, not {named}"))
    if request.context_tokenizer and request.context_budget_tokens == 0:
        unused.append(_violation("context_tokenizer", "counts the context block, and a budget of 0 leaves that out"))
    if not strategy.uses_keywords:
        for name, weight in (("vector", fusion.vector_weight), ("keyword", fusion.keyword_weight)):
            if weight is not None:
                why = f"weighs vectors and keywords against each other, and {named} searches by vectors alone"
                unused.append(_violation(f"fusion.{name}_weight", why))
    # Whatever the method, the orders of several phrasings are fused by RRF.
    if fusion.rrf_k is not None and fusion.method is not FusionMethod.RRF and strategy is not Strategy.ADVANCED:
        why = f"is the constant of RRF, and the fusion is {fusion.method.name} of one phrasing"
        unused.append(_violation("fusion.rrf_k", why))
    for index, (stage, _) in enumerate(request.thresholds):
        if why := _without_scores(stage, strategy):
            unused.append(_violation(f"thresholds[{index}]", why))
    for index, selector in enumerate(request.selectors):
        if selector.min_score is not None and (why := _without_scores(selector.min_score_stage, strategy)):
            unused.append(_violation(f"knowledge_bases[{index}].min_score", why))
        if selector.min_score is None and selector.min_score_stage is not ScoreStage.VECTOR:
            why = "names the stage of a min_score, and none is given"
            unused.append(_violation(f"knowledge_bases[{index}].min_score_stage", why))
    return unused


def _without_scores(stage: ScoreStage, strategy: Strategy) -> str:
    """Why no answer of the strategy has a score of the stage; empty where some have."""
    if stage is ScoreStage.KEYWORD and not strategy.uses_keywords:
        return f"is on keyword scores, and {strategy.name} searches by vectors alone"
    if stage is ScoreStage.RERANK_PROBABILITY and not strategy.reranks:
        return f"is on the reranker's probability, and {strategy.name} does not rerank"
    return ""


def _violation(name: str, description: str) -> FieldViolation:
    return FieldViolation(field=name, description=description)


def _within(name: str, value: int, least: int, most: int) -> list[FieldViolation]:
    return [] if least <= value <= most else [_violation(name, f"{value} is not between {least} and {most}")]


def _wrong_results(request: RetrievalRequest, limits: RetrievalLimits) -> list[FieldViolation]:
    wrong = _within("expand", request.expand, 0, limits.max_expand)
    if (most := request.max_results_per_document) is not None:
        wrong += _within("max_results_per_document", most, 1, limits.max_top_k)
    if not 0 <= request.diversity <= 1:
        wrong.append(_violation("diversity", f"{request.diversity} is not between 0 and 1"))
    if (name := request.context_tokenizer) and name not in limits.context_tokenizers:
        known = ", ".join(sorted(limits.context_tokenizers)) or "none"
        wrong.append(_violation("context_tokenizer", f"{shown(name)} is not known to this server; known are: {known}"))
    return wrong


def _wrong_fusion(fusion: FusionOptions) -> list[FieldViolation]:
    wrong = _within("fusion.rrf_k", fusion.k, 1, 1000)
    weights = {"vector_weight": fusion.vector_weight, "keyword_weight": fusion.keyword_weight}
    for name, weight in weights.items():
        if weight is not None and not 0 <= weight <= 100:
            wrong.append(_violation(f"fusion.{name}", f"{weight} is not between 0 and 100"))
    if all(weight == 0 for weight in weights.values()):
        wrong.append(_violation("fusion.vector_weight", "is 0, and so is keyword_weight: nothing would be ranked"))
    return wrong


def _wrong_thresholds(thresholds: Sequence[tuple[ScoreStage, float]]) -> list[FieldViolation]:
    wrong: list[FieldViolation] = []
    stages = [stage for stage, _ in thresholds]
    for index, (stage, least) in enumerate(thresholds):
        if stages.index(stage) != index:
            wrong.append(_violation(f"thresholds[{index}].stage", f"{stage.value} is named twice"))
        if not math.isfinite(least):
            wrong.append(_violation(f"thresholds[{index}].min_score", "is not a finite number"))
    return wrong


def _wrong_selectors(selectors: Sequence[Selector]) -> list[FieldViolation]:
    if not selectors:
        return [_violation("knowledge_bases", "name at least one knowledge base")]
    wrong: list[FieldViolation] = []
    seen: set[str] = set()
    for index, selector in enumerate(selectors):
        name = f"knowledge_bases[{index}]"
        if not selector.knowledge_base.strip():
            wrong.append(_violation(f"{name}.knowledge_base", "is empty"))
        elif len(selector.knowledge_base) > _MOST_NAME_CHARACTERS:
            # The report of each knowledge base repeats what it was called.
            said = f"{len(selector.knowledge_base)} characters, and no name or id has over {_MOST_NAME_CHARACTERS}"
            wrong.append(_violation(f"{name}.knowledge_base", said))
        elif selector.knowledge_base in seen:
            wrong.append(_violation(f"{name}.knowledge_base", "is named twice"))
        seen.add(selector.knowledge_base)
        if selector.max_results == 0:
            wrong.append(_violation(f"{name}.max_results", "must be at least 1"))
        if selector.min_score is not None and not math.isfinite(selector.min_score):
            wrong.append(_violation(f"{name}.min_score", "is not a finite number"))
        if selector.weight is not None and not 0 < selector.weight <= 100:
            wrong.append(_violation(f"{name}.weight", f"{selector.weight} is not above 0 and up to 100"))
    return wrong


def _wrong_filter(name: str, wanted: PointFilter | None) -> list[FieldViolation]:
    if wanted is None:
        return []
    wrong: list[FieldViolation] = []
    for part, conditions in (("all", wanted.all), ("any", wanted.any), ("none", wanted.none)):
        if len(conditions) > _MOST_CONDITIONS:
            wrong.append(_violation(f"{name}.{part}", f"{len(conditions)} conditions, the limit is {_MOST_CONDITIONS}"))
            continue
        for index, condition in enumerate(conditions):
            wrong += _wrong_condition(f"{name}.{part}[{index}]", condition)
    return wrong


def _wrong_condition(name: str, condition: Condition) -> list[FieldViolation]:
    wrong: list[FieldViolation] = []
    if condition.field not in TEXT_FIELDS | NUMBER_FIELDS and not _METADATA_FIELD.fullmatch(condition.field):
        known = ", ".join(sorted(TEXT_FIELDS | NUMBER_FIELDS))
        wrong.append(_violation(f"{name}.field", f"is none of {known} and no metadata.NAME"))
    bounds = [bound for bound in (condition.gte, condition.lte) if bound is not None]
    if not condition.any_of and not bounds:
        wrong.append(_violation(name, "has no test: give `any_of` with values, or `range` with a bound"))
    if bounds and condition.field in TEXT_FIELDS:
        wrong.append(_violation(f"{name}.range", f"{condition.field} is a text and has no range"))
    if condition.any_of and condition.field in NUMBER_FIELDS:
        wrong.append(_violation(f"{name}.any_of", f"{condition.field} is a number: give `range`"))
    if len(condition.any_of) > _MOST_VALUES:
        wrong.append(_violation(f"{name}.any_of", f"{len(condition.any_of)} values, the limit is {_MOST_VALUES}"))
    if not all(map(math.isfinite, bounds)):
        wrong.append(_violation(f"{name}.range", "a bound is not a finite number"))
    elif len(bounds) == 2 and bounds[0] > bounds[1]:
        wrong.append(_violation(f"{name}.range", "gte is above lte"))
    return wrong


def _with_filter(selector: Selector, of_request: PointFilter | None) -> Selector:
    if of_request is None or of_request == PointFilter():
        return selector
    own = selector.filter or PointFilter()
    both = PointFilter(all=of_request.all + own.all, any=of_request.any + own.any, none=of_request.none + own.none)
    return Selector(
        knowledge_base=selector.knowledge_base,
        max_results=selector.max_results,
        min_score=selector.min_score,
        min_score_stage=selector.min_score_stage,
        weight=selector.weight,
        filter=both,
    )
