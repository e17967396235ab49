"""Hashes that tell whether there is anything to do, and the ids of chunks."""

import hashlib
import json
from typing import Any
from uuid import UUID, uuid5

from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.document import IncomingDocument

POINT_FORMAT = "2"
"""Counts up when points hold something else than before: then every document has to be taken in again."""

CHUNK_NAMESPACE = UUID("1d1b0ae4-7a4f-5e4c-9b52-6c8a3f0f7c11")
"""Namespace of the UUIDv5 of chunks."""


def content_sha256(content: str | bytes) -> bytes:
    """SHA-256 of the bytes, or of the text as UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).digest()


def points_fingerprint(
    document: IncomingDocument,
    *,
    content_sha256: bytes,
    knowledge_base: KnowledgeBase,
    chunker_version: str,
    analyser_fingerprint: str,
) -> str:
    """SHA-256 hex of everything that decides the chunks and their vectors.

    Whether the caller gave a title counts, the title itself does not: a title found by the chunker is known only where
    the chunker has run.
    """
    return _sha256_hex(
        {
            "format": POINT_FORMAT,
            "content": content_sha256.hex(),
            "is_text": isinstance(document.content, str),
            "media_type": document.media_type,
            "filename": document.filename,
            "source_type": document.source_type,
            "titled": bool(document.title),
            "chunking": dict(knowledge_base.chunking),
            "chunker": chunker_version,
            "model": knowledge_base.model_fingerprint,
            "analyser": analyser_fingerprint,
        }
    )


def payload_fingerprint(document: IncomingDocument) -> str:
    """SHA-256 hex of what lies in the vector store beside the vectors and decides nothing of them."""
    return _sha256_hex({"metadata": dict(document.metadata), **_who_and_when(document)})


def source_fingerprint(document: IncomingDocument, *, content_sha256: bytes) -> str:
    """SHA-256 hex of all that the caller sent, whatever the knowledge base's settings."""
    return _sha256_hex(
        {
            "content": content_sha256.hex(),
            "is_text": isinstance(document.content, str),
            "media_type": document.media_type,
            "filename": document.filename,
            "source_type": document.source_type,
            "metadata": dict(document.metadata),
            **_who_and_when(document),
            "description": description_fingerprint(document),
        }
    )


def description_fingerprint(document: IncomingDocument) -> str:
    """SHA-256 hex of what is shown of a document."""
    return _sha256_hex(
        {
            "title": document.title,
            "uri": document.uri,
            "author": document.author,
            "created_at": None if document.created_at is None else document.created_at.isoformat(),
        }
    )


def _who_and_when(document: IncomingDocument) -> dict[str, Any]:
    """Only what the caller gave: what was taken in before there was such a thing has the same fingerprint. In whatever
    order principals and tags are named, they are the same."""
    said: dict[str, Any] = {
        "author": document.author,
        "created_at": document.created_at.isoformat() if document.created_at is not None else "",
        "principals": sorted(document.principals),
        "tags": sorted(document.tags),
    }
    return {name: value for name, value in said.items() if value}


def chunk_id(*, tenant: str, knowledge_base_id: UUID, document_id: UUID, generation: int, index: int) -> UUID:
    """Stable and unique; never shared between knowledge bases or between versions of a document."""
    # Only the tenant is free text, and it stands last: no two different keys are written alike.
    return uuid5(CHUNK_NAMESPACE, f"{knowledge_base_id}/{document_id}/{generation}/{index}/{tenant}")


def _sha256_hex(value: dict[str, Any]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
