"""Retrieval, between values and messages."""

from collections.abc import Mapping

from kbmesh.retriever.v1 import retriever_pb2

from kbmesh_client.enums import (
    CacheState,
    DisplayKind,
    FusionMethod,
    KnowledgeBaseStatus,
    RerankMethod,
    RetrievalStrategy,
    Stage,
)
from kbmesh_client.retrieval import (
    CandidateTrace,
    Citation,
    ContextBlock,
    Degradation,
    DisplayField,
    DocumentSource,
    FurtherCitation,
    KnowledgeBaseReport,
    NotApplied,
    Ranks,
    Retrieval,
    RetrieveResult,
    Scores,
    StageTrace,
)
from kbmesh_client.wire.chunks import source_type_from_wire, span_from_wire, time_from_wire
from kbmesh_client.wire.documents import item_error_from_wire
from kbmesh_client.wire.enums import from_number, reason_name

RERANK_METHODS: Mapping[int, RerankMethod] = {
    retriever_pb2.RERANK_METHOD_UNSPECIFIED: RerankMethod.NONE,
    retriever_pb2.RERANK_METHOD_CROSS_ENCODER: RerankMethod.CROSS_ENCODER,
    retriever_pb2.RERANK_METHOD_LATE_INTERACTION: RerankMethod.LATE_INTERACTION,
}

CACHE_STATES: Mapping[int, CacheState] = {
    retriever_pb2.CACHE_STATE_UNSPECIFIED: CacheState.UNASKED,
    retriever_pb2.CACHE_STATE_MISS: CacheState.MISS,
    retriever_pb2.CACHE_STATE_HIT: CacheState.HIT,
    retriever_pb2.CACHE_STATE_SHARED: CacheState.SHARED,
}


def retrieval_from_wire(message: retriever_pb2.RetrieveResponse, *, is_final: bool = True) -> Retrieval:
    """Reads an answer."""
    return Retrieval(
        results=tuple(_result_from_wire(result) for result in message.results),
        knowledge_bases=tuple(_report_from_wire(report) for report in message.knowledge_bases),
        degraded=tuple(
            Degradation(
                stage=_stage_from_wire(degradation.stage),
                reason=reason_name(degradation.reason),
                message=degradation.message,
            )
            for degradation in message.degraded
        ),
        timings=dict(message.timings),
        context=_context_from_wire(message.context) if message.HasField("context") else None,
        rerank_method=RERANK_METHODS.get(message.rerank_method, RerankMethod.UNKNOWN),
        strategy=from_number(
            RetrievalStrategy,
            retriever_pb2.RetrievalStrategy.Name,
            message.strategy,
            "RETRIEVAL_STRATEGY_",
            RetrievalStrategy.UNKNOWN,
        ),
        queries=tuple(message.queries),
        explanation=tuple(_trace_from_wire(trace) for trace in message.explanation),
        request_id=message.request_id,
        fusion=from_number(
            FusionMethod, retriever_pb2.FusionMethod.Name, message.fusion, "FUSION_METHOD_", FusionMethod.UNKNOWN
        )
        if message.fusion
        else None,
        cache=CACHE_STATES.get(message.cache, CacheState.UNKNOWN),
        not_applied=tuple(NotApplied(field=one.field, message=one.message) for one in message.not_applied),
        is_final=is_final,
    )


def stream_answer_from_wire(message: retriever_pb2.RetrieveStreamResponse) -> Retrieval:
    """Reads one answer of a stream."""
    if message.WhichOneof("answer") == "fused":
        return retrieval_from_wire(message.fused, is_final=False)
    return retrieval_from_wire(message.final)


def _stage_from_wire(number: int) -> Stage:
    return from_number(Stage, retriever_pb2.Stage.Name, number, "STAGE_", Stage.UNKNOWN)


