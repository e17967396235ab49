"""What the retriever keeps of knowledge bases and documents, and the port through which it is kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from kbmesh_rpc.errors import Conflict

from kbmesh_retriever.catalog.job_port import JobCatalog
from kbmesh_retriever.catalog.profile_port import ProfileCatalog

Placement = Literal["dedicated", "shared"]
"""A collection of its own, or one shared with other knowledge bases of the same model."""

DistanceName = Literal["cosine", "euclidean", "dot"]
"""How vectors are compared, as `stores.port.Distance` names it."""


@dataclass(frozen=True, kw_only=True)
class RetrievalDefaults:
    """Used where a request says nothing."""

    vector_top_k: int = 20
    """Hits asked of each channel."""
    min_vector_score: float = 0.2
    """Cosine similarity below which a vector hit is dropped."""
    weight: float = 1.0
    """Weight of the knowledge base's lists in fusion."""


@dataclass(frozen=True, kw_only=True)
class KnowledgeBase:
    """A named set of documents that share a model and a way of chunking."""

    id: UUID
    tenant: str
    name: str
    description: str = ""
    chunking: Mapping[str, Any] = field(default_factory=dict)
    """`kbmesh.chunker.v1.ChunkingConfig` as canonical Protobuf JSON with the proto's field names."""
    embedding_model: str
    model_fingerprint: str
    dimension: int
    embedding_provider: str = "onnx"
    """Who serves the model: "onnx" where the embedder runs it itself, or the name of a remote provider."""
    vector_store: str = "qdrant"
    """Name of the vector store that holds its points."""
    placement: Placement = "dedicated"
    collection: str
    """Name of the Qdrant collection that holds its points."""
    distance: DistanceName = "cosine"
    readers: tuple[str, ...] = ()
    """Principals who may retrieve from it. Empty: everybody of the tenant."""
    retrieval: RetrievalDefaults = field(default_factory=RetrievalDefaults)
    generation: int = 0
    """Grows with every change of its documents; what is published together counts once."""
    document_count: int = 0
    chunk_count: int = 0
    created_at: datetime
    updated_at: datetime
    known_as: UUID | None = None
    """The id that callers know it by, where a rebuild gave it another one since it was made."""

    @property
    def public_id(self) -> UUID:
        """What callers know it by, for as long as it is not deleted. Never a key of documents or points."""
        return self.known_as or self.id

    def is_for(self, principals: Collection[str]) -> bool:
        """Whether somebody who is all of `principals` may retrieve from it."""
        return not self.readers or not set(principals).isdisjoint(self.readers)


@dataclass(frozen=True, kw_only=True)
class RebuildProgress:
    """How far a rebuild is."""

    total: int
    """Documents that readers can find now."""
    done: int
    """Those of them that lie in the rebuild as the caller last sent them."""
    failures: Mapping[str, str]
    """Why the last attempt failed, by external id, for documents that are not done: the first hundred by name."""
    failed: int
    """How many of them there are."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """What is known of a document whose current version can be found."""

    id: UUID
    knowledge_base_id: UUID
    external_id: str
    title: str
    uri: str
    source_type: str
    """Name of `kbmesh.chunker.v1.SourceType` without its prefix, in lower case: "file", "slack"."""
    media_type: str
    author: str
    created_at: datetime | None
    ingested_at: datetime
    content_sha256: bytes
    fingerprint: str
    """SHA-256 hex of content, chunking settings, chunker version, analyser and model: equal means that chunks and
    vectors stay."""
    generation: int
    """Number of the current version."""
    chunk_count: int
    strategy: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    found_metadata: Mapping[str, str] = field(default_factory=dict)
    """What `metadata` has from the document itself."""
    given_metadata: Mapping[str, str] = field(default_factory=dict)
    """What `metadata` has from the caller, who wins."""
    payload_fingerprint: str = ""
    """SHA-256 hex of what is written beside the vectors and decides nothing of them. Empty: not known."""
    text_characters: int | None = None
    """Characters of its text. None where it is not known."""
    description_fingerprint: str = ""
    """SHA-256 hex of the title, link, author and time that the caller gave: they can change while the chunks stay."""
    source_fingerprint: str = ""
    """SHA-256 hex of all that the caller sent of it, whatever the knowledge base's settings."""
    tags: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    """Who may read it, as its points say. Empty: everybody of the tenant."""
    narrowed_to: tuple[str, ...] = ()
    """Who of those may still read it, where the caller has taken it from others and the points do not say so yet.
    Empty: all of them."""

    def is_for(self, principals: Collection[str]) -> bool:
        """Whether somebody who is all of `principals` may read it."""
        who = set(principals)
        return all(not named or not who.isdisjoint(named) for named in (self.principals, self.narrowed_to))


