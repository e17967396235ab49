"""Making a knowledge base over two stores, so that nothing half made is left behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kbmesh_rpc.errors import KbmeshError
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase
from kbmesh_retriever.stores.port import Distance, VectorStore

logger = get_logger(__name__)


class Making:
    """Written down, collection made, and then whatever brings it into use."""

    def __init__(self, catalog: Catalog, store: VectorStore) -> None:
        self._catalog = catalog
        self._store = store

    @asynccontextmanager
    async def of(self, knowledge_base: KnowledgeBase) -> AsyncIterator[None]:
        """The block finds the collection made, and brings the knowledge base into use. Where that or the block fails,
        the sweeper removes what there is of it."""
        await self._catalog.prepare_knowledge_base(knowledge_base)
        try:
            await self._store.ensure_collection(
                knowledge_base.collection,
                dimension=knowledge_base.dimension,
                distance=Distance(knowledge_base.distance),
                shared=knowledge_base.placement == "shared",
            )
            yield
        except BaseException:
            await self._abandon(knowledge_base)
            raise

    async def _abandon(self, knowledge_base: KnowledgeBase) -> None:
        try:
            await self._catalog.abandon_knowledge_base(knowledge_base.id)
        except KbmeshError:
            logger.warning("a half-made knowledge base could not be given up; the sweeper will, in time", exc_info=True)
