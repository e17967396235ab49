"""Documents to take in, what became of them, and what is known of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kbmesh_client.chunks import DocumentWarning
from kbmesh_client.enums import ChunkingStrategy, IngestOutcome, SourceType


@dataclass(frozen=True, kw_only=True)
class IngestDocument:
    """A document to take in."""

    external_id: str
    """The caller's own name for it, unique within the knowledge base. Ingesting it again replaces it."""
    content: str | bytes
    """Text that needs no decoding, or the file as it is."""
    media_type: str = ""
    """MIME type. Found from filename and content when empty."""
    filename: str = ""
    """Name of the file, with its extension. A hint for detection; never opened."""
    source_type: SourceType | str | None = None
    """Kind of place it comes from. Found from media type and filename when left out."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Handed through to every chunk. At most 64 entries."""
    title: str = ""
    """Title to show. Found in the document when empty."""
    uri: str = ""
    """Where a person can open it: a URL or a path."""
    author: str = ""
    """Who wrote it."""
    created_at: datetime | None = None
    """When it was written."""
    principals: Sequence[str] = ()
    """Who may read it: names matched with the principals of who asks. Everybody of the tenant when empty."""
    tags: Sequence[str] = ()
    """Words to filter by."""
    allow_shrink: bool = False
    """It is meant that nothing or little is left of it: no DOCUMENT_SHRUNK."""


@dataclass(frozen=True, kw_only=True)
class ItemError:
    """Why one item failed while its neighbours did not."""

    reason: str
    """Why, for a machine: the name of an ErrorReason without its prefix."""
    message: str
    """Why, for a person."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The keys that the reason's comment in errors.proto names."""


@dataclass(frozen=True, kw_only=True)
class IngestResult:
    """What became of one document."""

    external_id: str
    """The caller's name for it."""
    document_id: str
    """The server's id. Empty where it failed and was never there."""
    outcome: IngestOutcome
    """What became of it."""
    error: ItemError | None = None
    """Why it failed."""
    chunks: int = 0
    """Chunks it has now."""
    embedded: int = 0
    """Texts that were embedded for it. Zero where it is unchanged."""
    tokens: int = 0
    """Tokens that were embedded for it."""
    truncated: int = 0
    """Chunks whose end the model could not read."""
    warnings: tuple[DocumentWarning, ...] = ()
    """What went less than well."""
    resumed: bool = False
    """Whether an earlier call of the job took it in, so that it was not sent again. The counts are of then."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """What is known of a document."""

    id: str
    """UUID, given by the server."""
    external_id: str
    """The caller's name for it."""
    title: str
    """Title to show."""
    uri: str
    """Where a person can open it."""
    source_type: SourceType
    """Kind of place it comes from."""
    media_type: str
    """Media type."""
    author: str
    """Who wrote it."""
    created_at: datetime | None
    """When it was written, in UTC."""
    ingested_at: datetime | None
    """When its current version was taken in, in UTC."""
    content_sha256: bytes
    """SHA-256 of the content, 32 bytes."""
    chunk_count: int
    """Chunks of its current version."""
    generation: int
    """Number of its current version."""
    strategy: ChunkingStrategy
    """Strategy it was cut with; never AUTO."""
    metadata: Mapping[str, str]
    """What the caller and the chunker know of it besides."""
    principals: tuple[str, ...] = ()
    """Who may read it. Everybody of the tenant when empty."""
    tags: tuple[str, ...] = ()
    """Words to filter by."""
