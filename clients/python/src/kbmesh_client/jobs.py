"""Ingestion jobs: an ingestion under a name, to be resumed where it broke off."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kbmesh_client.documents import IngestDocument, IngestResult
from kbmesh_client.enums import IngestOutcome


@dataclass(frozen=True, kw_only=True)
class IngestJob:
    """How far a job has come. Counts are of documents, each by its last result."""

    job_id: str
    """The id that the caller chose."""
    created_at: datetime | None
    """When it was first begun, in UTC."""
    updated_at: datetime | None
    """When a result was last kept, in UTC."""
    finished_at: datetime | None
    """When a call of it last came to its end, in UTC. None where none has since it was last begun."""
    new_documents: int
    """Documents that were not there and are now."""
    changed_documents: int
    """Documents that were replaced."""
    unchanged_documents: int
    """Documents that were there already."""
    failed_documents: int
    """Documents that could not be taken in."""
    chunks: int
    """Chunks that its documents have."""
    tokens: int
    """Tokens that were embedded."""
    results_not_kept: int
    """Results beyond the number that the server keeps of a job."""


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The last result of a document of a job."""

    result: IngestResult
    """The result, without its warnings."""
    content_sha256: bytes
    """SHA-256 of the content that was sent, 32 bytes. Empty where it could not be read, or where the document is to be
    sent again whatever its content."""


class DoneDocuments:
    """What a job has done already, to be left out when it is resumed."""

    def __init__(self, results: Iterable[JobResult] = ()) -> None:
        self._done = {
            entry.result.external_id: entry
            for entry in results
            if entry.result.outcome is not IngestOutcome.FAILED and entry.content_sha256
        }

    def take(self, document: IngestDocument) -> IngestResult | None:
        """The result of a document that need not be sent again, once: its content is what it was. One with principals,
        tags or metadata is sent again all the same, which costs little: those may have changed."""
        entry = self._done.pop(document.external_id, None)
        says_more = document.principals or document.tags or document.metadata
        if entry is None or says_more or entry.content_sha256 != content_sha256(document.content):
            return None
        return entry.result


def content_sha256(content: str | bytes) -> bytes:
    """SHA-256 of the bytes, or of the text as UTF-8, as the server counts it; empty where UTF-8 cannot hold it."""
    try:
        return hashlib.sha256(content.encode() if isinstance(content, str) else content).digest()
    except UnicodeEncodeError:
        return b""
