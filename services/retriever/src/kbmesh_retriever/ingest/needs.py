"""What taking a document in asks of others: a call for each document, or one for many."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KbmeshError
from kbmesh_rpc.spans import span

from kbmesh_retriever.catalog.port import Catalog, Document, KnowledgeBase, Reservation
from kbmesh_retriever.ingest.embedding import TEXTS_A_CALL, BulkEmbedding
from kbmesh_retriever.ingest.packing import Packer
from kbmesh_retriever.mesh.port import Embedded
from kbmesh_retriever.stores.port import Point, VectorStore

_LOOKUPS_A_CALL = 256
_EMBED_CALLS = 2
"""At once for one stream: while one is answered, the embedder has the next."""
_DOCUMENTS_A_TRANSACTION = 64
_POINTS_A_WRITE = 100
_WRITES = 2


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What taking a document in asks of others, for one knowledge base: alone, or together with its stream's others."""

    find: Callable[[str], Awaitable[Document | None]]
    """The document of an external id."""
    embed: Callable[[Sequence[str]], Awaitable[Embedded]]
    reserve: Callable[[str], Awaitable[Reservation]]
    write: Callable[[Sequence[Point]], Awaitable[None]]
    publish: Callable[[Reservation, Document], Awaitable[None]]


def needs_alone(catalog: Catalog, store: VectorStore, embedding: BulkEmbedding, knowledge_base: KnowledgeBase) -> Needs:
    """A call for each need of each document."""

    async def embed(texts: Sequence[str]) -> Embedded:
        [answer] = await embedding.embed(knowledge_base, [texts])
        if isinstance(answer, KbmeshError):
            raise answer
        return answer

    return Needs(
        find=lambda external_id: catalog.find_document(knowledge_base.id, external_id),
        embed=embed,
        reserve=lambda external_id: catalog.reserve_generation(knowledge_base.id, external_id),
        write=lambda points: store.upsert(knowledge_base.collection, points),
        publish=catalog.publish,
    )


def needs_together(
    catalog: Catalog,
    store: VectorStore,
    embedding: BulkEmbedding,
    knowledge_base: KnowledgeBase,
    group: asyncio.TaskGroup,
) -> Needs:
    """One call for what several documents need at the same time. Ends with `group`."""

    async def find(external_ids: Sequence[str]) -> Sequence[Document | None]:
        with span("catalog find", kind="client", kbmesh__documents=len(external_ids)):
            found = await catalog.find_documents(knowledge_base.id, set(external_ids))
        return [found.get(external_id) for external_id in external_ids]

    async def embed(documents: Sequence[Sequence[str]]) -> Sequence[Embedded | KbmeshError]:
        return await embedding.embed(knowledge_base, documents)

    async def reserve(external_ids: Sequence[str]) -> Sequence[Reservation]:
        with span("catalog reserve", kind="client", kbmesh__documents=len(external_ids)):
            if len(external_ids) == 1:
                return [await catalog.reserve_generation(knowledge_base.id, external_ids[0])]
            return await catalog.reserve_generations(knowledge_base.id, external_ids)

    async def write(documents: Sequence[Sequence[Point]]) -> Sequence[KbmeshError | None]:
        try:
            points = [point for each in documents for point in each]
            with span("vector store write", kind="client", kbmesh__points=len(points)):
                await store.upsert(knowledge_base.collection, points)
        except KbmeshError as error:
            if len(documents) == 1 or isinstance(error, DependencyUnavailable | DeadlineExceeded):
                return [error] * len(documents)
            return [answer for each in documents for answer in await write([each])]
        return [None] * len(documents)

    async def publish(published: Sequence[tuple[Reservation, Document]]) -> Sequence[KbmeshError | None]:
        with span("catalog publish", kind="client", kbmesh__documents=len(published)):
            if len(published) == 1:
                await catalog.publish(*published[0])
                return [None]
            return await catalog.publish_together(knowledge_base.id, published)

    finding = Packer[str, Document | None](find, group, max_weight=_LOOKUPS_A_CALL)
    vectors = Packer[Sequence[str], Embedded](embed, group, max_weight=TEXTS_A_CALL, in_flight=_EMBED_CALLS)
    reserving = Packer[str, Reservation](reserve, group, max_weight=_DOCUMENTS_A_TRANSACTION)
    writing = Packer[Sequence[Point], None](write, group, max_weight=_POINTS_A_WRITE, in_flight=_WRITES)
    publishing = Packer[tuple[Reservation, Document], None](publish, group, max_weight=_DOCUMENTS_A_TRANSACTION)
    return Needs(
        find=finding.ask,
        embed=lambda texts: vectors.ask(texts, weight=len(texts)),
        reserve=reserving.ask,
        write=lambda points: writing.ask(points, weight=len(points)),
        publish=lambda reservation, document: publishing.ask((reservation, document)),
    )
