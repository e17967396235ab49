"""Deletes from the vector store what no reader can need any more."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from uuid import UUID

from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KbmeshError
from kbmesh_rpc.logs import get_logger

from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase, Superseded
from kbmesh_retriever.ingest import metrics
from kbmesh_retriever.stores.port import Scope, VectorStore

logger = get_logger(__name__)

_BATCH = 500


class Sweeper:
    """Everything due is in the catalog, so that it is deleted in the end even where the vector store was down for a
    while or a process was killed. Several may run at once: deleting twice does no harm."""

    def __init__(
        self,
        catalog: Catalog,
        store: VectorStore,
        *,
        grace_seconds: float,
        interval_seconds: float = 10,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`grace_seconds` is not below the longest deadline of any search: who began before a version was replaced may
        read it until then."""
        self._catalog = catalog
        self._store = store
        self._grace_seconds = grace_seconds
        self._interval_seconds = interval_seconds
        self._now = now

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            try:
                await self.sweep()
            except KbmeshError as error:
                logger.warning("could not sweep; will try again", reason=error.reason, error=error.message)
            except Exception:
                logger.exception("unknown exception while sweeping; will try again")
            await asyncio.sleep(self._interval_seconds)

    async def sweep(self) -> int:
        """Deletes all that is due, and tells how many generations and knowledge bases that was. Raises the first error
        of catalog or store; what is not deleted yet stays due. What cannot be deleted keeps nothing else from it, but a
        store that does not answer is not asked again and again."""
        failed = list[KbmeshError]()
        found = swept = 0
        try:
            found, swept = await self._sweep(failed)
        except BaseException:
            metrics.sweep_failed()
            raise
        metrics.sweep_ended(left=found - swept, now=self._now())
        if failed:
            raise failed[0]
        return swept

    async def _sweep(self, failed: list[KbmeshError]) -> tuple[int, int]:
        """How much was due, as far as it was looked at, and how much of it is gone."""
        found = swept = 0
        while not failed and (
            due := await self._catalog.due_for_deletion(older_than_seconds=self._grace_seconds, limit=_BATCH)
        ):
            found += len(due)
            gone = await self._delete_generations(due, failed)
            metrics.swept("generation", gone)
            swept += gone
        tried: set[UUID] = set()
        while not _down(failed):
            deleted = await self._catalog.deleted_knowledge_bases(older_than_seconds=self._grace_seconds, limit=_BATCH)
            deleted = [knowledge_base for knowledge_base in deleted if knowledge_base.id not in tried]
            if not deleted:
                break
            found += len(deleted)
            gone = await self._delete_knowledge_bases(deleted, failed)
            metrics.swept("knowledge_base", gone)
            swept += gone
            tried |= {knowledge_base.id for knowledge_base in deleted}
        return found, swept

    async def _delete_knowledge_bases(self, deleted: Sequence[KnowledgeBase], failed: list[KbmeshError]) -> int:
        swept = 0
        for knowledge_base in deleted:
            try:
                await self._store.delete_knowledge_base(
                    knowledge_base.collection,
                    Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id),
                    drop_collection=knowledge_base.placement == "dedicated",
                )
            except KbmeshError as error:
                failed.append(error)
                if _down(failed):
                    break
                continue
            await self._catalog.forget_knowledge_base(knowledge_base)
            swept += 1
        return swept

    async def _delete_generations(self, due: Sequence[Superseded], failed: list[KbmeshError]) -> int:
        swept = 0
        by_document: dict[UUID, list[Superseded]] = defaultdict(list)
        for superseded in due:
            by_document[superseded.document_id].append(superseded)
        for document_id, superseded_ones in by_document.items():
            knowledge_base = superseded_ones[0].knowledge_base
            try:
                await self._store.delete_generations(
                    knowledge_base.collection,
                    Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id),
                    document_id,
                    [superseded.generation for superseded in superseded_ones],
                )
            except KbmeshError as error:
                failed.append(error)
                if _down(failed):
                    break
                continue
            for superseded in superseded_ones:
                await self._catalog.forget(superseded)
            swept += len(superseded_ones)
        return swept


def _down(failed: Sequence[KbmeshError]) -> bool:
    return any(isinstance(error, DependencyUnavailable | DeadlineExceeded) for error in failed)
