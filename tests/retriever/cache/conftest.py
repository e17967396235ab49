"""A whole retriever over the workshop's parts, with a cache, asked over gRPC."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_retriever.application import RetrieverApplication
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running
from retriever.workshop import Workshop

HYBRID = pb.RETRIEVAL_STRATEGY_HYBRID


@dataclass(kw_only=True)
class Desk:
    """Where questions are asked."""

    stub: "RetrieverServiceStub"
    application: RetrieverApplication

    async def ask(
        self,
        query: str = "restart payment",
        *names: str,
        tenant: str = "default",
        principals: str = "",
        request_id: str = "",
        timeout: float = 30,
        **options: Any,
    ) -> pb.RetrieveResponse:
        """HYBRID unless another strategy is named."""
        request = question(query, *names, **options)
        metadata = (("kbmesh-tenant", tenant), ("kbmesh-principals", principals), ("kbmesh-request-id", request_id))
        return await self.stub.Retrieve(request, metadata=[pair for pair in metadata if pair[1]], timeout=timeout)


def question(query: str, *names: str, **options: Any) -> pb.RetrieveRequest:
    selectors = [pb.KnowledgeBaseSelector(knowledge_base=name) for name in names or ("handbook",)]
    return pb.RetrieveRequest(query=query, knowledge_bases=selectors, **{"strategy": HYBRID, **options})


def texts(response: pb.RetrieveResponse) -> list[str]:
    return [result.text for result in response.results]


@pytest.fixture(scope="session")
def migrated_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty catalog with its tables: copying it is faster than making them for each test."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"

    async def migrate() -> None:
        catalog = SqlCatalog(f"sqlite:///{path}")
        await catalog.open()
        await catalog.close()

    asyncio.run(migrate())
    return path


@pytest.fixture
def catalog_url(migrated_catalog: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated_catalog, tmp_path / 'catalog.db')}"


@pytest.fixture
async def open_desk(workshop: Workshop, tmp_path: Path) -> AsyncIterator[Any]:
    """Opens desks: `await open_desk(reranker=…, cache="off")`."""
    async with AsyncExitStack() as stack:

        async def opened(reranker: Any = None, **settings: Any) -> Desk:
            chosen = RetrieverSettings(port=0, metrics_port=0, home=tmp_path, sweep_interval_seconds=3600, **settings)
            application = RetrieverApplication(
                chosen,
                catalog=workshop.catalog,
                store=workshop.store,
                chunker=workshop.chunker,
                embedder=workshop.embedder,
                reranker=reranker,
            )
            target = await stack.enter_async_context(running(application, chosen))
            channel = await stack.enter_async_context(open_channel(target))
            return Desk(stub=RetrieverServiceStub(channel), application=application)

        yield opened


@pytest.fixture
async def desk(open_desk: Any) -> Desk:
    opened: Desk = await open_desk()
    return opened
