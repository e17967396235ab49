"""Making, changing and deleting knowledge bases."""

import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from kbmesh_rpc.errors import (
    FeatureUnsupported,
    InvalidField,
    KbmeshError,
    KnowledgeBaseAlreadyExists,
)
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.catalog.rows import uuid_or_none
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort, SourceDocument
from kbmesh_retriever.stores.port import VectorStore

logger = get_logger(__name__)

MAX_DESCRIPTION_CHARACTERS = 2000
_CHUNKING = "knowledge_base.chunking"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class NewKnowledgeBase:
    """What the caller wants made. An empty model is the embedder's default."""

    name: str
    description: str = ""
    chunking: Mapping[str, Any] = field(default_factory=dict)
    """Canonical Protobuf JSON of a checked ChunkingConfig."""
    embedding_model: str = ""
    placement: Literal["dedicated", "shared"] = "dedicated"
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
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], UUID] = uuid.uuid4,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._chunker = chunker
        self._embedder = embedder
        self._now = now
        self._new_id = new_id

    async def create(self, tenant: str, wanted: NewKnowledgeBase) -> KnowledgeBase:
        """Raises InvalidField, KnowledgeBaseAlreadyExists, ModelNotFound or FeatureUnsupported, and the errors of the
        services and stores it needs; then nothing is left of it."""
        check_name(wanted.name)
        check_description(wanted.description)
        check_retrieval(wanted.retrieval)
        if await self._catalog.resolve_knowledge_bases(tenant, [wanted.name]):
            raise KnowledgeBaseAlreadyExists(wanted.name)
        await self._check_strategy(wanted.chunking)
        model = await self._embedder.find_model(wanted.embedding_model)
        token_limit_of = wanted.chunking.get("embedding_model", "")
        if token_limit_of not in ("", model.name):
            raise InvalidField(f"{_CHUNKING}.embedding_model", f"must be the knowledge base's own, {model.name!r}")
        if wanted.chunking:
            await self._check_chunking(wanted.chunking, model.name)
        knowledge_base_id, now = self._new_id(), self._now()
        shared = wanted.placement == "shared"
        knowledge_base = KnowledgeBase(
            id=knowledge_base_id,
            tenant=tenant,
            name=wanted.name,
            description=wanted.description,
            chunking=wanted.chunking,
            embedding_model=model.name,
            model_fingerprint=model.fingerprint,
            dimension=model.dimension,
            placement=wanted.placement,
            collection=f"shared-{model.fingerprint[:16]}" if shared else f"kb-{knowledge_base_id}",
            retrieval=wanted.retrieval,
            created_at=now,
            updated_at=now,
        )
        await self._catalog.prepare_knowledge_base(knowledge_base)
        try:
            await self._store.ensure_collection(knowledge_base.collection, dimension=knowledge_base.dimension)
            await self._catalog.create_knowledge_base(knowledge_base)
        except BaseException:
            await self._abandon(knowledge_base.id)
            raise
        return knowledge_base

    async def update(
        self, tenant: str, name_or_id: str, *, description: str | None, retrieval: RetrievalDefaults | None
    ) -> KnowledgeBase:
        """None leaves a value as it is. Raises InvalidField or KnowledgeBaseNotFound."""
        if description is not None:
            check_description(description)
        if retrieval is not None:
            check_retrieval(retrieval)
        return await self._catalog.update_knowledge_base(
            tenant, name_or_id, description=description, retrieval=retrieval
        )

    async def delete(self, tenant: str, name_or_id: str) -> int:
        """Gives the number of documents that went. From now on nobody finds it; the sweeper deletes its points."""
        _, documents = await self._catalog.delete_knowledge_base(tenant, name_or_id)
        return documents

    async def _check_strategy(self, chunking: Mapping[str, Any]) -> None:
        strategy = chunking.get("strategy", "STRATEGY_AUTO")
        if strategy != "STRATEGY_AUTO" and strategy not in await self._chunker.strategies():
            raise FeatureUnsupported(f"chunking strategy {strategy.removeprefix('STRATEGY_')}")

    async def _check_chunking(self, chunking: Mapping[str, Any], embedding_model: str) -> None:
        """Has the chunker cut a word by these settings: it alone knows what is left out of them, and what it serves.
        Raises InvalidField for settings by which no document could be cut."""
        probe = SourceDocument(content="kbmesh", media_type="text/plain")
        try:
            await self._chunker.chunk(probe, chunking=chunking, embedding_model=embedding_model)
        except InvalidField as error:
            field = error.metadata.get("field", "")
            said = next((violation.description for violation in error.field_violations), error.message)
            raise InvalidField(f"{_CHUNKING}.{field.removeprefix('config.')}", said) from error

    async def _abandon(self, knowledge_base_id: UUID) -> None:
        try:
            await self._catalog.abandon_knowledge_base(knowledge_base_id)
        except KbmeshError:
            logger.warning("a half-made knowledge base could not be given up; the sweeper will, in time", exc_info=True)


def check_name(name: str) -> None:
    """Raises InvalidField."""
    if not _NAME.fullmatch(name):
        raise InvalidField(
            "knowledge_base.name",
            'must have 1 to 63 letters, digits, "-", "_" and ".", and begin with a letter or digit',
        )
    if uuid_or_none(name) is not None:
        raise InvalidField("knowledge_base.name", "must not look like an id")


def check_description(description: str) -> None:
    """Raises InvalidField."""
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        raise InvalidField("knowledge_base.description", f"must have at most {MAX_DESCRIPTION_CHARACTERS} characters")
    if "\0" in description:
        raise InvalidField("knowledge_base.description", "holds a NUL character")


def check_retrieval(retrieval: RetrievalDefaults) -> None:
    """Raises InvalidField."""
    if not 1 <= retrieval.vector_top_k <= 1000:
        raise InvalidField("knowledge_base.retrieval.vector_top_k", "must be 1 to 1000")
    if not -1 <= retrieval.min_vector_score <= 1:
        raise InvalidField("knowledge_base.retrieval.min_vector_score", "must be -1 to 1")
    if not (math.isfinite(retrieval.weight) and 0 < retrieval.weight <= 100):
        raise InvalidField("knowledge_base.retrieval.weight", "must be above 0 and at most 100")
