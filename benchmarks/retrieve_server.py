"""A retriever over a mesh in memory, with its cache and a catalog in SQLite, and beside it a method that does nothing:
`python -m benchmarks.retrieve_server`, started by `benchmarks.retrieve`."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import grpc
from google.protobuf.empty_pb2 import Empty
from kbmesh.retriever.v1.retriever_pb2_grpc import add_RetrieverServiceServicer_to_server
from kbmesh_retriever.answer_bytes import encode_answer
from kbmesh_retriever.cache.answers import Answers
from kbmesh_retriever.cache.memory import MemoryCache
from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.catalog.profile_port import ProfileCatalog
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retriever_servicer import RetrieverServicer
from kbmesh_rpc.server import Registration, run
from kbmesh_rpc.settings import ServerSettings, load_settings

from benchmarks.fake_mesh import FakeCatalog, make_fake_mesh

EMPTY = "kbmesh.benchmark.v1.EmptyService"
KNOWLEDGE_BASES = 8


class _Catalog:
    """A `CatalogReader`: knowledge bases as the retriever keeps them, documents in memory."""

    def __init__(self, kept: SqlCatalog, fake: FakeCatalog) -> None:
        self._kept = kept
        self._fake = fake

    @property
    def profiles(self) -> ProfileCatalog:
        return self._kept.profiles

    async def resolve_knowledge_bases(self, tenant: str, names_or_ids: Collection[str]) -> Mapping[str, KnowledgeBase]:
        return await self._kept.resolve_knowledge_bases(tenant, names_or_ids)

    async def valid_documents(
        self, as_of: Mapping[UUID, int], hits: Collection[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Document]:
        return await self._fake.valid_documents(as_of, hits)


class Application:
    """What the server serves."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="kbmesh-bench-")
        self._kept = SqlCatalog(f"sqlite:///{Path(self._folder.name) / 'catalog.db'}")
        self._mesh = mesh = make_fake_mesh(KNOWLEDGE_BASES)
        catalog = _Catalog(self._kept, mesh.catalog)
        limits, metrics = RetrievalLimits(), CacheMetrics("answers")
        cache = MemoryCache(metrics, max_entries=1000, leave_together=100, max_bytes=64 * 1024 * 1024)
        servicer = RetrieverServicer(
            catalog=catalog,
            store=mesh.store,
            embedder=mesh.embedder,
            reranker=mesh.reranker,
            limits=limits,
            answers=Answers(cache, catalog, metrics, limits=limits, encode=encode_answer),
        )
        self.registrations: Sequence[Registration] = (
            Registration(
                name="kbmesh.retriever.v1.RetrieverService",
                add=lambda server: add_RetrieverServiceServicer_to_server(servicer, server),
            ),
            Registration(name=EMPTY, add=_add_empty),
        )

    async def warm_up(self) -> None:
        await self._kept.open()
        for knowledge_base in self._mesh.catalog.knowledge_bases.values():
            await self._kept.create_knowledge_base(knowledge_base)

    async def close(self) -> None:
        await self._kept.close()
        self._folder.cleanup()


def _add_empty(server: grpc.aio.Server) -> None:
    async def call(request: Empty, context: grpc.aio.ServicerContext[Any, Any]) -> Empty:
        return Empty()

    handler = grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=Empty.FromString, response_serializer=Empty.SerializeToString
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(EMPTY, {"Call": handler})])


async def _make(settings: ServerSettings) -> Application:
    return Application()


if __name__ == "__main__":
    run(_make, load_settings(ServerSettings, service="benchmark"))
