"""Named sets of documents that share a model and a way of chunking."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kbmesh_client.chunks import ChunkingConfig
from kbmesh_client.enums import Distance, Placement, RebuildState


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
class Rebuild:
    """A knowledge base's successor while its documents are taken in."""

    state: RebuildState
    """Whether it can be finished."""
    chunking: ChunkingConfig
    """How its documents are cut."""
    embedding_model: str
    """Its embedding model."""
    model_fingerprint: str
    """Fingerprint of that model when the rebuild began."""
    dimension: int
    """Numbers a vector."""
    placement: Placement
    """Where its vectors lie."""
    documents_done: int
    """Documents that readers find and that lie in the rebuild as they were last sent."""
    documents_total: int
    """Documents that readers find."""
    documents_failed: int
    """Documents that are outstanding because the last attempt failed."""
    failures: Mapping[str, str]
    """Why, by external id; at most 100 of them."""
    started_at: datetime | None
    """When it began, in UTC."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBase:
    """A knowledge base as the server keeps it."""

    id: str
    """UUID, given by the server. A rebuild does not change it."""
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
    embedding_provider: str = ""
    """Who serves the model: "onnx" where the embedder runs it itself, or the name of a remote provider."""
    vector_store: str = ""
    """Name of the vector store that holds its vectors."""
    readers: tuple[str, ...] = ()
    """Principals who may retrieve from it. Everybody of the tenant when empty."""
    distance: Distance = Distance.COSINE
    """How its vectors are compared."""
    rebuild: Rebuild | None = None
    """The rebuild that is under way, if one is. Lists leave it out."""
