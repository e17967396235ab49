"""The retriever's parts, put together."""

import asyncio
from collections.abc import Sequence

import grpc
from kbmesh.retriever.v1 import ingestion_pb2_grpc, knowledge_base_pb2_grpc, retriever_pb2_grpc
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import Registration

from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.ingest.sweeper import Sweeper
from kbmesh_retriever.ingestion_servicer import IngestionServicer
from kbmesh_retriever.knowledge_base_servicer import KnowledgeBaseServicer
from kbmesh_retriever.knowledge_bases import KnowledgeBases
from kbmesh_retriever.llm import ChatRephraser
from kbmesh_retriever.mesh.chunker import ChunkerClient
from kbmesh_retriever.mesh.embedder import EmbedderClient
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort, RerankerPort
from kbmesh_retriever.mesh.reranker import RerankerClient
from kbmesh_retriever.rebuilds import Rebuilds
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retriever_servicer import RetrieverServicer
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores.port import VectorStore
from kbmesh_retriever.stores.registry import open_store


class RetrieverApplication:
    """Serves as soon as its catalog is open. Services and stores that are down are met call by call."""

    def __init__(
        self,
        settings: RetrieverSettings,
        *,
        catalog: SqlCatalog,
        store: VectorStore,
        chunker: ChunkerPort,
        embedder: EmbedderPort,
        reranker: RerankerPort | None,
        rephraser: ChatRephraser | None = None,
        channels: Sequence[grpc.aio.Channel] = (),
    ) -> None:
        """`channels` are closed with it."""
        self._vector_store = settings.vector_store
        self._catalog = catalog
        self._store = store
        self._channels = channels
        self._rephraser = rephraser
        self._sweeper = Sweeper(
            catalog,
            store,
            grace_seconds=settings.superseded_grace_seconds,
            interval_seconds=settings.sweep_interval_seconds,
        )
        self._sweeping: asyncio.Task[None] | None = None
        ingester = Ingester(
            catalog,
            store,
            chunker,
            embedder,
            max_document_bytes=settings.max_document_bytes,
            shrink_share=settings.shrink_share,
        )
        knowledge_base_servicer = KnowledgeBaseServicer(
            catalog,
            KnowledgeBases(catalog, store, chunker, embedder, vector_store=settings.vector_store),
            Rebuilds(catalog, store, chunker, embedder, vector_store=settings.vector_store),
        )
        ingestion_servicer = IngestionServicer(catalog, ingester, default_concurrency=settings.ingest_concurrency)
        retriever_servicer = RetrieverServicer(
            catalog=catalog,
            store=store,
            embedder=embedder,
            reranker=reranker,
            rephraser=rephraser,
            limits=RetrievalLimits(default_deadline_seconds=settings.default_deadline_seconds),
        )
        self.registrations: Sequence[Registration] = (
            Registration(
                name="kbmesh.retriever.v1.RetrieverService",
                add=lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(
                    retriever_servicer, server
                ),
            ),
            Registration(
                name="kbmesh.retriever.v1.KnowledgeBaseService",
                add=lambda server: knowledge_base_pb2_grpc.add_KnowledgeBaseServiceServicer_to_server(
                    knowledge_base_servicer, server
                ),
            ),
            Registration(
                name="kbmesh.retriever.v1.IngestionService",
                add=lambda server: ingestion_pb2_grpc.add_IngestionServiceServicer_to_server(
                    ingestion_servicer, server
                ),
            ),
        )

    async def warm_up(self) -> None:
        await self._catalog.open()
        # In another store their collections are not there, and what is not there is empty without an error.
        if others := set(await self._catalog.vector_stores()) - {self._vector_store}:
            raise ValueError(
                f"the catalog has knowledge bases in {', '.join(sorted(others))}; vector_store is {self._vector_store}"
            )
        self._sweeping = asyncio.create_task(self._sweeper.run())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        if self._rephraser is not None:
            await self._rephraser.close()
        for channel in self._channels:
            await channel.close()
        await self._store.close()
        await self._catalog.close()


async def make_application(settings: RetrieverSettings) -> RetrieverApplication:
    """The application over the services and stores that `settings` name. Connects to none of them yet."""
    chunker = open_channel(settings.chunker_address, max_message_bytes=settings.max_message_bytes)
    embedder = open_channel(settings.embedder_address, max_message_bytes=settings.max_message_bytes)
    channels = [chunker, embedder]
    reranker: RerankerPort | None = None
    if settings.reranker_address:
        channel = open_channel(settings.reranker_address, max_message_bytes=settings.max_message_bytes)
        channels.append(channel)
        reranker = RerankerClient(channel, limit_seconds=settings.rerank_timeout_seconds)
    rephraser: ChatRephraser | None = None
    if settings.llm_url:
        rephraser = ChatRephraser(
            base_url=settings.llm_url, model=settings.llm_model, api_key=settings.llm_api_key.get_secret_value()
        )
    return RetrieverApplication(
        settings,
        catalog=SqlCatalog(
            settings.catalog_database,
            reservation_timeout_seconds=settings.reservation_timeout_seconds,
            max_job_results=settings.job_max_results,
            job_retention_seconds=settings.job_retention_seconds,
        ),
        store=open_store(settings),
        chunker=ChunkerClient(chunker, limit_seconds=settings.chunk_timeout_seconds),
        embedder=EmbedderClient(embedder, limit_seconds=settings.embed_timeout_seconds),
        reranker=reranker,
        rephraser=rephraser,
        channels=channels,
    )
