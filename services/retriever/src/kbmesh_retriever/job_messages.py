"""Jobs of ingestion as messages."""

from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2 as pb

from kbmesh_retriever.catalog.job_port import Job, JobResult

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


def job_result_message(result: JobResult) -> pb.JobResult:
    """What became of a document."""
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
        content_sha256=result.content_sha256,
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