def narrows(before: Collection[str], now: Collection[str]) -> bool:
    """Whether principals `now` leave somebody out who could read by those `before`. None named is everybody."""
    return bool(now) and (not before or not set(before) <= set(now))


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A generation number taken before the first write, so that a crash never leaves chunks nobody knows of."""

    document_id: UUID
    knowledge_base_id: UUID
    generation: int
    replaces: int | None
    """The generation that was current at the time: publishing is a compare-and-set on it."""


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """A generation whose chunks may be deleted."""

    knowledge_base: KnowledgeBase
    document_id: UUID
    generation: int


class CatalogReader(Protocol):
    """What retrieval asks of a catalog. Raises DependencyUnavailable."""

    @property
    def profiles(self) -> ProfileCatalog:
        """The retrieval profiles of agents."""
        ...

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        """One query. Those that the tenant does not have are left out."""
        ...

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        """The documents of those (document id, generation) pairs that were current when their knowledge base's
        counter stood at `as_of[knowledge_base_id]` (read when the search began), each described as that generation
        was. One query. Of one document at most one generation is in the answer."""
        ...


class Catalog(CatalogReader, Protocol):
    """Keeps knowledge bases and documents. Every read is by tenant. Implementations raise the errors of
    `kbmesh_rpc.errors`: KnowledgeBaseNotFound, KnowledgeBaseAlreadyExists, DocumentNotFound, Conflict,
    DependencyUnavailable."""

    @property
    def jobs(self) -> JobCatalog:
        """The jobs of ingestion."""
        ...

    async def prepare_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        """Remembers, for the sweeper alone, that its collection is about to be made."""
        ...

    async def create_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        """Brings it into every reader's sight, prepared or not. Raises KnowledgeBaseAlreadyExists, and Conflict where
        it was prepared and given up meanwhile."""
        ...

    async def abandon_knowledge_base(self, knowledge_base_id: UUID) -> None:
        """Gives up one that was prepared and not created; its collection becomes due for deletion."""
        ...

    async def get_knowledge_base(self, tenant: str, name_or_id: str) -> KnowledgeBase: ...

    async def vector_stores(self) -> Collection[str]:
        """Names of the stores that hold points of knowledge bases, or of what is left of them."""
        ...

    async def list_knowledge_bases(self, tenant: str, *, limit: int, after: str) -> Sequence[KnowledgeBase]: ...

    async def update_knowledge_base(
        self,
        tenant: str,
        name_or_id: str,
        *,
        description: str | None,
        retrieval: RetrievalDefaults | None,
        readers: Sequence[str] | None = None,
    ) -> KnowledgeBase:
        """None leaves a value as it is. New readers count up the knowledge base's generation: what was answered before
        is not for them."""
        ...

    async def delete_knowledge_base(self, tenant: str, name_or_id: str) -> tuple[KnowledgeBase, int]:
        """Removes it from every reader's sight and returns it with its number of documents. What lies in the vector
        store is remembered for the sweeper until `forget` is called."""
        ...

    async def deleted_knowledge_bases(self, *, older_than_seconds: float, limit: int) -> Sequence[KnowledgeBase]:
        """Those deleted so long ago that no reader can still need their points, with no writer left at work; and those
        that were prepared by somebody who is gone."""
        ...

    async def forget_knowledge_base(self, knowledge_base: KnowledgeBase) -> None:
        """Its points are gone from the vector store."""
        ...

    async def create_rebuild(self, rebuild: KnowledgeBase, *, of: KnowledgeBase) -> None:
        """Lets the prepared `rebuild` take documents in, for no reader to see. Raises Conflict where another one is
        under way or it was given up meanwhile, and KnowledgeBaseNotFound where `of` went away."""
        ...

    async def find_rebuild(self, knowledge_base: KnowledgeBase) -> KnowledgeBase | None:
        """The rebuild that is under way, as a knowledge base to take documents into."""
        ...

    async def rebuild_progress(self, knowledge_base: KnowledgeBase, rebuild: KnowledgeBase) -> RebuildProgress: ...

    async def note_rebuild_failure(self, knowledge_base_id: UUID, external_id: str, reason: str) -> None:
        """Remembers why a document could not be taken into a rebuild; of other knowledge bases, nothing."""
        ...

    async def finish_rebuild(
        self, knowledge_base: KnowledgeBase, *, drop_outstanding: bool
    ) -> tuple[KnowledgeBase, int]:
        """Puts the rebuild in the knowledge base's place, in one transaction, and gives it with the number of documents
        that are not in it. Raises RebuildNotFound, KnowledgeBaseNotFound, and RebuildIncomplete where there are such
        documents and `drop_outstanding` is not set."""
        ...

    async def cancel_rebuild(self, knowledge_base: KnowledgeBase) -> None:
        """Its collection becomes due for deletion. Raises RebuildNotFound."""
        ...

    async def find_document(self, knowledge_base_id: UUID, external_id: str) -> Document | None: ...

    async def find_documents(self, knowledge_base_id: UUID, external_ids: Collection[str]) -> Mapping[str, Document]:
        """Those of these that there are. One query."""
        ...

    async def get_document(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        """The document of that id, or else the one of that external id. Raises DocumentNotFound."""
        ...

    async def list_documents(self, knowledge_base_id: UUID, *, limit: int, after: str) -> Sequence[Document]: ...

    async def reserve_generation(self, knowledge_base_id: UUID, external_id: str) -> Reservation: ...

    async def publish(self, reservation: Reservation, document: Document) -> None:
        """Makes the reserved generation current, in one transaction that also counts up the knowledge base's
        generation. Raises Conflict where another one has become current since the reservation, and
        KnowledgeBaseNotFound where the knowledge base went away meanwhile."""
        ...

    async def reserve_generations(self, knowledge_base_id: UUID, external_ids: Sequence[str]) -> Sequence[Reservation]:
        """`reserve_generation` of documents that are all different, at the price of one."""
        ...

    async def publish_together(
        self, knowledge_base_id: UUID, published: Sequence[tuple[Reservation, Document]]
    ) -> Sequence[Conflict | None]:
        """`publish` of documents that are all different, at the price of one: a reader sees all of them or none. Gives
        of each None, or why it was not published."""
        ...

    async def redescribe(self, document: Document) -> None:
        """Gives the current version another title, link, author and time, and ends what `narrow` did; its chunks stay.
        Raises Conflict where another version has become current, and KnowledgeBaseNotFound where the knowledge base
        went away meanwhile."""
        ...

    async def narrow(self, document: Document, principals: Sequence[str], *, source_fingerprint: str) -> None:
        """Takes the document from everybody who is none of `principals`, at once and whatever its points say: from
        readers who are searching now, too, and in a rebuild that is under way. A version that is published later is
        for whom it says itself. Raises KnowledgeBaseNotFound where the knowledge base went away meanwhile."""
        ...

    async def abandon(self, reservation: Reservation) -> None:
        """Gives a reserved generation up; its chunks become due for deletion."""
        ...

    async def delete_document(self, knowledge_base_id: UUID, id_or_external_id: str) -> Document:
        """Deletes what `get_document` gives, and returns it."""
        ...

    async def due_for_deletion(self, *, older_than_seconds: float, limit: int) -> Sequence[Superseded]:
        """Generations superseded, abandoned or deleted so long ago that no reader can still need their chunks, and
        reservations so old that their writer must be gone."""
        ...

    async def forget(self, superseded: Superseded) -> None:
        """The chunks are gone from the vector store."""
        ...

    async def health(self) -> None: ...

    async def close(self) -> None: ...
