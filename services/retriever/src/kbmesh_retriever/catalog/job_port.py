"""What is kept of an ingestion job, and the port through which it is kept."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The last result of one document of a job."""

    external_id: str
    document_id: str
    outcome: str
    content_sha256: bytes
    """Of the content that was sent. Empty where there was none."""
    chunks: int = 0
    embedded: int = 0
    tokens: int = 0
    truncated: int = 0
    error_reason: str = ""
    """Name of the reason in errors.proto. Empty where it did not fail."""
    error_message: str = ""
    error_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """By which results are kept and listed: an external id may be too long for an index."""
        return hashlib.sha256(self.external_id.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Job:
    """How far a job has come. Counts are of documents, by their last result."""

    id: UUID
    name: str
    """What the caller calls it, unique within the knowledge base."""
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    """When a stream of it last ended well; None where none has since it was last begun."""
    counts: Mapping[str, int]
    """Documents by outcome: new, changed, unchanged, failed."""
    chunks: int
    tokens: int
    results_not_kept: int
    """Results beyond what is kept of a job."""


class JobCatalog(Protocol):
    """Keeps jobs. `knowledge_base_id` is the one that callers know. Raises DependencyUnavailable."""

    async def begin(self, knowledge_base_id: UUID, name: str) -> UUID:
        """Makes the job, or begins it again. Forgets jobs that nobody touched for as long as jobs are kept, and those
        of knowledge bases that are gone."""
        ...

    async def keep(self, job_id: UUID, results: Sequence[JobResult]) -> None:
        """Of one document the last counts. A job that was forgotten meanwhile stays so."""
        ...

    async def finish(self, job_id: UUID) -> None: ...

    async def get(self, knowledge_base_id: UUID, name: str) -> Job:
        """Raises JobNotFound."""
        ...

    async def list(self, knowledge_base_id: UUID, *, limit: int, after: str) -> Sequence[Job]:
        """By name."""
        ...

    async def results(self, job_id: UUID, *, limit: int, after: str) -> Sequence[JobResult]:
        """By key, those beyond `after`."""
        ...
