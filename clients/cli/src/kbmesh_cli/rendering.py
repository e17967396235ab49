"""The JSON of every result. The keys are a promise: tests/cli holds them.

Names that a person types (strategies, kinds of sources, placements, stages) are in lower case; codes that a machine
compares (reasons, statuses, outcomes) are in upper case, as the contracts have them.
"""

from collections.abc import Mapping
from datetime import datetime

from kbmesh_client import (
    Chunk,
    ChunkingConfig,
    Document,
    DocumentSource,
    IngestResult,
    KnowledgeBase,
    Rebuild,
    Retrieval,
    RetrieveResult,
    Stage,
)

STAGE_ORDER = (*(stage.value.lower() for stage in Stage if stage is not Stage.UNKNOWN), "total")
"""Stages as a query passes them, then their sum."""


def retrieval_to_json(answer: Retrieval) -> dict[str, object]:
    """What `kbmesh search --json` prints."""
    return {
        "results": [_result_to_json(result) for result in answer.results],
        "knowledge_bases": [
            {
                "name": report.knowledge_base,
                "status": report.status.value,
                "hits": report.hits,
                "milliseconds": round(report.milliseconds, 3),
                "error": ({"reason": report.error.reason, "message": report.error.message} if report.error else None),
            }
            for report in answer.knowledge_bases
        ],
        "degraded": [
            {"stage": each.stage.value.lower(), "reason": each.reason, "message": each.message}
            for each in answer.degraded
        ],
        "not_applied": [{"field": each.field, "message": each.message} for each in answer.not_applied],
        "timings": _timings_to_json(answer.timings),
        "context_block": (
            {
                "text": answer.context.text,
                "tokens": answer.context.tokens,
                "estimated": answer.context.estimated,
                "citations": [
                    {
                        "number": citation.number,
                        "chunk_id": citation.chunk_id,
                        "label": citation.label,
                        "cut": citation.cut,
                    }
                    for citation in answer.context.citations
                ],
            }
            if answer.context
            else None
        ),
        "strategy": answer.strategy.value.lower(),
        "fusion": answer.fusion.value.lower() if answer.fusion else None,
        "rerank_method": answer.rerank_method.value.lower(),
        "cache": answer.cache.value.lower(),
        "is_final": answer.is_final,
        "queries": list(answer.queries),
        "request_id": answer.request_id,
        "explanation": [
            {
                "stage": trace.stage.value.lower(),
                "label": trace.label,
                "started_milliseconds": round(trace.started_milliseconds, 3),
                "milliseconds": round(trace.milliseconds, 3),
                "note": trace.note,
                "candidates": [
                    {
                        "chunk_id": candidate.chunk_id,
                        "knowledge_base": candidate.knowledge_base,
                        "external_id": candidate.external_id,
                        "title": candidate.title,
                        "rank": candidate.rank,
                        "score": candidate.score,
                        "dropped": candidate.dropped,
                    }
                    for candidate in trace.candidates
                ],
            }
            for trace in answer.explanation
        ],
    }


def _timings_to_json(timings: Mapping[str, float]) -> dict[str, float]:
    """In the order of the stages; those that a newer server has stand last."""
    place = {stage: index for index, stage in enumerate(STAGE_ORDER)}
    return {
        stage: round(timings[stage], 3) for stage in sorted(timings, key=lambda stage: place.get(stage, len(place)))
    }


def _result_to_json(result: RetrieveResult) -> dict[str, object]:
    scores = result.scores
    return {
        "rank": result.rank,
        "score": result.score,
        "scores": {
            "vector": scores.vector,
            "keyword": scores.keyword,
            "fused": scores.fused,
            "rerank_logit": scores.rerank_logit,
            "rerank_probability": scores.rerank_probability,
            "final": scores.final,
            "max_sim": scores.max_sim,
        },
        "ranks": {
            "vector": result.ranks.vector,
            "keyword": result.ranks.keyword,
            "fused": result.ranks.fused,
            "rerank": result.ranks.rerank,
        },
        "text": result.text,
        "context": result.context,
        "citation": result.citation,
        "document": {
            "id": result.document.id,
            "external_id": result.document.external_id,
            "title": result.document.title,
            "source_type": result.document.source_type.value.lower(),
            "uri": result.document.uri,
            "media_type": result.document.media_type,
            "author": result.document.author,
            "created_at": _time(result.document.created_at),
        },
        "knowledge_base": result.knowledge_base,
        "span": {"start": result.span.start, "end": result.span.end},
        "chunk_id": result.chunk_id,
        "chunk_type": result.chunk_type,
        "heading_path": list(result.heading_path),
        "pages": list(result.pages),
        "preview": result.preview,
        "metadata": dict(result.metadata),
        "tags": list(result.tags),
        "expanded_text": result.expanded_text or None,
        "expanded_span": (
            {"start": result.expanded_span.start, "end": result.expanded_span.end} if result.expanded_span else None
        ),
        "display_kind": result.display_kind.value.lower(),
        "display": {field.label: field.value for field in result.display},
        "link": result.link,
        "link_expires_at": _time(result.link_expires_at),
        "duplicates": [
            {
                "document_id": duplicate.document.id,
                "title": duplicate.document.title,
                "uri": duplicate.document.uri,
                "link": duplicate.link,
                "knowledge_base": duplicate.knowledge_base,
                "chunk_id": duplicate.chunk_id,
            }
            for duplicate in result.duplicates
        ],
    }


