"""An agent platform asks over gRPC: the answer, its parts, and the refusals."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub, add_RetrieverServiceServicer_to_server
from kbmesh_retriever.retriever_servicer import RetrieverServicer
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.status import from_rpc_error
from retrieval_world import TENANT, ScriptedReranker, World

RESTART = "Restart the payment service after a failed deployment."
ROLLBACK = "Roll the payment service back when a restart does not help."
METADATA = (("kbmesh-tenant", TENANT), ("kbmesh-request-id", "request-7"))


@dataclass
class Service:
    """The application of one servicer."""

    servicer: RetrieverServicer

    @property
    def registrations(self) -> Sequence[Registration]:
        def add(server: grpc.aio.Server) -> None:
            add_RetrieverServiceServicer_to_server(self.servicer, server)

        return (Registration(name="kbmesh.retriever.v1.RetrieverService", add=add),)

    async def warm_up(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
async def stub(world: World) -> AsyncIterator["RetrieverServiceStub"]:
    await world.make("ops", RESTART, ROLLBACK)
    servicer = RetrieverServicer(
        catalog=world.catalog,
        store=world.store,
        embedder=world.embedder,
        reranker=ScriptedReranker(scores={"Roll": 0.99, "Restart": 0.1}),
    )
    service = Service(servicer)
    async with running(service, ServerSettings(port=0, metrics_port=0)) as target, open_channel(target) as channel:
        yield RetrieverServiceStub(channel)


def question(query: str = "restart payment", *names: str, **options: object) -> pb.RetrieveRequest:
    selectors = [pb.KnowledgeBaseSelector(knowledge_base=name) for name in names or ("ops",)]
    return pb.RetrieveRequest(query=query, knowledge_bases=selectors, **options)  # type: ignore[arg-type]  # any field


async def refusal(stub: "RetrieverServiceStub", request: pb.RetrieveRequest) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Retrieve(request, metadata=METADATA)
    return from_rpc_error(caught.value, dependency="retriever")


async def test_the_answer_carries_each_score_apart(stub: "RetrieverServiceStub") -> None:
    response = await stub.Retrieve(question(), metadata=METADATA)
    first = response.results[0]
    assert first.text == ROLLBACK
    assert (first.rank, first.citation) == (1, 1)
    assert first.score == first.scores.final
    assert first.scores.rerank_probability == 0.99
    assert first.scores.HasField("fused")
    assert not first.scores.HasField("max_sim")
    assert first.document.external_id == "doc-2"
    assert first.document.source_type == chunker_pb2.SOURCE_TYPE_FILE
    assert first.document.created_at.seconds > 0
    assert (first.span.start, first.span.end) == (0, len(ROLLBACK))
    assert [(field.label, field.value) for field in first.display] == [("Title", "Doc-2"), ("Author", "Ada")]
    assert first.display_kind == pb.DISPLAY_KIND_GENERIC
    assert first.link == first.document.uri == "https://docs.example/doc-2"
    assert not first.HasField("link_expires_at")
    assert response.context.text.startswith("[1] Doc-2 (ops)")
    assert [citation.number for citation in response.context.citations] == [1, 2]
    assert response.strategy == pb.RETRIEVAL_STRATEGY_HYBRID_RERANK
    assert response.rerank_method == pb.RERANK_METHOD_CROSS_ENCODER
    assert response.knowledge_bases[0].status == pb.KNOWLEDGE_BASE_STATUS_OK
    assert list(response.queries) == ["restart payment"]
    assert not response.explanation
    assert response.timings["total"] > 0
    assert response.request_id == "request-7"


async def test_a_partial_answer_says_what_is_missing(stub: "RetrieverServiceStub") -> None:
    response = await stub.Retrieve(question("restart", "ops", "gone"), metadata=METADATA)
    missing = response.knowledge_bases[1]
    assert missing.status == pb.KNOWLEDGE_BASE_STATUS_NOT_FOUND
    assert missing.error.reason == errors_pb2.ERROR_REASON_KNOWLEDGE_BASE_NOT_FOUND
    assert missing.error.metadata["knowledge_base"] == "gone"
    assert not response.knowledge_bases[0].HasField("error")


async def test_the_stream_gives_the_fused_order_first(stub: "RetrieverServiceStub") -> None:
    stream = stub.RetrieveStream(pb.RetrieveStreamRequest(request=question("failed deployment")), metadata=METADATA)
    answers = [answer async for answer in stream]
    assert [answer.WhichOneof("answer") for answer in answers] == ["fused", "final"]
    assert answers[0].fused.results[0].text == RESTART
    assert answers[0].fused.rerank_method == pb.RERANK_METHOD_UNSPECIFIED
    assert not answers[0].fused.HasField("context")
    whole = await stub.Retrieve(question("failed deployment"), metadata=METADATA)
    assert answers[1].final.results == whole.results
    assert answers[1].final.context == whole.context


async def test_a_stream_without_reranking_is_one_answer(stub: "RetrieverServiceStub") -> None:
    request = question(strategy=pb.RETRIEVAL_STRATEGY_HYBRID)
    stream = stub.RetrieveStream(pb.RetrieveStreamRequest(request=request), metadata=METADATA)
    assert [answer.WhichOneof("answer") async for answer in stream] == ["final"]


async def test_explain_and_no_context(stub: "RetrieverServiceStub") -> None:
    response = await stub.Retrieve(question(explain=True, context_budget_tokens=0), metadata=METADATA)
    assert not response.HasField("context")
    assert {result.citation for result in response.results} == {0}
    stages = [trace.stage for trace in response.explanation]
    assert stages == sorted(stages)
    assert {pb.STAGE_SEARCH, pb.STAGE_FUSE, pb.STAGE_DEDUPLICATE, pb.STAGE_RERANK} <= set(stages)
    assert all(one.external_id for trace in response.explanation for one in trace.candidates)


WRONG_QUESTIONS = (
    (question(" "), Reason.EMPTY_TEXT),
    (question("a" * 10_001), Reason.INVALID_FIELD),
    (question("why", "ops", ""), Reason.INVALID_FIELD),
    (question(top_k=101), Reason.INVALID_FIELD),
    (question(strategy=99), Reason.INVALID_FIELD),
    (question(profile="support"), Reason.PROFILE_NOT_FOUND),
    (question("why", "gone"), Reason.KNOWLEDGE_BASE_NOT_FOUND),
    (pb.RetrieveRequest(query="why"), Reason.INVALID_FIELD),
    (question(filter=pb.Filter(all=[pb.Condition(field="tenant")])), Reason.INVALID_FIELD),
)


async def test_a_wrong_question_is_refused_with_its_reason(
    stub: "RetrieverServiceStub", subtests: pytest.Subtests
) -> None:
    for request, reason in WRONG_QUESTIONS:
        with subtests.test(request=str(request)[:80]):
            assert (await refusal(stub, request)).reason is reason


async def test_a_filter_by_the_enums_name(stub: "RetrieverServiceStub") -> None:
    for value, count in (("SOURCE_TYPE_FILE", 2), ("file", 2), ("slack", 0)):
        condition = pb.Condition(field="source_type", any_of=pb.StringList(values=[value]))
        response = await stub.Retrieve(question(filter=pb.Filter(all=[condition])), metadata=METADATA)
        assert len(response.results) == count


async def test_another_tenant_finds_nothing_of_that_name(stub: "RetrieverServiceStub") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Retrieve(question(), metadata=(("kbmesh-tenant", "globex"),))
    assert from_rpc_error(caught.value, dependency="retriever").reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
