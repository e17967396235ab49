"""The retriever's parts, put together."""

import asyncio
from collections.abc import Sequence

import grpc
from kbmesh.retriever.v1 import ingestion_pb2_grpc, knowledge_base_pb2_grpc, profile_pb2_grpc, retriever_pb2_grpc
from kbmesh_rpc.channel import calling_certificates, open_channel
from kbmesh_rpc.server import Registration

from kbmesh_retriever.answer_bytes import encode_answer
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.attribution.links import S3Links
from kbmesh_retriever.cache.answers import Answers
from kbmesh_retriever.cache.caches import caches_of
from kbmesh_retriever.cache.query_vectors import CachedEmbedder
from kbmesh_retriever.cache.reranker_seen import RerankerSeen
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.ingest.ingester import Ingester
from kbmesh_retriever.ingest.sweeper import Sweeper
from kbmesh_retriever.ingestion_servicer import IngestionServicer
from kbmesh_retriever.keywords.analyser import ANALYSER_FINGERPRINT
from kbmesh_retriever.knowledge_base_servicer import KnowledgeBaseServicer
from kbmesh_retriever.knowledge_bases import KnowledgeBases
from kbmesh_retriever.llm import ChatRephraser
from kbmesh_retriever.mesh.chunker import ChunkerClient
from kbmesh_retriever.mesh.embedder import EmbedderClient
from kbmesh_retriever.mesh.guard import (
    GuardedCatalog,
    GuardedEmbedder,
    GuardedRephraser,
    GuardedReranker,
    GuardedStore,
)
from kbmesh_retriever.mesh.port import ChunkerPort, EmbedderPort, RerankerPort
from kbmesh_retriever.mesh.reranker import RerankerClient
from kbmesh_retriever.profile_servicer import ProfileServicer
from kbmesh_retriever.rebuilds import Rebuilds
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retriever_servicer import RetrieverServicer
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores.port import VectorStore
from kbmesh_retriever.stores.registry import open_store

_DECIDES_NO_ANSWER = {
    "host", "port", "metrics_port", "log_level", "log_format", "grace_seconds", "max_message_bytes",
    "max_connection_age_seconds", "otlp_endpoint", "trust_tenant_metadata", "ingest_concurrency",
    "superseded_grace_seconds", "reservation_timeout_seconds", "sweep_interval_seconds", "job_max_results",
    "job_retention_seconds", "cache_entries", "cache_memory_bytes", "redis_timeout_seconds", "health_port",
    "allow_plaintext", "tls_cert", "tls_key", "tls_ca", "tls_require_client_cert", "tls_allowed_callers",
    "tls_trusted_callers", "tls_reload_seconds", "qdrant_ca", "qdrant_cert", "qdrant_key",
}  # fmt: skip
"""Settings that replicas may differ in and still give each other's answers. Every other one counts, so that a new one
is not forgotten."""


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
        tokenizers: ContextTokenizers | None = None,
        links: S3Links | None = None,
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
            embed_seconds=settings.embed_timeout_seconds,
        )
        knowledge_base_servicer = KnowledgeBaseServicer(
            catalog,
            KnowledgeBases(catalog, store, chunker, embedder, vector_store=settings.vector_store),
            Rebuilds(catalog, store, chunker, embedder, vector_store=settings.vector_store),
        )
        ingestion_servicer = IngestionServicer(catalog, ingester, default_concurrency=settings.ingest_concurrency)
        limits = RetrievalLimits(
            default_deadline_seconds=settings.default_deadline_seconds,
            context_tokenizers=tokenizers.names if tokenizers is not None else frozenset(),
        )
        self._caches = caches = caches_of(settings)
        guarded_catalog = GuardedCatalog(catalog)
        seen = RerankerSeen(GuardedReranker(reranker)) if reranker is not None else None
        self._query_embedder = CachedEmbedder(
            GuardedEmbedder(embedder),
            caches.query_vectors,
            caches.query_vector_metrics,
            ttl_seconds=settings.cache_ttl_seconds,
        )
        self._answers = Answers(
            caches.answers,
            guarded_catalog,
            caches.answer_metrics,
            limits=limits,
            encode=encode_answer,
            reranker=lambda: "" if seen is None else seen.model,
            decides=(ANALYSER_FINGERPRINT, settings.model_dump(mode="json", exclude=_DECIDES_NO_ANSWER)),
            ttl_seconds=settings.cache_ttl_seconds,
            max_value_bytes=settings.cache_max_answer_bytes,
        )
        retriever_servicer = RetrieverServicer(
            catalog=guarded_catalog,
            store=GuardedStore(store, name=settings.vector_store),
            embedder=self._query_embedder,
            reranker=seen,
            rephraser=GuardedRephraser(rephraser) if rephraser is not None else None,
            limits=limits,
            answers=self._answers,
            tokenizers=tokenizers,
            links=links,
        )
        profile_servicer = ProfileServicer(catalog.profiles, limits=limits)
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
            Registration(
                name="kbmesh.retriever.v1.ProfileService",
                add=lambda server: profile_pb2_grpc.add_ProfileServiceServicer_to_server(profile_servicer, server),
            ),
        )

    async def warm_up(self) -> None:
        await self._catalog.open()
        # In another store their collections are not there, and what is not there is empty without an error.
        if others := set(await self._catalog.vector_stores()) - {self._vector_store}:
            raise ValueError(
                f"the catalog has knowledge bases in {', '.join(sorted(others))}; vector_store is {self._vector_store}"
            )
        await self._caches.open()
        self._sweeping = asyncio.create_task(self._sweeper.run())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._answers.close()
        await self._query_embedder.close()
        await self._caches.close()
        if self._rephraser is not None:
            await self._rephraser.close()
        for channel in self._channels:
            await channel.close()
        await self._store.close()
        await self._catalog.close()


async def make_application(settings: RetrieverSettings) -> RetrieverApplication:
    """The application over the services and stores that `settings` name. Connects to none of them yet."""
    certificates = calling_certificates(settings)

    def open_to(address: str) -> grpc.aio.Channel:
        return open_channel(address, max_message_bytes=settings.max_message_bytes, certificates=certificates)

    chunker = open_to(settings.chunker_address)
    embedder = open_to(settings.embedder_address)
    channels = [chunker, embedder]
    reranker: RerankerPort | None = None
    if settings.reranker_address:
        channel = open_to(settings.reranker_address)
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
        tokenizers=ContextTokenizers.load(settings.context_tokenizers),
        links=S3Links.connect(
            buckets=settings.s3_buckets,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=settings.s3_secret_access_key.get_secret_value(),
            session_token=settings.s3_session_token.get_secret_value(),
            region=settings.s3_region,
            endpoint_url=settings.s3_endpoint_url,
            seconds=settings.s3_link_seconds,
        ),
        channels=channels,
    )
