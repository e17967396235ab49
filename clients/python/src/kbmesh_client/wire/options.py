"""How to look, and profiles of it, between values and messages."""

from collections.abc import Mapping

from kbmesh.retriever.v1 import profile_pb2, retriever_pb2

from kbmesh_client.enums import FusionMethod, RetrievalStrategy, ScoreStage
from kbmesh_client.retrieval import (
    Condition,
    Filter,
    FilterLike,
    FusionOptions,
    KnowledgeBaseSelector,
    KnowledgeBasesLike,
    Profile,
    RetrievalOptions,
)
from kbmesh_client.wire.chunks import time_from_wire
from kbmesh_client.wire.enums import from_number


def retrieve_request(
    query: str,
    knowledge_bases: KnowledgeBasesLike,
    options: RetrievalOptions,
    *,
    profile: str = "",
    explain: bool = False,
    skip_cache: bool = False,
) -> retriever_pb2.RetrieveRequest:
    """Raises TypeError for an option that there is not, and ValueError for a strategy, a stage, a method or a condition
    that there is not."""
    request = _options_to_wire(**options)
    request.query = query
    request.knowledge_bases.extend(_selectors_to_wire(knowledge_bases))
    request.profile = profile
    request.explain = explain
    request.skip_cache = skip_cache
    return request


def _options_to_wire(
    *,
    strategy: RetrievalStrategy | str | None = None,
    top_k: int | None = None,
    filter: FilterLike | None = None,  # noqa: A002 - the contract's name for it
    context_budget_tokens: int | None = None,
    rerank_top_n: int | None = None,
    fusion: FusionOptions | None = None,
    thresholds: Mapping[ScoreStage | str, float] | None = None,
    max_results_per_document: int | None = None,
    diversity: float | None = None,
    expand: int | None = None,
    hypothetical_answer: bool = False,
    context_tokenizer: str = "",
) -> retriever_pb2.RetrieveRequest:
    return retriever_pb2.RetrieveRequest(
        strategy=retriever_pb2.RETRIEVAL_STRATEGY_UNSPECIFIED
        if strategy is None
        else retriever_pb2.RetrievalStrategy.Value(f"RETRIEVAL_STRATEGY_{RetrievalStrategy(strategy)}"),
        top_k=top_k,
        filter=_filter_to_wire(filter),
        context_budget_tokens=context_budget_tokens,
        rerank_top_n=rerank_top_n,
        fusion=_fusion_to_wire(fusion),
        thresholds=[
            retriever_pb2.ScoreThreshold(stage=_score_stage_to_wire(stage), min_score=least)
            for stage, least in (thresholds or {}).items()
        ],
        max_results_per_document=max_results_per_document,
        diversity=diversity,
        expand=expand,
        hypothetical_answer=hypothetical_answer,
        context_tokenizer=context_tokenizer,
    )


def _fusion_to_wire(fusion: FusionOptions | None) -> retriever_pb2.FusionOptions | None:
    if fusion is None:
        return None
    return retriever_pb2.FusionOptions(
        method=retriever_pb2.FUSION_METHOD_UNSPECIFIED
        if fusion.method is None
        else retriever_pb2.FusionMethod.Value(f"FUSION_METHOD_{FusionMethod(fusion.method)}"),
        vector_weight=fusion.vector_weight,
        keyword_weight=fusion.keyword_weight,
        rrf_k=fusion.rrf_k,
    )


def _score_stage_to_wire(stage: ScoreStage | str) -> "retriever_pb2.ScoreStage.ValueType":
    return retriever_pb2.ScoreStage.Value(f"SCORE_STAGE_{ScoreStage(stage)}")


def profile_to_wire(
    name: str, description: str, knowledge_bases: KnowledgeBasesLike, options: RetrievalOptions
) -> profile_pb2.Profile:
    """Raises as `retrieve_request`."""
    return profile_pb2.Profile(
        name=name, description=description, defaults=retrieve_request("", knowledge_bases, options)
    )


def profile_from_wire(message: profile_pb2.Profile) -> Profile:
    """Reads a profile."""
    return Profile(
        name=message.name,
        description=message.description,
        knowledge_bases=tuple(map(_selector_from_wire, message.defaults.knowledge_bases)),
        options=_options_from_wire(message.defaults),
        created_at=time_from_wire(message.created_at),
        updated_at=time_from_wire(message.updated_at),
    )


def _options_from_wire(message: retriever_pb2.RetrieveRequest) -> RetrievalOptions:
    """What the message says, and nothing else."""
    options: RetrievalOptions = {}
    if message.strategy:
        options["strategy"] = _strategy_from_wire(message.strategy)
    if message.HasField("top_k"):
        options["top_k"] = message.top_k
    if message.HasField("filter"):
        options["filter"] = _filter_from_wire(message.filter)
    if message.HasField("context_budget_tokens"):
        options["context_budget_tokens"] = message.context_budget_tokens
    if message.HasField("rerank_top_n"):
        options["rerank_top_n"] = message.rerank_top_n
    if message.HasField("fusion"):
        options["fusion"] = _fusion_from_wire(message.fusion)
    if message.thresholds:
        options["thresholds"] = {_score_stage_from_wire(one.stage): one.min_score for one in message.thresholds}
    if message.HasField("max_results_per_document"):
        options["max_results_per_document"] = message.max_results_per_document
    if message.HasField("diversity"):
        options["diversity"] = message.diversity
    if message.HasField("expand"):
        options["expand"] = message.expand
    if message.hypothetical_answer:
        options["hypothetical_answer"] = True
    if message.context_tokenizer:
        options["context_tokenizer"] = message.context_tokenizer
    return options


