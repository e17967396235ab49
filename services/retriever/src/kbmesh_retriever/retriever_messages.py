"""Between the retriever's Protobuf messages and its domain."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_rpc.errors import FieldViolation, InvalidField, shown
from kbmesh_rpc.status import to_item_error

from kbmesh_retriever.attribution.context_block import ContextBlock
from kbmesh_retriever.attribution.links import link_of
from kbmesh_retriever.catalog.port import Document
from kbmesh_retriever.enum_names import NAMES_BY_FIELD, source_type_of
from kbmesh_retriever.retrieve.answer import Answer, KnowledgeBaseReport, Place, Result, StageTrace
from kbmesh_retriever.retrieve.fragment import Span
from kbmesh_retriever.retrieve.fusion import FusionMethod, FusionOptions
from kbmesh_retriever.retrieve.request import RetrievalRequest, Selector
from kbmesh_retriever.retrieve.stage import Degradation, RerankMethod, ScoreStage, Strategy
from kbmesh_retriever.stores.port import Condition, PointFilter

V = TypeVar("V")

_STRATEGIES: dict[int, Strategy] = {
    pb.RETRIEVAL_STRATEGY_UNSPECIFIED: Strategy.HYBRID_RERANK,
    **{pb.RetrievalStrategy.Value(f"RETRIEVAL_STRATEGY_{one.name}"): one for one in Strategy},
}
_SCORE_STAGES: dict[int, ScoreStage] = {
    pb.SCORE_STAGE_UNSPECIFIED: ScoreStage.VECTOR,
    **{pb.ScoreStage.Value(f"SCORE_STAGE_{one.name}"): one for one in ScoreStage},
}

_FUSION_METHODS: dict[int, FusionMethod] = {
    pb.FUSION_METHOD_UNSPECIFIED: FusionMethod.ADAPTIVE,
    **{pb.FusionMethod.Value(f"FUSION_METHOD_{one.name}"): one for one in FusionMethod},
}


def read_request(message: pb.RetrieveRequest) -> RetrievalRequest:
    """Raises InvalidField for enum values that this server does not know."""
    return RetrievalRequest(
        query=message.query,
        selectors=tuple(_selector(index, one) for index, one in enumerate(message.knowledge_bases)),
        strategy=_known("strategy", _STRATEGIES, message.strategy),
        top_k=message.top_k if message.HasField("top_k") else None,
        rerank_top_n=message.rerank_top_n if message.HasField("rerank_top_n") else None,
        context_budget_tokens=message.context_budget_tokens if message.HasField("context_budget_tokens") else None,
        filter=_filter("filter", message.filter) if message.HasField("filter") else None,
        explain=message.explain,
        fusion=_fusion(message.fusion),
        thresholds=tuple(
            (_known(f"thresholds[{index}].stage", _SCORE_STAGES, one.stage), one.min_score)
            for index, one in enumerate(message.thresholds)
        ),
        max_results_per_document=message.max_results_per_document
        if message.HasField("max_results_per_document")
        else None,
        diversity=message.diversity,
        expand=message.expand,
        hypothetical_answer=message.hypothetical_answer,
        context_tokenizer=message.context_tokenizer,
    )


def write_answer(answer: Answer, *, request_id: str) -> pb.RetrieveResponse:
    """The message of an answer."""
    message = pb.RetrieveResponse(
        results=[_result(result) for result in answer.results],
        knowledge_bases=[_report(report) for report in answer.reports],
        degraded=[_degradation(one) for one in answer.degradations],
        timings=answer.timings,
        rerank_method=pb.RERANK_METHOD_UNSPECIFIED
        if answer.rerank_method is RerankMethod.NONE
        else pb.RerankMethod.Value(f"RERANK_METHOD_{answer.rerank_method.name}"),
        strategy=pb.RetrievalStrategy.Value(f"RETRIEVAL_STRATEGY_{answer.strategy.name}"),
        fusion=pb.FUSION_METHOD_UNSPECIFIED
        if answer.fusion is None
        else pb.FusionMethod.Value(f"FUSION_METHOD_{answer.fusion.name}"),
        queries=answer.queries,
        explanation=[_trace(trace) for trace in answer.explanation],
        request_id=request_id,
    )
    if answer.context is not None:
        message.context.CopyFrom(_context(answer.context))
    return message


def _known(field: str, values: Mapping[int, V], value: int) -> V:
    if value not in values:
        raise InvalidField.of([FieldViolation(field=field, description=f"{value} is not known to this server")])
    return values[value]


def _selector(index: int, message: pb.KnowledgeBaseSelector) -> Selector:
    return Selector(
        knowledge_base=message.knowledge_base,
        max_results=message.max_results if message.HasField("max_results") else None,
        min_score=message.min_score if message.HasField("min_score") else None,
        min_score_stage=_known(f"knowledge_bases[{index}].min_score_stage", _SCORE_STAGES, message.min_score_stage),
        weight=message.weight if message.HasField("weight") else None,
        filter=_filter(f"knowledge_bases[{index}].filter", message.filter) if message.HasField("filter") else None,
    )


def _fusion(message: pb.FusionOptions) -> FusionOptions:
    return FusionOptions(
        method=_known("fusion.method", _FUSION_METHODS, message.method),
        vector_weight=message.vector_weight if message.HasField("vector_weight") else None,
        keyword_weight=message.keyword_weight if message.HasField("keyword_weight") else None,
        rrf_k=message.rrf_k if message.HasField("rrf_k") else None,
    )


def _filter(name: str, message: pb.Filter) -> PointFilter:
    return PointFilter(
        all=_conditions(f"{name}.all", message.all),
        any=_conditions(f"{name}.any", message.any),
        none=_conditions(f"{name}.none", message.none),
    )


def _conditions(name: str, messages: Sequence[pb.Condition]) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            field=message.field,
            any_of=_values(f"{name}[{index}].any_of", message),
            gte=message.range.gte if message.range.HasField("gte") else None,
            lte=message.range.lte if message.range.HasField("lte") else None,
        )
        for index, message in enumerate(messages)
    )


def _values(name: str, message: pb.Condition) -> tuple[str, ...]:
    """Those of an enum as the domain writes them, whether they came as SOURCE_TYPE_SLACK, SLACK or slack. One that is
    none would find nothing without saying why."""
    if message.field not in NAMES_BY_FIELD:
        return tuple(message.any_of.values)
    prefix, known = NAMES_BY_FIELD[message.field]
    values = tuple(value.lower().removeprefix(prefix) for value in message.any_of.values)
    for value in values:
        if value not in known:
            raise InvalidField(name, f"{message.field} {shown(value)} is none of {', '.join(known)}")
    return values


def _result(result: Result) -> pb.RetrieveResult:
    candidate = result.place.candidate
    fragment, scores, ranks = candidate.fragment, candidate.scores, candidate.ranks
    return pb.RetrieveResult(
        rank=result.rank,
        score=candidate.final,
        scores=pb.Scores(
            vector=scores.vector,
            keyword=scores.keyword,
            fused=scores.fused,
            rerank_logit=scores.rerank_logit,
            rerank_probability=scores.rerank_probability,
            max_sim=scores.max_sim,
            final=scores.final,
        ),
        ranks=pb.Ranks(vector=ranks.vector, keyword=ranks.keyword, fused=ranks.fused, rerank=ranks.rerank),
        text=fragment.text,
        context=fragment.context,
        citation=result.citation,
        document=_source(result.place.document),
        knowledge_base=result.place.knowledge_base.name,
        knowledge_base_id=str(result.place.knowledge_base.public_id),
        span=_span(fragment.span),
        chunk_id=str(fragment.chunk_id),
        chunk_type=fragment.chunk_type,
        heading_path=fragment.heading_path,
        pages=fragment.pages,
        metadata=fragment.metadata,
        tags=result.place.document.tags,
        preview=result.preview,
        display=[pb.DisplayField(label=field.label, value=field.value) for field in result.display.fields],
        display_kind=pb.DisplayKind.Value(f"DISPLAY_KIND_{result.display.kind.name}"),
        link=link_of(result.place.document.uri),
        expanded_text=result.expansion.text if result.expansion else "",
        expanded_span=_span(result.expansion.span) if result.expansion else None,
        duplicates=[_further_citation(place) for place in result.duplicates],
    )


def _further_citation(place: Place) -> pb.FurtherCitation:
    return pb.FurtherCitation(
        document=_source(place.document),
        knowledge_base=place.knowledge_base.name,
        span=_span(place.candidate.fragment.span),
        chunk_id=str(place.candidate.chunk_id),
        link=link_of(place.document.uri),
    )


def _span(span: Span) -> chunker_pb2.Span:
    return chunker_pb2.Span(start=span.start, end=span.end, start_byte=span.start_byte, end_byte=span.end_byte)


def _source(document: Document) -> pb.DocumentSource:
    return pb.DocumentSource(
        id=str(document.id),
        external_id=document.external_id,
        title=document.title,
        source_type=source_type_of(document.source_type),
        uri=document.uri,
        media_type=document.media_type,
        author=document.author,
        created_at=_timestamp(document.created_at) if document.created_at else None,
        ingested_at=_timestamp(document.ingested_at),
    )


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _report(report: KnowledgeBaseReport) -> pb.KnowledgeBaseReport:
    return pb.KnowledgeBaseReport(
        knowledge_base=report.knowledge_base,
        id=str(report.id) if report.id else "",
        status=pb.KnowledgeBaseStatus.Value(f"KNOWLEDGE_BASE_STATUS_{report.status.name}"),
        hits=report.hits,
        milliseconds=report.milliseconds,
        error=to_item_error(report.error) if report.error else None,
    )


def _degradation(degradation: Degradation) -> pb.Degradation:
    return pb.Degradation(
        stage=pb.Stage.Value(f"STAGE_{degradation.stage.name}"),
        reason=errors_pb2.ErrorReason.Value(degradation.reason.value),
        message=degradation.message,
    )


def _context(block: ContextBlock) -> pb.ContextBlock:
    return pb.ContextBlock(
        text=block.text,
        tokens=block.tokens,
        estimated=block.estimated,
        citations=[
            pb.Citation(number=one.number, chunk_id=str(one.chunk_id), label=one.label, cut=one.cut)
            for one in block.citations
        ],
    )


def _trace(trace: StageTrace) -> pb.StageTrace:
    return pb.StageTrace(
        stage=pb.Stage.Value(f"STAGE_{trace.stage.name}"),
        label=trace.label,
        milliseconds=trace.milliseconds,
        started_milliseconds=trace.started_milliseconds,
        note=trace.note,
        candidates=[
            pb.CandidateTrace(
                chunk_id=str(one.chunk_id),
                knowledge_base=one.knowledge_base,
                rank=one.rank,
                score=one.score,
                dropped=one.dropped,
                external_id=one.external_id,
                title=one.title,
            )
            for one in trace.candidates
        ],
    )