def title_of(result: RetrieveResult) -> str:
    """How a result is called: by its document's title, else as the part of the document that it is from."""
    metadata = result.metadata
    channel = f"#{metadata['channel'].removeprefix('#')}" if metadata.get("channel") else ""
    is_slack = bool(metadata.get("message_count"))
    own = metadata.get("subject") or metadata.get("mail_subject") or (channel if is_slack else "")
    return result.document.title or own or result.document.external_id


def name_of(document: DocumentSource) -> str:
    """How a document is called where nothing but itself is known."""
    return document.title or document.external_id


def chunk_to_json(chunk: Chunk) -> dict[str, object]:
    """One line of `kbmesh chunk --json`."""
    return {
        "index": chunk.index,
        "total": chunk.total,
        "type": chunk.type,
        "text": chunk.text,
        "context": chunk.context,
        "start": chunk.span.start,
        "end": chunk.span.end,
        "start_byte": chunk.span.start_byte,
        "end_byte": chunk.span.end_byte,
        "heading_path": list(chunk.heading_path),
        "pages": list(chunk.pages),
        "token_count": chunk.token_count,
        "metadata": dict(chunk.metadata),
        "embedded_text": chunk.embedded_text,
        "oversize": chunk.oversize,
        "embedding_excluded": chunk.embedding_excluded,
    }


def ingest_result_to_json(result: IngestResult) -> dict[str, object]:
    """One document of `kbmesh ingest --json`."""
    return {
        "external_id": result.external_id,
        "document_id": result.document_id,
        "outcome": result.outcome.value,
        "chunks": result.chunks,
        "embedded": result.embedded,
        "tokens": result.tokens,
        "truncated": result.truncated,
        "error": (
            {
                "reason": result.error.reason,
                "message": result.error.message,
                "metadata": dict(result.error.metadata),
            }
            if result.error
            else None
        ),
        "warnings": [
            {"reason": warning.reason, "message": warning.message, "metadata": dict(warning.metadata)}
            for warning in result.warnings
        ],
    }


def knowledge_base_to_json(found: KnowledgeBase) -> dict[str, object]:
    """What `kbmesh kb` prints of a knowledge base."""
    return {
        "id": found.id,
        "name": found.name,
        "description": found.description,
        "embedding_model": found.embedding_model,
        "embedding_provider": found.embedding_provider,
        "model_fingerprint": found.model_fingerprint,
        "dimension": found.dimension,
        "vector_store": found.vector_store,
        "placement": found.placement.value.lower(),
        "distance": found.distance.value.lower(),
        "readers": list(found.readers),
        "chunking": _config_to_json(found.chunking),
        "retrieval": {
            "vector_top_k": found.retrieval.vector_top_k,
            "min_vector_score": found.retrieval.min_vector_score,
            "weight": found.retrieval.weight,
        },
        "generation": found.generation,
        "document_count": found.document_count,
        "chunk_count": found.chunk_count,
        "created_at": _time(found.created_at),
        "updated_at": _time(found.updated_at),
        "rebuild": None if found.rebuild is None else _rebuild_to_json(found.rebuild),
    }


def _rebuild_to_json(rebuild: Rebuild) -> dict[str, object]:
    return {
        "state": rebuild.state.value,
        "embedding_model": rebuild.embedding_model,
        "model_fingerprint": rebuild.model_fingerprint,
        "dimension": rebuild.dimension,
        "placement": rebuild.placement.value.lower(),
        "chunking": _config_to_json(rebuild.chunking),
        "documents_done": rebuild.documents_done,
        "documents_total": rebuild.documents_total,
        "documents_failed": rebuild.documents_failed,
        "failures": [
            {"external_id": external_id, "reason": reason} for external_id, reason in rebuild.failures.items()
        ],
        "started_at": _time(rebuild.started_at),
    }


def document_to_json(document: Document) -> dict[str, object]:
    """What `kbmesh kb show --documents` prints of a document."""
    return {
        "id": document.id,
        "external_id": document.external_id,
        "title": document.title,
        "uri": document.uri,
        "source_type": document.source_type.value.lower(),
        "media_type": document.media_type,
        "author": document.author,
        "strategy": document.strategy.value.lower(),
        "chunk_count": document.chunk_count,
        "content_sha256": document.content_sha256.hex(),
        "principals": list(document.principals),
        "tags": list(document.tags),
        "created_at": _time(document.created_at),
        "ingested_at": _time(document.ingested_at),
    }


def _config_to_json(config: ChunkingConfig) -> dict[str, object]:
    return {
        "strategy": str(config.strategy).lower(),
        "size": config.size,
        "overlap": config.overlap,
        "minimum": config.minimum,
        "unit": str(config.unit).lower(),
        "embedding_model": config.embedding_model,
        "allow_truncation": config.allow_truncation,
    }


def _time(value: datetime | None) -> str | None:
    return value.isoformat() if value else None
