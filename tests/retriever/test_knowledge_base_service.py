"""Somebody sets up knowledge bases over gRPC."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_retriever.mesh.chunker import ChunkerClient
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyUnavailable, KbmeshError, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error
from retriever.mesh_fakes import DIMENSION, always
from retriever.workshop import Workshop

Config = chunker_pb2.ChunkingConfig


@pytest.fixture
async def service(retriever_address: str) -> AsyncIterator[KnowledgeBaseServiceStub]:
    async with open_channel(retriever_address) as channel:
        yield KnowledgeBaseServiceStub(channel)


async def create(service: KnowledgeBaseServiceStub, name: str = "handbook", **wanted: Any) -> pb.KnowledgeBase:
    request = pb.CreateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(name=name, **wanted))
    return (await service.CreateKnowledgeBase(request)).knowledge_base


async def get(service: KnowledgeBaseServiceStub, name: str, **call: Any) -> pb.KnowledgeBase:
    request = pb.GetKnowledgeBaseRequest(knowledge_base=name)
    return (await service.GetKnowledgeBase(request, **call)).knowledge_base


async def update(service: KnowledgeBaseServiceStub, paths: list[str] | None = None, **wanted: Any) -> pb.KnowledgeBase:
    mask = None if paths is None else FieldMask(paths=paths)
    request = pb.UpdateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(**wanted), update_mask=mask)
    return (await service.UpdateKnowledgeBase(request)).knowledge_base


async def refused(call: Callable[[], Any]) -> KbmeshError:
    """The typed error of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    return from_rpc_error(caught.value, dependency="retriever")


async def test_only_a_name_is_needed(workshop: Workshop, service: KnowledgeBaseServiceStub) -> None:
    made = await create(service)
    assert (made.name, made.embedding_model, made.dimension) == ("handbook", "words", DIMENSION)
    assert made.model_fingerprint == workshop.words.info.fingerprint
    assert (made.placement, made.generation, made.document_count) == (pb.PLACEMENT_DEDICATED, 0, 0)
    assert (made.embedding_provider, made.vector_store) == ("onnx", "qdrant")
    assert made.chunking.strategy == chunker_pb2.STRATEGY_AUTO
    assert (made.retrieval.vector_top_k, made.retrieval.min_vector_score, made.retrieval.weight) == (20, 0.2, 1.0)
    assert made.created_at == made.updated_at
    assert made.created_at.seconds > 0
    assert await get(service, "handbook") == made
    assert await get(service, made.id) == made


async def test_everything_said_is_kept(service: KnowledgeBaseServiceStub) -> None:
    chunking = Config(strategy=chunker_pb2.STRATEGY_SEMANTIC, size=256, overlap=0, minimum=32)
    chunking.semantic.paragraph_blank_lines = 2
    made = await create(
        service,
        description="Rules",
        chunking=chunking,
        placement=pb.PLACEMENT_SHARED,
        retrieval=pb.RetrievalDefaults(vector_top_k=7, min_vector_score=-1, weight=2.5),
    )
    chunking.unit = chunker_pb2.SIZE_UNIT_CHARACTERS
    assert made.chunking == chunking
    assert (made.description, made.placement) == ("Rules", pb.PLACEMENT_SHARED)
    assert made.retrieval == pb.RetrievalDefaults(vector_top_k=7, min_vector_score=-1, weight=2.5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "knowledge_base.name"),
    ({"name": "-x"}, "knowledge_base.name"),
    ({"name": "a b"}, "knowledge_base.name"),
    ({"name": "ä"}, "knowledge_base.name"),
    ({"name": "x\n"}, "knowledge_base.name"),
    ({"name": "x" * 64}, "knowledge_base.name"),
    ({"name": "8a6e0804-2bd0-4672-b79d-d97027f9071a"}, "knowledge_base.name"),
    ({"description": "x" * 2001}, "knowledge_base.description"),
    ({"placement": 9}, "knowledge_base.placement"),
    ({"vector_store": "other"}, "knowledge_base.vector_store"),
    ({"retrieval": {"vector_top_k": 0}}, "knowledge_base.retrieval.vector_top_k"),
    ({"retrieval": {"vector_top_k": 1001}}, "knowledge_base.retrieval.vector_top_k"),
    ({"retrieval": {"min_vector_score": 1.1}}, "knowledge_base.retrieval.min_vector_score"),
    ({"retrieval": {"min_vector_score": float("nan")}}, "knowledge_base.retrieval.min_vector_score"),
    ({"retrieval": {"weight": 0}}, "knowledge_base.retrieval.weight"),
    ({"retrieval": {"weight": float("inf")}}, "knowledge_base.retrieval.weight"),
    ({"chunking": Config(size=0)}, "knowledge_base.chunking.size"),
    ({"chunking": Config(size=100_001)}, "knowledge_base.chunking.size"),
    ({"chunking": Config(size=100, overlap=100)}, "knowledge_base.chunking.overlap"),
    ({"chunking": Config(size=100, minimum=101)}, "knowledge_base.chunking.minimum"),
    ({"chunking": Config(strategy=77)}, "knowledge_base.chunking.strategy"),
    ({"chunking": Config(unit=77)}, "knowledge_base.chunking.unit"),
    ({"chunking": Config(strategy=3, code={"language": "go"})}, "knowledge_base.chunking.code"),
    ({"chunking": Config(similarity={"percentile": 0.5})}, "knowledge_base.chunking.similarity.percentile"),
    ({"chunking": Config(embedding_model="other")}, "knowledge_base.chunking.embedding_model"),
    (
        {"chunking": Config(strategy=8, similarity={"threshold": 1.5})},
        "knowledge_base.chunking.similarity.threshold",
    ),
]