def _strategy_from_wire(number: int) -> RetrievalStrategy:
    name_of = retriever_pb2.RetrievalStrategy.Name
    return from_number(RetrievalStrategy, name_of, number, "RETRIEVAL_STRATEGY_", RetrievalStrategy.UNKNOWN)


def _score_stage_from_wire(number: int) -> ScoreStage:
    return from_number(ScoreStage, retriever_pb2.ScoreStage.Name, number, "SCORE_STAGE_", ScoreStage.VECTOR)


def _fusion_from_wire(message: retriever_pb2.FusionOptions) -> FusionOptions:
    return FusionOptions(
        method=from_number(
            FusionMethod, retriever_pb2.FusionMethod.Name, message.method, "FUSION_METHOD_", FusionMethod.UNKNOWN
        )
        if message.method
        else None,
        vector_weight=message.vector_weight if message.HasField("vector_weight") else None,
        keyword_weight=message.keyword_weight if message.HasField("keyword_weight") else None,
        rrf_k=message.rrf_k if message.HasField("rrf_k") else None,
    )


def _selector_from_wire(message: retriever_pb2.KnowledgeBaseSelector) -> KnowledgeBaseSelector:
    return KnowledgeBaseSelector(
        knowledge_base=message.knowledge_base,
        max_results=message.max_results if message.HasField("max_results") else None,
        min_score=message.min_score if message.HasField("min_score") else None,
        min_score_stage=_score_stage_from_wire(message.min_score_stage),
        weight=message.weight if message.HasField("weight") else None,
        filter=_filter_from_wire(message.filter) if message.HasField("filter") else None,
    )


def _filter_from_wire(message: retriever_pb2.Filter) -> Filter:
    return Filter(
        all=tuple(map(_condition_from_wire, message.all)),
        any=tuple(map(_condition_from_wire, message.any)),
        none=tuple(map(_condition_from_wire, message.none)),
    )


def _condition_from_wire(message: retriever_pb2.Condition) -> Condition:
    return Condition(
        field=message.field,
        any_of=tuple(message.any_of.values),
        gte=message.range.gte if message.range.HasField("gte") else None,
        lte=message.range.lte if message.range.HasField("lte") else None,
    )


def _selectors_to_wire(knowledge_bases: KnowledgeBasesLike) -> list[retriever_pb2.KnowledgeBaseSelector]:
    named = [knowledge_bases] if isinstance(knowledge_bases, str | KnowledgeBaseSelector) else knowledge_bases
    return [_selector_to_wire(selector) for selector in named]


def _selector_to_wire(selector: str | KnowledgeBaseSelector) -> retriever_pb2.KnowledgeBaseSelector:
    if isinstance(selector, str):
        return retriever_pb2.KnowledgeBaseSelector(knowledge_base=selector)
    return retriever_pb2.KnowledgeBaseSelector(
        knowledge_base=selector.knowledge_base,
        max_results=selector.max_results,
        min_score=selector.min_score,
        # A stage says nothing without a score; alone it would take the place of a profile's.
        min_score_stage=_score_stage_to_wire(selector.min_score_stage)
        if selector.min_score is not None or ScoreStage(selector.min_score_stage) is not ScoreStage.VECTOR
        else retriever_pb2.SCORE_STAGE_UNSPECIFIED,
        weight=selector.weight,
        filter=_filter_to_wire(selector.filter),
    )


def _filter_to_wire(given: FilterLike | None) -> retriever_pb2.Filter | None:
    if given is None:
        return None
    if not isinstance(given, Filter):
        given = Filter(
            all=[
                Condition(field=field, any_of=[values] if isinstance(values, str) else values)
                for field, values in given.items()
            ]
        )
    return retriever_pb2.Filter(
        all=[_condition_to_wire(condition) for condition in given.all],
        any=[_condition_to_wire(condition) for condition in given.any],
        none=[_condition_to_wire(condition) for condition in given.none],
    )


def _condition_to_wire(condition: Condition) -> retriever_pb2.Condition:
    has_range = condition.gte is not None or condition.lte is not None
    if bool(condition.any_of) == has_range:
        raise ValueError(f"the condition on {condition.field!r} needs either any_of or a range")
    if has_range:
        return retriever_pb2.Condition(
            field=condition.field, range=retriever_pb2.Range(gte=condition.gte, lte=condition.lte)
        )
    # The servers write these names in lower case.
    lower = condition.field in ("source_type", "strategy")
    values = [value.lower() if lower else value for value in condition.any_of]
    return retriever_pb2.Condition(field=condition.field, any_of=retriever_pb2.StringList(values=values))
