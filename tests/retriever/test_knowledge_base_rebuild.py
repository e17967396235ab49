"""Somebody changes the model or the chunking of a knowledge base that is in use."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2, retriever_pb2
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceStub
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.mesh_fakes import WordEmbedder
from retriever.workshop import Workshop

SMALL = chunker_pb2.ChunkingConfig(size=200)
TEXTS = {"a": "Alpha restarts the pump.", "b": "Beta closes the valve.", "c": "Gamma opens the hatch."}


class Caller:
    """Somebody who calls the retriever."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.knowledge_bases = KnowledgeBaseServiceStub(channel)
        self.ingestion = IngestionServiceStub(channel)
        self.retriever = RetrieverServiceStub(channel)

    async def rebuild(self, **wanted: Any) -> pb.KnowledgeBase:
        request = pb.UpdateKnowledgeBaseRequest(
            knowledge_base=pb.KnowledgeBase(name="handbook", **wanted), rebuild=True
        )
        return (await self.knowledge_bases.UpdateKnowledgeBase(request)).knowledge_base

    async def show(self) -> pb.KnowledgeBase:
        request = pb.GetKnowledgeBaseRequest(knowledge_base="handbook")
        return (await self.knowledge_bases.GetKnowledgeBase(request)).knowledge_base

    async def send(self, texts: dict[str, str], **options: Any) -> dict[str, str]:
        """What became of each document."""
        requests = [
            ingestion_pb2.IngestRequest(options=ingestion_pb2.IngestOptions(knowledge_base="handbook", **options)),
            *(
                ingestion_pb2.IngestRequest(
                    document=ingestion_pb2.IngestDocument(external_id=name, document=chunker_pb2.Document(text=text))
                )
                for name, text in texts.items()
            ),
        ]
        return {
            result.external_id: ingestion_pb2.IngestOutcome.Name(result.outcome).removeprefix("INGEST_OUTCOME_")
            async for result in self.ingestion.Ingest(iter(requests))
        }

    async def search(self, query: str) -> list[str]:
        request = retriever_pb2.RetrieveRequest(
            query=query,
            knowledge_bases=[retriever_pb2.KnowledgeBaseSelector(knowledge_base="handbook")],
            strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID,
        )
        answer = await self.retriever.Retrieve(request)
        assert {result.knowledge_base_id for result in answer.results} <= {(await self.show()).id}
        return [result.text for result in answer.results]

    async def finish(self, **said: Any) -> pb.FinishRebuildResponse:
        return await self.knowledge_bases.FinishRebuild(pb.FinishRebuildRequest(knowledge_base="handbook", **said))


@pytest.fixture
async def caller(workshop: Workshop, retriever_address: str) -> AsyncIterator[Caller]:
    await workshop.make()
    async with open_channel(retriever_address) as channel:
        yield Caller(channel)


async def refused(call: Any) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, dependency="retriever")


async def test_another_chunking_comes_into_use_when_every_document_is_there(workshop: Workshop, caller: Caller) -> None:
    """ING-04"""
    assert set((await caller.send(TEXTS)).values()) == {"NEW"}
    before = await caller.show()
    begun = await caller.rebuild(chunking=SMALL)
    assert (begun.id, begun.chunking, begun.rebuild.chunking.size) == (before.id, before.chunking, 200)
    assert (begun.rebuild.state, begun.rebuild.documents_done, begun.rebuild.documents_total) == (
        pb.REBUILD_STATE_BUILDING, 0, 3,
    )  # fmt: skip
    again = await caller.rebuild(chunking=SMALL)
    assert again.rebuild == begun.rebuild, "asked for twice, it goes on"
    other = await refused(caller.rebuild(chunking=chunker_pb2.ChunkingConfig(size=300)))
    assert other.reason is Reason.CONFLICT

    assert await caller.send({"a": TEXTS["a"], "b": TEXTS["b"]}, into_rebuild=True) == {"a": "NEW", "b": "NEW"}
    assert (await caller.show()).rebuild.documents_done == 2
    assert await caller.search("Gamma hatch") != []
    incomplete = await refused(caller.finish())
    assert (incomplete.reason, incomplete.metadata["outstanding"]) == (Reason.REBUILD_INCOMPLETE, "1")

    outcomes = await caller.send(TEXTS, into_rebuild=True)
    assert outcomes == {"a": "UNCHANGED", "b": "UNCHANGED", "c": "NEW"}, "what is done is not done again"
    assert (await caller.show()).rebuild.state == pb.REBUILD_STATE_READY
    finished = await caller.finish()
    now = finished.knowledge_base
    assert (now.id, now.chunking.size, now.document_count, finished.documents_dropped) == (before.id, 200, 3, 0)
    assert not now.HasField("rebuild")
    assert now.generation > before.generation
    assert (await caller.search("Gamma hatch"))[0] == TEXTS["c"]
    assert set((await caller.send(TEXTS)).values()) == {"UNCHANGED"}

    await workshop.sweep()
    assert (await caller.search("Gamma hatch"))[0] == TEXTS["c"]
    assert (await refused(caller.finish())).reason is Reason.REBUILD_NOT_FOUND
    into_none = await refused(anext(aiter(caller.ingestion.Ingest(iter([
        ingestion_pb2.IngestRequest(
            options=ingestion_pb2.IngestOptions(knowledge_base="handbook", into_rebuild=True)
        )
    ])))))  # fmt: skip
    assert into_none.reason is Reason.REBUILD_NOT_FOUND