async def test_what_is_wrong_is_named(service: KnowledgeBaseServiceStub) -> None:
    for wanted, field in WRONG:
        error = await refused(lambda wanted=wanted: create(service, **wanted))
        assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)


async def test_all_that_is_wrong_is_named_at_once(service: KnowledgeBaseServiceStub) -> None:
    error = await refused(
        lambda: create(
            service,
            name="a b",
            description="x" * 2001,
            placement=9,
            vector_store="other",
            retrieval={"vector_top_k": 0, "min_vector_score": 2, "weight": -1},
            chunking=Config(strategy=77, size=10, overlap=10, minimum=11, similarity={"threshold": 2, "buffer": 6}),
        )
    )
    assert {violation.field.removeprefix("knowledge_base.") for violation in error.field_violations} == {
        *("name", "description", "placement", "vector_store"),
        *("retrieval.vector_top_k", "retrieval.min_vector_score", "retrieval.weight"),
        *("chunking.strategy", "chunking.overlap", "chunking.minimum", "chunking.similarity"),
        *("chunking.similarity.threshold", "chunking.similarity.buffer"),
    }
    made = await create(service)
    error = await refused(
        lambda: update(service, id=made.id, name="other", placement=2, chunking=Config(size=9), embedding_model="x")
    )
    assert {violation.field.removeprefix("knowledge_base.") for violation in error.field_violations} == {
        *("name", "placement", "chunking", "embedding_model"),
    }


async def test_a_name_is_given_once(service: KnowledgeBaseServiceStub) -> None:
    first = await create(service)
    assert (await refused(lambda: create(service))).reason is Reason.KNOWLEDGE_BASE_ALREADY_EXISTS
    await service.DeleteKnowledgeBase(pb.DeleteKnowledgeBaseRequest(knowledge_base="handbook"))
    assert (await refused(lambda: get(service, "handbook"))).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    assert (await create(service)).id != first.id


async def test_a_model_or_strategy_that_is_not_served(service: KnowledgeBaseServiceStub) -> None:
    error = await refused(lambda: create(service, embedding_model="other"))
    assert (error.reason, error.metadata["available"]) == (Reason.MODEL_NOT_FOUND, "words")
    slack = Config(strategy=chunker_pb2.STRATEGY_SLACK)
    assert (await refused(lambda: create(service, chunking=slack))).reason is Reason.FEATURE_UNSUPPORTED


@pytest.fixture
async def real_chunker(workshop: Workshop) -> AsyncIterator[None]:
    """The workshop's chunker is the mesh's own, which knows no embedder and so keeps no token limit."""
    settings = ChunkerSettings(port=0)
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        workshop.chunker.become(ChunkerClient(channel))
        yield


FAILING_EVERY_DOCUMENT: list[tuple[dict[str, Any], str]] = [
    ({"minimum": 1501}, "minimum"),
    ({"overlap": 1500}, "overlap"),
    ({"minimum": 100_000, "strategy": chunker_pb2.STRATEGY_SEMANTIC}, "minimum"),
    ({"unit": chunker_pb2.SIZE_UNIT_TOKENS, "embedding_model": "words"}, "embedding_model"),
    ({"allow_truncation": False, "size": 100}, "embedding_model"),
]


@pytest.mark.usefixtures("real_chunker")
async def test_settings_by_which_nothing_could_be_cut_are_refused(service: KnowledgeBaseServiceStub) -> None:
    """What is said is right by itself, and wrong beside what the chunker adds or is set up for."""
    for wanted, field in FAILING_EVERY_DOCUMENT:
        config = Config(**{"allow_truncation": True} | wanted)
        error = await refused(lambda config=config: create(service, chunking=config))
        assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, f"knowledge_base.chunking.{field}")
    made = await create(service, chunking=Config(minimum=1500, overlap=1499, allow_truncation=True))
    assert made.chunking.minimum == 1500


async def test_settings_that_nobody_can_check_are_not_taken(
    workshop: Workshop, service: KnowledgeBaseServiceStub
) -> None:
    workshop.chunker.before("chunk", always(DependencyUnavailable("chunker", "down")))
    error = await refused(lambda: create(service, chunking=Config(size=500)))
    assert (error.reason, error.metadata["dependency"]) == (Reason.DEPENDENCY_UNAVAILABLE, "chunker")
    assert (await create(service)).name == "handbook", "by the chunker's own settings every document can be cut"


