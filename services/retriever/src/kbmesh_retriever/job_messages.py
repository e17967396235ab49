"""Jobs of ingestion as messages."""

from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2 as pb

from kbmesh_retriever.catalog.job_port import Job, JobResult
from kbmesh_retriever.catalog.port import Document

OUTCOMES = {
    "new": pb.INGEST_OUTCOME_NEW,
    "changed": pb.INGEST_OUTCOME_CHANGED,
    "unchanged": pb.INGEST_OUTCOME_UNCHANGED,
    "failed": pb.INGEST_OUTCOME_FAILED,
}


def job_message(job: Job) -> pb.IngestJob:
    """How far a job has come."""
    message = pb.IngestJob(
        job_id=job.name,
        new_documents=job.counts["new"],
        changed_documents=job.counts["changed"],
        unchanged_documents=job.counts["unchanged"],
        failed_documents=job.counts["failed"],
        chunks=job.chunks,
        tokens=job.tokens,
        results_not_kept=job.results_not_kept,
    )
    message.created_at.FromDatetime(job.created_at)
    message.updated_at.FromDatetime(job.updated_at)
    if job.finished_at is not None:
        message.finished_at.FromDatetime(job.finished_at)
    return message


def job_result_message(result: JobResult, there: Document | None) -> pb.JobResult:
    """What became of a document. `there`: what is known of it now."""
    message = pb.JobResult(
        result=pb.IngestResponse(
            external_id=result.external_id,
            document_id=result.document_id,
            outcome=OUTCOMES[result.outcome],
            chunks=result.chunks,
            embedded=result.embedded,
            tokens=result.tokens,
            truncated=result.truncated,
        ),
        content_sha256=result.content_sha256 if result.outcome == "failed" or _is_there(result, there) else b"",
    )
    if result.error_reason:
        message.result.error.CopyFrom(
            errors_pb2.ItemError(
                reason=errors_pb2.ErrorReason.Value(result.error_reason),
                message=result.error_message,
                metadata=result.error_metadata,
            )
        )
    return message


def _is_there(result: JobResult, there: Document | None) -> bool:
    """Whether a caller who has the same content, and says nothing more of the document, need not send it again. It may
    have been deleted, gone with a rebuild that was given up, or replaced by somebody else since."""
    if there is None or there.content_sha256 != result.content_sha256:
        return False
    return not (there.principals or there.narrowed_to or there.tags or there.given_metadata)
