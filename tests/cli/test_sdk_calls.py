"""What the SDK sends, and what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
from cli.scripted_mesh import Script
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import ingestion_pb2, retriever_pb2
from kbmesh_client import (
    AsyncKbmeshClient,
    ChunkingConfig,
    Condition,
    Filter,
    IngestDocument,
    IngestOutcome,
    KbmeshClient,
    KnowledgeBaseSelector,
    RetrievalStrategy,
    ServiceUnavailable,
    SimilarityOptions,
    SourceType,
)
from kbmesh_client.connection import KEEPALIVE_MILLISECONDS
from kbmesh_client.wire.chunks import config_from_wire, config_to_wire
from kbmesh_client.wire.documents import ingest_result_from_wire
from kbmesh_rpc.errors import ShuttingDown
from kbmesh_rpc.http2 import MIN_PING_INTERVAL_MILLISECONDS


async def test_the_caller_and_the_deadline_arrive(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint, tenant="acme", principals=["ann", "group:ops"]) as client:
        await client.retrieve("?", "handbook")
        await client.retrieve("?", "handbook", timeout_seconds=3)
    default, named = script.calls
    assert (default.tenant, default.principals) == ("acme", ("ann", "group:ops"))
    assert default.request_id != named.request_id
    assert default.deadline is not None
    assert named.deadline is not None
    assert default.deadline.at - named.deadline.at == pytest.approx(7, abs=3)


@pytest.mark.parametrize("tenant", ["", "a,b", "ä", "a\n", "a ", " a", "a b"])
def test_a_tenant_that_cannot_travel_is_refused(tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        KbmeshClient(tenant=tenant)


async def test_a_question_is_sent_as_it_was_meant(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        await client.retrieve(
            "who?",
            ["handbook", KnowledgeBaseSelector(knowledge_base="mails", max_results=2, min_score=0.5, weight=2)],
            strategy="vector-only",
            top_k=7,
            filter={"source_type": SourceType.SLACK, "metadata.team": ["ops", "data"]},
            context_budget_tokens=0,
        )
    (request,) = script.requests
    assert request.strategy == retriever_pb2.RETRIEVAL_STRATEGY_VECTOR_ONLY
    assert [selector.knowledge_base for selector in request.knowledge_bases] == ["handbook", "mails"]
    assert request.knowledge_bases[1].max_results == 2
    assert not request.knowledge_bases[0].HasField("max_results")
    assert request.HasField("context_budget_tokens")
    conditions = {condition.field: list(condition.any_of.values) for condition in request.filter.all}
    assert conditions == {"source_type": ["slack"], "metadata.team": ["ops", "data"]}


async def test_an_option_that_there_is_not_never_leaves(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(ValueError, match="RetrievalStrategy"):
            await client.retrieve("?", "handbook", strategy="psychic")
        with pytest.raises(ValueError, match="range"):
            await client.retrieve("?", "handbook", filter=Filter(all=[Condition(field="metadata.year")]))
        with pytest.raises(ValueError, match="update"):
            await client.update_knowledge_base("handbook")
    assert script.requests == []


async def test_lists_are_read_page_after_page(script: Script, endpoint: str) -> None:
    script.knowledge_bases = [f"kb-{number}" for number in range(7)]
    async with AsyncKbmeshClient(endpoint) as client:
        names = [found.name async for found in client.list_knowledge_bases(page_size=3)]
    assert names == script.knowledge_bases
    assert len(script.requests) == 3


async def test_a_value_of_a_newer_server_does_not_break_the_answer(script: Script, endpoint: str) -> None:
    script.retrieval = retriever_pb2.RetrieveResponse(
        results=[retriever_pb2.RetrieveResult(rank=1)],
        degraded=[retriever_pb2.Degradation(stage=99, reason=99)],  # type: ignore[arg-type]  # that is the point
        strategy=99,  # type: ignore[arg-type]
    )
    async with AsyncKbmeshClient(endpoint) as client:
        answer = await client.retrieve("?", "handbook")
    assert answer.strategy is RetrievalStrategy.UNKNOWN
    assert answer.degraded[0].reason == "REASON_99"
    assert answer.results[0].scores.rerank_logit is None


async def test_the_fused_answer_comes_before_the_final_one(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        finals = [answer.is_final async for answer in client.retrieve_stream("?", "handbook")]
    assert finals == [False, True]


async def test_messages_beyond_grpcs_own_limit_pass(script: Script, endpoint: str) -> None:
    """GRP-05: the default limit of 4 MB is raised on both sides."""
    script.chunks = chunker_pb2.ChunkResponse(text="x" * 12_000_000)
    async with AsyncKbmeshClient(endpoint, chunker_endpoint=endpoint) as client:
        chunked = await client.chunk("y" * 6_000_000, return_text=True)
    assert chunked.text is not None
    assert len(chunked.text) == 12_000_000


async def test_without_the_chunkers_address_nothing_is_sent(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(ValueError, match="chunker_endpoint"):
            await client.chunk("text")
    with KbmeshClient(endpoint) as client, pytest.raises(ValueError, match="chunker_endpoint"):
        client.chunk("text")
    assert script.requests == []


async def test_a_replica_that_drains_is_met_again_where_that_does_no_harm(script: Script, endpoint: str) -> None:
    script.error, script.failing_calls = ShuttingDown(), 2
    async with AsyncKbmeshClient(endpoint) as client:
        answer = await client.retrieve("?", "handbook")
    assert answer.is_final
    assert len(script.requests) == 3


async def test_a_creation_is_never_sent_twice(script: Script, endpoint: str) -> None:
    script.error, script.failing_calls = ShuttingDown(), 1
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(ServiceUnavailable):
            await client.create_knowledge_base("handbook")
    assert len(script.requests) == 1


def test_the_client_pings_no_more_often_than_a_server_allows() -> None:
    """GRP-02: the two settings are a pair."""
    assert KEEPALIVE_MILLISECONDS > MIN_PING_INTERVAL_MILLISECONDS


async def test_a_document_that_cannot_be_sent_fails_alone(script: Script, endpoint: str) -> None:
    documents = [
        IngestDocument(external_id="good", content="text"),
        IngestDocument(external_id="large", content=b"x" * 101),
        IngestDocument(external_id="large in UTF-8", content="é" * 51),
        IngestDocument(external_id="no text", content="\ud800"),
        IngestDocument(external_id="no kind", content="text", source_type="PAPYRUS"),
        IngestDocument(external_id="late", content="text", created_at=datetime(2026, 11, 5, tzinfo=UTC)),
    ]
    async with AsyncKbmeshClient(endpoint, max_document_bytes=100) as client:
        outcome = {result.external_id: result async for result in client.ingest("handbook", documents)}
    assert script.ingested == ["good", "late"]
    assert [name for name, result in outcome.items() if result.outcome is IngestOutcome.NEW] == ["good", "late"]
    reasons = {name: result.error.reason for name, result in outcome.items() if result.error is not None}
    assert reasons == {
        "large": "DOCUMENT_TOO_LARGE",
        "large in UTF-8": "DOCUMENT_TOO_LARGE",
        "no text": "INVALID_FIELD",
        "no kind": "INVALID_FIELD",
    }
    assert outcome["large"].error is not None
    assert outcome["large"].error.metadata == {"limit": "100", "actual": "101"}


async def test_documents_are_read_only_as_fast_as_the_server_takes_them(script: Script, endpoint: str) -> None:
    script.reading.clear()
    read = 0

    def documents() -> Iterator[IngestDocument]:
        nonlocal read
        for number in range(60):
            read += 1
            yield IngestDocument(external_id=str(number), content=b"x" * 2_000_000)

    def ingest() -> int:
        with KbmeshClient(endpoint) as client:
            return sum(1 for _ in client.ingest("handbook", documents()))

    task = asyncio.create_task(asyncio.to_thread(ingest))
    await script.asked.wait()
    before = -1
    while read != before:  # until nothing more is read
        before = read
        await asyncio.sleep(0.5)
    assert read < 30
    script.reading.set()
    assert await task == 60


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_the_documents_raise_is_raised_after_the_results(
    script: Script, endpoint: str, asynchronous: bool
) -> None:
    def documents() -> Iterator[IngestDocument]:
        yield IngestDocument(external_id="good", content="text")
        raise OSError("the disk is gone")

    async def asynchronous_documents() -> AsyncIterator[IngestDocument]:
        for document in documents():
            yield document

    results: list[str] = []

    def ingest() -> None:
        with KbmeshClient(endpoint) as client:
            for result in client.ingest("handbook", documents()):
                results.append(result.external_id)  # noqa: PERF401 - the loop raises

    async def ingest_asynchronously() -> None:
        async with AsyncKbmeshClient(endpoint) as client:
            async for result in client.ingest("handbook", asynchronous_documents()):
                results.append(result.external_id)  # noqa: PERF401 - the loop raises

    with pytest.raises(OSError, match="disk"):
        await (ingest_asynchronously() if asynchronous else asyncio.to_thread(ingest))
    assert results == ["good"]


async def test_leaving_the_loop_ends_the_ingestion(script: Script, endpoint: str) -> None:
    def endless() -> Iterator[IngestDocument]:
        number = 0
        while True:
            number += 1
            yield IngestDocument(external_id=str(number), content=b"x" * 100_000)

    def ingest() -> str:
        with KbmeshClient(endpoint) as client:
            for result in client.ingest("handbook", endless()):
                return result.external_id
        return ""

    assert await asyncio.to_thread(ingest) == "1"


def test_a_chunking_config_comes_back_as_it_went() -> None:
    config = ChunkingConfig(
        strategy="SIMILARITY", size=800, overlap=0, options=SimilarityOptions(threshold=0.0, buffer=2)
    )
    message = config_to_wire(config)
    assert message is not None
    assert config_from_wire(message) == config


def test_a_result_is_read_in_full() -> None:
    message = ingestion_pb2.IngestResponse(
        external_id="a",
        outcome=ingestion_pb2.INGEST_OUTCOME_UNCHANGED,
        warnings=[chunker_pb2.Warning(reason=21, message="page 3", metadata={"page": "3"})],  # type: ignore[arg-type]
    )
    result = ingest_result_from_wire(message)
    assert result.outcome is IngestOutcome.UNCHANGED
    assert (result.warnings[0].reason, result.warnings[0].metadata) == ("DOCUMENT_UNREADABLE", {"page": "3"})
