"""Named sets of documents that share a model and a way of chunking."""

from dataclasses import dataclass
from datetime import datetime

from kbmesh_client.chunks import ChunkingConfig
from kbmesh_client.enums import Placement


@dataclass(frozen=True, kw_only=True)
class RetrievalDefaults:
    """What is used where a request says nothing."""

    vector_top_k: int | None = None
    """Hits asked of each channel. 20 by default."""
    min_vector_score: float | None = None
    """Cosine similarity below which a vector hit is dropped. 0.2 by default."""
    weight: float | None = None
    """Weight of this knowledge base's lists in fusion. 1 by default."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBase:
    """A knowledge base as the server keeps it."""

    id: str
    """UUID, given by the server."""
    name: str
    """Unique within the tenant."""
    description: str
    """For people."""
    chunking: ChunkingConfig
    """How its documents are cut."""
    embedding_model: str
    """The embedding model."""
    model_fingerprint: str
    """Fingerprint of that model when the knowledge base was made."""
    dimension: int
    """Numbers a vector."""
    placement: Placement
    """Where its vectors lie."""
    retrieval: RetrievalDefaults
    """What is used where a request says nothing."""
    generation: int
    """Grows with every change of its documents."""
    document_count: int
    """Documents that can be found."""
    chunk_count: int
    """Chunks that can be found."""
    created_at: datetime | None
    """When it was made, in UTC."""
    updated_at: datetime | None
    """When it or its documents last changed, in UTC."""
