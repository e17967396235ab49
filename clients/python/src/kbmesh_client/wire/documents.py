"""Documents and ingestion, between values and messages."""

from collections.abc import Sequence
from dataclasses import replace

from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2

from kbmesh_client.documents import Document, IngestDocument, IngestResult, ItemError
from kbmesh_client.enums import IngestOutcome
from kbmesh_client.jobs import IngestJob, JobResult
from kbmesh_client.wire.chunks import (
    document_to_wire,
    source_type_from_wire,
    strategy_from_wire,
    time_from_wire,
    warning_from_wire,
)
from kbmesh_client.wire.enums import from_number, reason_name


def options_request(
    knowledge_base: str, *, concurrency: int, job_id: str, allow_shrink: bool, into_rebuild: bool
) -> ingestion_pb2.IngestRequest:
    """The message that opens a stream."""
    return ingestion_pb2.IngestRequest(
        options=ingestion_pb2.IngestOptions(
            knowledge_base=knowledge_base,
            concurrency=concurrency,
            job_id=job_id,
            allow_shrink=allow_shrink,
            into_rebuild=into_rebuild,
        )
    )


def document_request(
    document: IngestDocument, *, max_document_bytes: int
) -> ingestion_pb2.IngestRequest | IngestResult:
    """Gives the message, or the FAILED result of a document that could not be sent: it must not end the stream."""
    try:
        inner = document_to_wire(document)
        size_bytes = len(inner.text.encode()) if isinstance(document.content, str) else len(document.content)
        message = ingestion_pb2.IngestDocument(
            external_id=document.external_id,
            document=inner,
            title=document.title,
            uri=document.uri,
            author=document.author,
            created_at=_time_to_wire(document),
            allow_shrink=document.allow_shrink,
            principals=_words(document.principals),
            tags=_words(document.tags),
        )
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        return _failed(document, "INVALID_FIELD", f"cannot be sent: {error}", {"field": "document"})
    if size_bytes > max_document_bytes:
        return _failed(
            document,
            "DOCUMENT_TOO_LARGE",
            f"{size_bytes:,} bytes are more than the limit of {max_document_bytes:,}",
            {"limit": str(max_document_bytes), "actual": str(size_bytes)},
        )
    return ingestion_pb2.IngestRequest(document=message)


def _failed(document: IngestDocument, reason: str, message: str, metadata: dict[str, str]) -> IngestResult:
    return IngestResult(
        external_id=document.external_id,
        document_id="",
        outcome=IngestOutcome.FAILED,
        error=ItemError(reason=reason, message=message, metadata=metadata),
    )


def _words(words: Sequence[str]) -> Sequence[str]:
    if isinstance(words, str):
        # Each letter of it would be a name.
        raise TypeError(f"{words!r} is one text where several are meant")
    return words


def _time_to_wire(document: IngestDocument) -> Timestamp | None:
    if document.created_at is None:
        return None
    message = Timestamp()
    message.FromDatetime(document.created_at)
    return message


def item_error_from_wire(message: errors_pb2.ItemError) -> ItemError:
    """Reads the error of one item."""
    return ItemError(reason=reason_name(message.reason), message=message.message, metadata=dict(message.metadata))


def ingest_result_from_wire(message: ingestion_pb2.IngestResponse) -> IngestResult:
    """Reads the result of one document."""
    return IngestResult(
        external_id=message.external_id,
        document_id=message.document_id,
        outcome=from_number(
            IngestOutcome, ingestion_pb2.IngestOutcome.Name, message.outcome, "INGEST_OUTCOME_", IngestOutcome.UNKNOWN
        ),
        error=item_error_from_wire(message.error) if message.HasField("error") else None,
        chunks=message.chunks,
        embedded=message.embedded,
        tokens=message.tokens,
        truncated=message.truncated,
        warnings=tuple(warning_from_wire(warning) for warning in message.warnings),
    )


def job_from_wire(message: ingestion_pb2.IngestJob) -> IngestJob:
    """Reads how far a job has come."""
    return IngestJob(
        job_id=message.job_id,
        created_at=time_from_wire(message.created_at),
        updated_at=time_from_wire(message.updated_at),
        finished_at=time_from_wire(message.finished_at) if message.HasField("finished_at") else None,
        new_documents=message.new_documents,
        changed_documents=message.changed_documents,
        unchanged_documents=message.unchanged_documents,
        failed_documents=message.failed_documents,
        chunks=message.chunks,
        tokens=message.tokens,
        results_not_kept=message.results_not_kept,
    )


def job_result_from_wire(message: ingestion_pb2.JobResult) -> JobResult:
    """Reads what became of a document of a job."""
    return JobResult(
        result=replace(ingest_result_from_wire(message.result), resumed=True), content_sha256=message.content_sha256
    )


def document_from_wire(message: ingestion_pb2.Document) -> Document:
    """Reads what is known of a document."""
    return Document(
        id=message.id,
        external_id=message.external_id,
        title=message.title,
        uri=message.uri,
        source_type=source_type_from_wire(message.source_type),
        media_type=message.media_type,
        author=message.author,
        created_at=time_from_wire(message.created_at),
        ingested_at=time_from_wire(message.ingested_at),
        content_sha256=message.content_sha256,
        chunk_count=message.chunk_count,
        generation=message.generation,
        strategy=strategy_from_wire(message.strategy),
        metadata=dict(message.metadata),
        principals=tuple(message.principals),
        tags=tuple(message.tags),
    )
