"""An operator starts the retriever before, or without, everything it talks to."""

from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from edge_process import free_port
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub
from kbmesh_retriever.application import make_application
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.settings import load_settings
from kbmesh_rpc.status import from_rpc_error
from retriever.catalog_values import knowledge_base

SERVICES = ("RetrieverService", "KnowledgeBaseService", "IngestionService")


async def test_it_serves_while_everything_else_is_down(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    settings = RetrieverSettings(
        port=0,
        home=tmp_path,
        qdrant_url=f"http://{nobody}",
        chunker_address=nobody,
        embedder_address=nobody,
        reranker_address="",
    )
    application = await make_application(settings)
    async with running(application, settings) as address, open_channel(address) as channel:
        for name in ("", *(f"kbmesh.retriever.v1.{service}" for service in SERVICES)):
            request = health_pb2.HealthCheckRequest(service=name)
            answer = await health_pb2_grpc.HealthStub(channel).Check(request)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        knowledge_bases = KnowledgeBaseServiceStub(channel)
        assert not (await knowledge_bases.ListKnowledgeBases(pb.ListKnowledgeBasesRequest())).knowledge_bases
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await knowledge_bases.CreateKnowledgeBase(
                pb.CreateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(name="x"))
            )
        error = from_rpc_error(caught.value, dependency="retriever")
        assert (error.reason, error.metadata["dependency"]) == (Reason.DEPENDENCY_UNAVAILABLE, "embedder")
    assert (tmp_path / "data" / "catalog.db").exists()


async def test_it_does_not_start_over_a_store_that_its_knowledge_bases_are_not_in(tmp_path: Path) -> None:
    """Their collections would not be there, and every search would be empty without an error."""
    settings = RetrieverSettings(port=0, home=tmp_path)
    application = await make_application(settings)
    await application.warm_up()
    await application.close()
    catalog = SqlCatalog(settings.catalog_database)
    await catalog.open()
    await catalog.create_knowledge_base(replace(knowledge_base(), vector_store="pinecone"))
    await catalog.close()
    application = await make_application(settings)
    with pytest.raises(ValueError, match="pinecone"):
        await application.warm_up()
    await application.close()


def test_the_catalogs_password_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBMESH_CATALOG_URL", "postgresql://kb:hunter2@db/kbmesh")
    monkeypatch.setenv("KBMESH_QDRANT_API_KEY", "hunter2")
    with pytest.raises(SystemExit):
        load_settings(RetrieverSettings, service="retriever", argv=["--print-settings"])
    assert "hunter2" not in capsys.readouterr().out
