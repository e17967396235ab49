"""Rebuilding a knowledge base for another model or way of chunking, while readers find the old one."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kbmesh_rpc.errors import Conflict, RebuildNotFound

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase, Placement, RebuildProgress
from kbmesh_retriever.catalog.sql import utc_now
from kbmesh_retriever.ingest import metrics
from kbmesh_retriever.knowledge_bases import collection_name
from kbmesh_retriever.making import Making
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort
from kbmesh_retriever.stores.port import VectorStore
from kbmesh_retriever.vector_settings import VectorSettings


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """A rebuild that is under way."""

    successor: KnowledgeBase
    """What is to take the knowledge base's place: documents are taken into it as into any other."""
    progress: RebuildProgress


class Rebuilds:
    """Rebuilds over catalog and vector store."""

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

    async def start(
        self,
        knowledge_base: KnowledgeBase,
        *,
        chunking: Mapping[str, Any] | None = None,
        embedding_model: str = "",
        placement: Placement | None = None,
    ) -> KnowledgeBase:
        """Begins one, or gives the one with the same settings that is under way. What is not said stays as it is.

        Raises Conflict where one with other settings is under way, InvalidField, ModelNotFound, FeatureUnsupported or
        KnowledgeBaseNotFound, and the errors of the services and stores it needs; then nothing is left of it.
        """
        old = knowledge_base
        if chunking is None:
            # Whose token limit chunks keep goes with the model.
            chunking = {name: value for name, value in old.chunking.items() if name != "embedding_model"}
        placement = placement or old.placement
        model = await self._settings.check(chunking, embedding_model or old.embedding_model)
        successor_id, now = self._new_id(), self._now()
        successor = KnowledgeBase(
            id=successor_id,
            known_as=old.public_id,
            tenant=old.tenant,
            name=old.name,
            description=old.description,
            chunking=chunking,
            embedding_model=model.name,
            model_fingerprint=model.fingerprint,
            dimension=model.dimension,
            embedding_provider=model.provider,
            vector_store=self._vector_store,
            placement=placement,
            collection=collection_name(old.tenant, successor_id, model, placement, old.distance),
            distance=old.distance,
            readers=old.readers,
            retrieval=old.retrieval,
            created_at=now,
            updated_at=now,
        )
        if (there := await self._catalog.find_rebuild(old)) is not None:
            if _settings(there) == _settings(successor):
                return there
            raise Conflict(
                f"knowledge_bases/{old.public_id}", "a rebuild with other settings is under way; finish or cancel it"
            )
        async with self._making.of(successor):
            await self._catalog.create_rebuild(successor, of=old)
        metrics.rebuild("started")
        return successor

    async def find(self, knowledge_base: KnowledgeBase) -> Rebuild | None:
        """How far it is, where one is under way."""
        successor = await self._catalog.find_rebuild(knowledge_base)
        if successor is None:
            return None
        return Rebuild(successor=successor, progress=await self._catalog.rebuild_progress(knowledge_base, successor))

    async def successor(self, knowledge_base: KnowledgeBase) -> KnowledgeBase:
        """What documents are to be taken into. Raises RebuildNotFound."""
        found = await self._catalog.find_rebuild(knowledge_base)
        if found is None:
            raise RebuildNotFound(knowledge_base.name)
        return found


def _settings(knowledge_base: KnowledgeBase) -> tuple[object, ...]:
    return (dict(knowledge_base.chunking), knowledge_base.model_fingerprint, knowledge_base.placement)
