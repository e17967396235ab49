"""Making, changing and deleting knowledge bases."""

import hashlib
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import FieldViolation, InvalidField, KnowledgeBaseAlreadyExists

from kbmesh_retriever.catalog.port import Catalog, DistanceName, KnowledgeBase, Placement, RetrievalDefaults
from kbmesh_retriever.catalog.rows import uuid_or_none
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.ingest.document import wrong_principals
from kbmesh_retriever.making import Making
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort, ModelInfo
from kbmesh_retriever.stores.port import VectorStore
from kbmesh_retriever.vector_settings import VectorSettings

MAX_DESCRIPTION_CHARACTERS = 2000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class NewKnowledgeBase:
    """What the caller wants made. An empty model is the embedder's default."""

    name: str
    description: str = ""
    chunking: Mapping[str, Any] = field(default_factory=dict)
    """Canonical Protobuf JSON of a checked ChunkingConfig."""
    embedding_model: str = ""
    placement: Placement = "dedicated"
    distance: DistanceName = "cosine"
    readers: tuple[str, ...] = ()
    """Empty: everybody of the tenant."""
    vector_store: str = ""
    """Empty: the one there is."""
    retrieval: RetrievalDefaults = field(default_factory=RetrievalDefaults)


class KnowledgeBases:
    """Knowledge bases over catalog and vector store."""

    def __init__(
        self,
        catalog: Catalog,
        store: VectorStore,
        chunker: ChunkerPort,
        embedder: EmbedderPort,
        *,
        vector_store: str = "qdrant",
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], UUID] = uuid.uuid4,
    ) -> None:
        self._catalog = catalog
        self._settings = VectorSettings(chunker, embedder)
        self._making = Making(catalog, store)
        self._vector_store = vector_store
        self._now = now
        self._new_id = new_id

    async def create(
        self, tenant: str, wanted: NewKnowledgeBase, *, also_wrong: Sequence[FieldViolation] = ()
    ) -> KnowledgeBase:
        """Raises InvalidField with every field that is wrong, those of `also_wrong` among them,
        KnowledgeBaseAlreadyExists, ModelNotFound or FeatureUnsupported, and the errors of the services and stores it
        needs; then nothing is left of it."""
        refuse(
            [
                *check_name(wanted.name),
                *check_description(wanted.description),
                *check_readers(wanted.readers),
                *also_wrong,
                *self._check_store(wanted.vector_store),
                *check_retrieval(wanted.retrieval),
            ]
        )
        if await self._catalog.resolve_knowledge_bases(tenant, [wanted.name]):
            raise KnowledgeBaseAlreadyExists(wanted.name)
        model = await self._settings.check(wanted.chunking, wanted.embedding_model)
        knowledge_base_id, now = self._new_id(), self._now()
        knowledge_base = KnowledgeBase(
            id=knowledge_base_id,
            tenant=tenant,
            name=wanted.name,
            description=wanted.description,
            chunking=wanted.chunking,
            embedding_model=model.name,
            model_fingerprint=model.fingerprint,
            dimension=model.dimension,
            embedding_provider=model.provider,
            vector_store=self._vector_store,
            placement=wanted.placement,
            collection=collection_name(tenant, knowledge_base_id, model, wanted.placement, wanted.distance),
            distance=wanted.distance,
            readers=wanted.readers,
            retrieval=wanted.retrieval,
            created_at=now,
            updated_at=now,
        )
        async with self._making.of(knowledge_base):
            await self._catalog.create_knowledge_base(knowledge_base)
        return knowledge_base

    def _check_store(self, vector_store: str) -> list[FieldViolation]:
        if vector_store in ("", self._vector_store):
            return []
        said = f"must be {self._vector_store!r}, where this server keeps vectors"
        return [FieldViolation(field="knowledge_base.vector_store", description=said)]

    async def update(
        self,
        tenant: str,
        name_or_id: str,
        *,
        description: str | None,
        retrieval: RetrievalDefaults | None,
        readers: Sequence[str] | None = None,
    ) -> KnowledgeBase:
        """None leaves a value as it is. Raises KnowledgeBaseNotFound, and InvalidField with every field that is
        wrong."""
        refuse(
            [
                *([] if description is None else check_description(description)),
                *([] if retrieval is None else check_retrieval(retrieval)),
                *([] if readers is None else check_readers(readers)),
            ]
        )
        return await self._catalog.update_knowledge_base(
            tenant, name_or_id, description=description, retrieval=retrieval, readers=readers
        )

    async def delete(self, tenant: str, name_or_id: str) -> int:
        """Gives the number of documents that went. From now on nobody finds it; the sweeper deletes its points."""
        _, documents = await self._catalog.delete_knowledge_base(tenant, name_or_id)
        return documents


def collection_name(
    tenant: str, knowledge_base_id: UUID, model: ModelInfo, placement: Placement, distance: DistanceName = "cosine"
) -> str:
    """The collection of a knowledge base, or the one that it shares with others of its tenant that have the same model
    and distance. Word statistics are a collection's: were one shared between tenants, one's documents would change
    what another finds."""
    if placement == "dedicated":
        return f"kb-{knowledge_base_id}"
    # A tenant's name may hold what a collection's may not.
    owner = hashlib.sha256(tenant.encode()).hexdigest()[:16]
    shared = f"shared-{owner}-{model.fingerprint[:16]}"
    return shared if distance == "cosine" else f"{shared}-{distance}"


def refuse(violations: Sequence[FieldViolation]) -> None:
    """Raises InvalidField where there are violations."""
    if violations:
        raise InvalidField.of(violations)


def check_name(name: str) -> list[FieldViolation]:
    field = "knowledge_base.name"
    if not _NAME.fullmatch(name):
        said = 'must have 1 to 63 letters, digits, "-", "_" and ".", and begin with a letter or digit'
        return [FieldViolation(field=field, description=said)]
    if uuid_or_none(name) is not None:
        return [FieldViolation(field=field, description="must not look like an id")]
    return []


def check_description(description: str) -> list[FieldViolation]:
    field = "knowledge_base.description"
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        said = f"must have at most {MAX_DESCRIPTION_CHARACTERS} characters"
        return [FieldViolation(field=field, description=said)]
    if "\0" in description:
        return [FieldViolation(field=field, description="holds a NUL character")]
    return []


def check_readers(readers: Sequence[str]) -> list[FieldViolation]:
    field = "knowledge_base.readers"
    return [FieldViolation(field=field, description=said) for said in wrong_principals(readers)]


def check_retrieval(retrieval: RetrievalDefaults) -> list[FieldViolation]:
    wrong: dict[str, str] = {}
    if not 1 <= retrieval.vector_top_k <= 1000:
        wrong["vector_top_k"] = "must be 1 to 1000"
    if not -1 <= retrieval.min_vector_score <= 1:
        wrong["min_vector_score"] = "must be -1 to 1"
    if not (math.isfinite(retrieval.weight) and 0 < retrieval.weight <= 100):
        wrong["weight"] = "must be above 0 and at most 100"
    return [FieldViolation(field=f"knowledge_base.retrieval.{name}", description=said) for name, said in wrong.items()]
