"""Two tenants with the same texts, the same names and models of equal dimension see nothing of each other."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import uuid4

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import ingestion_pb2, retriever_pb2
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceStub
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceStub
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_retriever.keywords.analyser import encode_query
from kbmesh_retriever.stores.port import Scope, SearchQuery
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.mesh_fakes import WordEmbedder, vector_of
from retriever.workshop import Workshop

SAME = {"policy": "Holiday policy: 25 days", "pump": "The pump is restarted at night."}


class Tenant:
    """Somebody who calls for a tenant."""

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self.name = name
        self.who = {"metadata": (("kbmesh-tenant", name),)}
        self.knowledge_bases = KnowledgeBaseServiceStub(channel)
        self.ingestion = IngestionServiceStub(channel)
        self.retriever = RetrieverServiceStub(channel)

    async def create(self, name: str, placement: pb.Placement.ValueType) -> pb.KnowledgeBase:
        request = pb.CreateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(name=name, placement=placement))
        return (await self.knowledge_bases.CreateKnowledgeBase(request, **self.who)).knowledge_base

    async def show(self, name: str) -> pb.KnowledgeBase:
        request = pb.GetKnowledgeBaseRequest(knowledge_base=name)
        return (await self.knowledge_bases.GetKnowledgeBase(request, **self.who)).knowledge_base

    async def send(self, name: str, texts: dict[str, str], job_id: str = "") -> list[ingestion_pb2.IngestResponse]:
        options = ingestion_pb2.IngestOptions(knowledge_base=name, job_id=job_id)
        documents = [
            ingestion_pb2.IngestDocument(external_id=external_id, document=chunker_pb2.Document(text=text))
            for external_id, text in texts.items()
        ]
        requests = [ingestion_pb2.IngestRequest(options=options)]
        requests += [ingestion_pb2.IngestRequest(document=document) for document in documents]
        return [result async for result in self.ingestion.Ingest(iter(requests), **self.who)]

    async def search(
        self, name: str, query: str, *more: str, skip_cache: bool = False
    ) -> retriever_pb2.RetrieveResponse:
        request = retriever_pb2.RetrieveRequest(
            query=query,
            knowledge_bases=[retriever_pb2.KnowledgeBaseSelector(knowledge_base=one) for one in (name, *more)],
            strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID,
            skip_cache=skip_cache,
        )
        return await self.retriever.Retrieve(request, **self.who)


@pytest.fixture
async def tenants(workshop: Workshop, retriever_address: str) -> AsyncIterator[tuple[Tenant, Tenant]]:
    async with open_channel(retriever_address) as channel:
        yield Tenant(channel, "acme"), Tenant(channel, "rival")


async def refused(call: Awaitable[Any]) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, dependency="retriever")


@pytest.mark.parametrize("placement", [pb.PLACEMENT_SHARED, pb.PLACEMENT_DEDICATED])
async def test_the_same_texts_under_the_same_names_stay_apart(
    workshop: Workshop, tenants: tuple[Tenant, Tenant], placement: pb.Placement.ValueType
) -> None:
    """RET-22"""
    acme, rival = tenants
    ours, theirs = [await tenant.create("handbook", placement) for tenant in tenants]
    for tenant in tenants:
        await tenant.send("handbook", SAME, job_id="nightly")
    await rival.send("handbook", {"secret": "The merger with Umbra closes in May."}, job_id="nightly")

    assert ((await acme.show("handbook")).document_count, (await rival.show("handbook")).document_count) == (2, 3)
    for query in ("Holiday policy", "merger Umbra May"):
        answer = await acme.search("handbook", query)
        assert {result.knowledge_base_id for result in answer.results} <= {ours.id}
        assert not any("Umbra" in result.text for result in answer.results)
        assert answer.knowledge_bases[0].id == ours.id
    found = {
        (tenant.name, result.chunk_id, result.document.id)
        for tenant in tenants
        for result in (await tenant.search("handbook", "Holiday policy")).results
        if result.text == SAME["policy"]
    }
    assert len({chunk for _, chunk, _ in found}) == len({document for _, _, document in found}) == 2

    request = ingestion_pb2.DeleteDocumentRequest(knowledge_base="handbook", document="policy")
    await acme.ingestion.DeleteDocument(request, **acme.who)
    await workshop.sweep()
    assert SAME["policy"] in [result.text for result in (await rival.search("handbook", "Holiday policy")).results]
    assert SAME["policy"] not in [result.text for result in (await acme.search("handbook", "Holiday policy")).results]
    await acme.knowledge_bases.DeleteKnowledgeBase(pb.DeleteKnowledgeBaseRequest(knowledge_base="handbook"), **acme.who)
    await workshop.sweep()
    kept = await workshop.catalog.get_knowledge_base("rival", theirs.id)
    assert (kept.document_count, await workshop.points(kept)) == (3, 3)


async def test_anothers_documents_change_no_score(workshop: Workshop, tenants: tuple[Tenant, Tenant]) -> None:
    """How rare a word is, is counted over a collection: it would tell what the other tenants write about."""
    acme, rival = tenants
    for tenant in tenants:
        await tenant.create("handbook", pb.PLACEMENT_SHARED)
        await tenant.send("handbook", SAME)

    async def scores() -> list[tuple[str, float, float]]:
        # The cache would give what was found before.
        answer = await acme.search("handbook", "the pump", skip_cache=True)
        return [(result.text, result.scores.keyword, result.scores.final) for result in answer.results]

    before = await scores()
    assert before[0][0] == SAME["pump"]
    assert before[0][1] > 0
    await rival.send("handbook", {f"note-{number}": f"Pump {number} is the pump." for number in range(40)})
    assert await scores() == before
    await acme.create("more", pb.PLACEMENT_SHARED)
    await acme.send("more", {f"note-{number}": f"Pump {number} is the pump." for number in range(40)})
    assert await scores() != before, "its own knowledge bases do share a collection"


async def test_ids_and_tokens_of_another_are_like_ones_that_nobody_has(tenants: tuple[Tenant, Tenant]) -> None:
    """Reason, message and metadata differ in nothing but what the caller himself said."""
    acme, rival = tenants
    theirs = await rival.create("plans", pb.PLACEMENT_SHARED)
    await acme.create("notes", pb.PLACEMENT_SHARED)
    documents = await rival.send("plans", SAME, job_id="nightly")
    await acme.send("notes", {"mine": "Mine."})

    def calls(kb: str, document: str, job: str) -> dict[str, Awaitable[Any]]:
        return {
            "show": acme.show(kb),
            "delete": acme.knowledge_bases.DeleteKnowledgeBase(
                pb.DeleteKnowledgeBaseRequest(knowledge_base=kb), **acme.who
            ),
            "update": acme.knowledge_bases.UpdateKnowledgeBase(
                pb.UpdateKnowledgeBaseRequest(knowledge_base=pb.KnowledgeBase(name=kb), rebuild=True), **acme.who
            ),
            "finish": acme.knowledge_bases.FinishRebuild(pb.FinishRebuildRequest(knowledge_base=kb), **acme.who),
            "cancel": acme.knowledge_bases.CancelRebuild(pb.CancelRebuildRequest(knowledge_base=kb), **acme.who),
            "send": acme.send(kb, SAME),
            "document": acme.ingestion.GetDocument(
                ingestion_pb2.GetDocumentRequest(knowledge_base="notes", document=document), **acme.who
            ),
            "delete document": acme.ingestion.DeleteDocument(
                ingestion_pb2.DeleteDocumentRequest(knowledge_base="notes", document=document), **acme.who
            ),
            "job": acme.ingestion.GetJob(ingestion_pb2.GetJobRequest(knowledge_base="notes", job_id=job), **acme.who),
        }

    async def told(kb: str, document: str, job: str) -> dict[str, tuple[object, ...]]:
        answers = {}
        for name, call in calls(kb, document, job).items():
            error = await refused(call)
            assert error.reason in (
                Reason.KNOWLEDGE_BASE_NOT_FOUND, Reason.DOCUMENT_NOT_FOUND, Reason.JOB_NOT_FOUND
            )  # fmt: skip
            said = [error.message, *error.metadata.values()]
            for mine, placeholder in ((kb, "KB"), (document, "DOCUMENT"), (job, "JOB")):
                said = [text.replace(mine, placeholder) for text in said]
            answers[name] = (error.reason, *said)
        return answers

    theirs_told = await told(theirs.id, documents[0].document_id, "nightly")
    assert theirs_told == await told(str(uuid4()), str(uuid4()), "weekly")
    by_name = await told("plans", documents[0].document_id, "nightly")
    assert by_name == theirs_told
    for name in ("plans", theirs.id, "nobody", str(uuid4())):
        answer = await acme.search(name, "pump", "notes")
        assert answer.knowledge_bases[0].status == retriever_pb2.KNOWLEDGE_BASE_STATUS_NOT_FOUND
        assert {result.knowledge_base for result in answer.results} <= {"notes"}

    await rival.create("roadmap", pb.PLACEMENT_SHARED)
    list_request = pb.ListKnowledgeBasesRequest(page_size=1)
    token = (await rival.knowledge_bases.ListKnowledgeBases(list_request, **rival.who)).next_page_token
    assert token
    stolen = pb.ListKnowledgeBasesRequest(page_token=token)
    error = await refused(acme.knowledge_bases.ListKnowledgeBases(stolen, **acme.who))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, "page_token")
    page = ingestion_pb2.ListDocumentsRequest(knowledge_base="plans", page_size=1)
    token = (await rival.ingestion.ListDocuments(page, **rival.who)).next_page_token
    stolen_page = ingestion_pb2.ListDocumentsRequest(knowledge_base="notes", page_token=token)
    assert (await refused(acme.ingestion.ListDocuments(stolen_page, **acme.who))).reason is Reason.INVALID_FIELD


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.sampled_from(["pump valve", "pump hatch", "valve"]), min_size=1, max_size=4),
    shared=st.lists(st.booleans(), min_size=3, max_size=3),
    same_model=st.booleans(),
)
async def test_no_vector_crosses_over(
    workshop: Workshop, texts: list[str], shared: list[bool], same_model: bool
) -> None:
    """Whatever lies where: a search of either kind in one finds what was put into that one, and all of it."""
    made = []
    first = workshop.words
    others = first if same_model else WordEmbedder(fingerprint=uuid4().hex * 2)
    name = f"kb-{uuid4().hex[:12]}"
    for tenant, is_shared, words in zip(("acme", "rival", "third"), shared, (first, first, others), strict=True):
        workshop.embedder.become(words)
        kb = await workshop.make(name, tenant=tenant, placement="shared" if is_shared else "dedicated")
        for number, text in enumerate(texts):
            await workshop.ingest(kb, str(number), f"{text} {tenant}")
        made.append(kb)
    workshop.embedder.become(first)
    for kb in made:
        assert await workshop.points(kb) == len(texts)
        found = await workshop.store.search(
            SearchQuery(
                collection=kb.collection,
                scope=Scope(tenant=kb.tenant, knowledge_base_id=kb.id),
                dense=vector_of("pump valve"),
                sparse=encode_query("pump valve hatch"),
                limit=100,
            )
        )
        for hits in (found.dense, found.keyword):
            assert sorted(hit.payload["text"] for hit in hits) == sorted(f"{text} {kb.tenant}" for text in texts)
    elsewhere = [(one, other) for one in made for other in made if one.id != other.id]
    for one, other in elsewhere:
        # Its own scope over another's collection: nothing but what is its own.
        scope = Scope(tenant=one.tenant, knowledge_base_id=other.id)
        assert await workshop.store.count(other.collection, scope) == 0