async def test_nothing_half_made_is_left(workshop: Workshop, service: KnowledgeBaseServiceStub) -> None:
    workshop.store.after("ensure_collection", always(DependencyUnavailable("qdrant", "lost")))
    error = await refused(lambda: create(service))
    assert (error.reason, error.metadata["dependency"]) == (Reason.DEPENDENCY_UNAVAILABLE, "qdrant")
    assert (await refused(lambda: get(service, "handbook"))).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    workshop.store.heal()
    made = await create(service)
    await workshop.sweep()
    attempts = workshop.store.calls["ensure_collection"]
    assert workshop.store.calls["delete_knowledge_base"] == attempts - 1, "the channel tries again; one attempt stays"
    assert await get(service, "handbook") == made


async def test_a_deleted_one_takes_its_points_along(workshop: Workshop, service: KnowledgeBaseServiceStub) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a", "One.\n\nTwo.")
    await workshop.ingest(kb, "b", "Three.")
    workshop.store.before("delete_knowledge_base", lambda call: ConnectionError("down") if call == 0 else None)
    deleted = await service.DeleteKnowledgeBase(pb.DeleteKnowledgeBaseRequest(knowledge_base=kb.name))
    assert deleted.documents_deleted == 2
    with pytest.raises(ConnectionError):
        await workshop.sweep()
    assert await workshop.points(kb) == 3
    await workshop.sweep()
    assert await workshop.points(kb) == 0
    again = pb.DeleteKnowledgeBaseRequest(knowledge_base=kb.name)
    assert (await refused(lambda: service.DeleteKnowledgeBase(again))).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND


async def test_description_and_retrieval_can_change(service: KnowledgeBaseServiceStub) -> None:
    made = await create(service, description="old", retrieval=pb.RetrievalDefaults(weight=3))
    described = await update(service, ["description"], id=made.id, description="new")
    assert (described.description, described.retrieval) == ("new", made.retrieval)
    weighted = await update(service, ["retrieval"], name="handbook", retrieval=pb.RetrievalDefaults(vector_top_k=9))
    assert (weighted.description, weighted.retrieval.vector_top_k, weighted.retrieval.weight) == ("new", 9, 1)
    weighted.description = "all of it"
    request = pb.UpdateKnowledgeBaseRequest(knowledge_base=weighted)
    sent_back = (await service.UpdateKnowledgeBase(request)).knowledge_base
    assert (sent_back.description, sent_back.retrieval) == ("all of it", weighted.retrieval)


SPOILING: list[tuple[list[str] | None, dict[str, Any], str]] = [
    (["chunking"], {}, "update_mask"),
    (["embedding_model"], {}, "update_mask"),
    (["colour"], {}, "update_mask"),
    (None, {"chunking": Config(size=99)}, "knowledge_base.chunking"),
    (None, {"embedding_model": "other"}, "knowledge_base.embedding_model"),
    (None, {"placement": pb.PLACEMENT_SHARED}, "knowledge_base.placement"),
    (["description"], {"description": "x" * 2001}, "knowledge_base.description"),
    (["retrieval"], {"retrieval": {"weight": -1}}, "knowledge_base.retrieval.weight"),
]


async def test_what_would_spoil_the_vectors_cannot_change(service: KnowledgeBaseServiceStub) -> None:
    made = await create(service)
    for paths, wanted, field in SPOILING:
        error = await refused(lambda paths=paths, wanted=wanted: update(service, paths, name="handbook", **wanted))
        assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)
    renamed = await refused(lambda: update(service, id=made.id, name="renamed"))
    assert renamed.metadata["field"] == "knowledge_base.name"
    assert (await refused(lambda: update(service))).reason is Reason.INVALID_FIELD
    assert await get(service, "handbook") == made


async def test_lists_have_pages(service: KnowledgeBaseServiceStub) -> None:
    for name in ("c", "a", "b"):
        await create(service, name)
    first = await service.ListKnowledgeBases(pb.ListKnowledgeBasesRequest(page_size=2))
    assert [kb.name for kb in first.knowledge_bases] == ["a", "b"]
    token = first.next_page_token
    second = await service.ListKnowledgeBases(pb.ListKnowledgeBasesRequest(page_size=2, page_token=token))
    assert ([kb.name for kb in second.knowledge_bases], second.next_page_token) == (["c"], "")
    rival = (("kbmesh-tenant", "rival"),)
    empty = await service.ListKnowledgeBases(pb.ListKnowledgeBasesRequest(), metadata=rival)
    assert list(empty.knowledge_bases) == []
    stolen = pb.ListKnowledgeBasesRequest(page_token=token)
    error = await refused(lambda: service.ListKnowledgeBases(stolen, metadata=rival))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, "page_token")


async def test_another_tenant_may_take_the_same_name(service: KnowledgeBaseServiceStub) -> None:
    ours = await create(service)
    rival = {"metadata": (("kbmesh-tenant", "rival"),)}
    assert (await refused(lambda: get(service, ours.id, **rival))).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    request = pb.CreateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(name="handbook"))
    theirs = (await service.CreateKnowledgeBase(request, **rival)).knowledge_base
    assert theirs.id != ours.id
    assert await get(service, "handbook", **rival) == theirs