async def test_a_model_that_was_exchanged_under_its_name_is_moved_to(workshop: Workshop, caller: Caller) -> None:
    """The embedder serves another revision: nothing can be searched or taken in, until the rebuild is finished."""
    await caller.send(TEXTS)
    old = await caller.show()
    exchanged = WordEmbedder(fingerprint="e" * 64)
    workshop.embedder.become(exchanged)
    begun = await caller.rebuild()
    assert (begun.model_fingerprint, begun.rebuild.model_fingerprint) == (old.model_fingerprint, "e" * 64)
    await caller.send(TEXTS, into_rebuild=True)
    await caller.finish()
    assert (await caller.show()).model_fingerprint == "e" * 64
    assert (await caller.search("Beta valve"))[0] == TEXTS["b"]


async def test_what_fails_on_the_way_is_named(workshop: Workshop, caller: Caller) -> None:
    await caller.send({**TEXTS, "d": "Delta."})
    await caller.rebuild(chunking=SMALL)
    assert (await caller.send({"d": " ", "e": "\n"}, into_rebuild=True)) == {"d": "FAILED", "e": "FAILED"}
    rebuild = (await caller.show()).rebuild
    assert (rebuild.documents_failed, rebuild.documents_total) == (1, 4)
    assert [(one.external_id, one.reason) for one in rebuild.failures] == [
        ("d", errors_pb2.ERROR_REASON_DOCUMENT_EMPTY)
    ]
    await caller.send(TEXTS, into_rebuild=True)
    assert (await caller.finish(drop_outstanding=True)).documents_dropped == 1
    assert (await caller.search("Delta")) != ["Delta."]


async def test_a_rebuild_that_is_given_up_leaves_nothing(workshop: Workshop, caller: Caller) -> None:
    await caller.send(TEXTS)
    await caller.rebuild(chunking=SMALL)
    await caller.send(TEXTS, into_rebuild=True)
    kb = await workshop.catalog.get_knowledge_base("default", "handbook")
    successor = await workshop.rebuilds.successor(kb)
    assert await workshop.points(successor) == 3
    await caller.knowledge_bases.CancelRebuild(pb.CancelRebuildRequest(knowledge_base="handbook"))
    assert not (await caller.show()).HasField("rebuild")
    await workshop.sweep()
    assert (await workshop.points(successor), await workshop.points(kb)) == (0, 3)
    again = caller.knowledge_bases.CancelRebuild(pb.CancelRebuildRequest(knowledge_base="handbook"))
    assert (await refused(again)).reason is Reason.REBUILD_NOT_FOUND


async def test_a_sync_that_runs_while_the_place_is_taken_goes_on_in_the_new_one(
    workshop: Workshop, caller: Caller
) -> None:
    await caller.send(TEXTS)
    await caller.rebuild(chunking=SMALL)
    await caller.send(TEXTS, into_rebuild=True)

    async def finish(_call: int) -> None:
        workshop.chunker.heal()
        await caller.finish()

    workshop.chunker.before("chunk", finish)
    assert await caller.send({**TEXTS, "d": "Delta.", "e": "Epsilon."}, concurrency=1) == {
        "a": "UNCHANGED", "b": "UNCHANGED", "c": "UNCHANGED", "d": "NEW", "e": "NEW",
    }  # fmt: skip
    now = await caller.show()
    assert (now.chunking.size, now.document_count) == (200, 5)
    await workshop.sweep()
    assert "Epsilon." in await caller.search("Epsilon")


async def test_settings_that_nothing_could_be_cut_by_begin_nothing(workshop: Workshop, caller: Caller) -> None:
    wrong = chunker_pb2.ChunkingConfig(size=10, overlap=10, minimum=11)
    error = await refused(caller.rebuild(chunking=wrong, placement=9, id=(await caller.show()).id + "0"))
    assert error.reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    error = await refused(caller.rebuild(chunking=wrong, placement=9))
    assert [violation.field for violation in error.field_violations] == [
        f"knowledge_base.{name}" for name in ("chunking.overlap", "chunking.minimum", "placement")
    ]
    assert (await refused(caller.rebuild(embedding_model="other"))).reason is Reason.MODEL_NOT_FOUND
    assert not (await caller.show()).HasField("rebuild")