def _result_from_wire(message: retriever_pb2.RetrieveResult) -> RetrieveResult:
    scores, ranks = message.scores, message.ranks
    return RetrieveResult(
        rank=message.rank,
        score=message.score,
        scores=Scores(
            vector=scores.vector if scores.HasField("vector") else None,
            keyword=scores.keyword if scores.HasField("keyword") else None,
            fused=scores.fused if scores.HasField("fused") else None,
            rerank_logit=scores.rerank_logit if scores.HasField("rerank_logit") else None,
            rerank_probability=scores.rerank_probability if scores.HasField("rerank_probability") else None,
            final=scores.final if scores.HasField("final") else None,
            max_sim=scores.max_sim if scores.HasField("max_sim") else None,
        ),
        ranks=Ranks(
            vector=ranks.vector if ranks.HasField("vector") else None,
            keyword=ranks.keyword if ranks.HasField("keyword") else None,
            fused=ranks.fused if ranks.HasField("fused") else None,
            rerank=ranks.rerank if ranks.HasField("rerank") else None,
        ),
        text=message.text,
        context=message.context,
        citation=message.citation,
        document=_source_from_wire(message.document),
        knowledge_base=message.knowledge_base,
        knowledge_base_id=message.knowledge_base_id,
        span=span_from_wire(message.span),
        chunk_id=message.chunk_id,
        chunk_type=message.chunk_type,
        heading_path=tuple(message.heading_path),
        pages=tuple(message.pages),
        metadata=dict(message.metadata),
        preview=message.preview,
        display=tuple(DisplayField(label=field.label, value=field.value) for field in message.display),
        duplicates=tuple(
            FurtherCitation(
                document=_source_from_wire(duplicate.document),
                knowledge_base=duplicate.knowledge_base,
                span=span_from_wire(duplicate.span),
                chunk_id=duplicate.chunk_id,
                link=duplicate.link,
            )
            for duplicate in message.duplicates
        ),
        tags=tuple(message.tags),
        display_kind=from_number(
            DisplayKind,
            retriever_pb2.DisplayKind.Name,
            message.display_kind or retriever_pb2.DISPLAY_KIND_GENERIC,
            "DISPLAY_KIND_",
            DisplayKind.UNKNOWN,
        ),
        link=message.link,
        link_expires_at=time_from_wire(message.link_expires_at),
        expanded_text=message.expanded_text,
        expanded_span=span_from_wire(message.expanded_span) if message.HasField("expanded_span") else None,
    )


def _source_from_wire(message: retriever_pb2.DocumentSource) -> DocumentSource:
    return DocumentSource(
        id=message.id,
        external_id=message.external_id,
        title=message.title,
        source_type=source_type_from_wire(message.source_type),
        uri=message.uri,
        media_type=message.media_type,
        author=message.author,
        created_at=time_from_wire(message.created_at),
        ingested_at=time_from_wire(message.ingested_at),
    )


def _report_from_wire(message: retriever_pb2.KnowledgeBaseReport) -> KnowledgeBaseReport:
    return KnowledgeBaseReport(
        knowledge_base=message.knowledge_base,
        id=message.id,
        status=from_number(
            KnowledgeBaseStatus,
            retriever_pb2.KnowledgeBaseStatus.Name,
            message.status,
            "KNOWLEDGE_BASE_STATUS_",
            KnowledgeBaseStatus.UNKNOWN,
        ),
        hits=message.hits,
        milliseconds=message.milliseconds,
        error=item_error_from_wire(message.error) if message.HasField("error") else None,
    )


def _context_from_wire(message: retriever_pb2.ContextBlock) -> ContextBlock:
    return ContextBlock(
        text=message.text,
        tokens=message.tokens,
        estimated=message.estimated,
        citations=tuple(
            Citation(number=citation.number, chunk_id=citation.chunk_id, label=citation.label, cut=citation.cut)
            for citation in message.citations
        ),
    )


def _trace_from_wire(message: retriever_pb2.StageTrace) -> StageTrace:
    return StageTrace(
        stage=_stage_from_wire(message.stage),
        label=message.label,
        milliseconds=message.milliseconds,
        candidates=tuple(
            CandidateTrace(
                chunk_id=candidate.chunk_id,
                knowledge_base=candidate.knowledge_base,
                rank=candidate.rank,
                score=candidate.score,
                dropped=candidate.dropped,
                external_id=candidate.external_id,
                title=candidate.title,
            )
            for candidate in message.candidates
        ),
        started_milliseconds=message.started_milliseconds,
        note=message.note,
    )
