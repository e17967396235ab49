"""An agent platform calls IngestionService over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2 as pb
from kbmesh.retriever.v1.ingestion_pb2_grpc import IngestionServiceStub
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.stream import ingest_stream
from kbmesh_retriever.mesh.port import Chunked, SourceDocument
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import DependencyUnavailable, KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.mesh_fakes import always
from retriever.workshop import Workshop


@pytest.fixture
async def channel(retriever_address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(retriever_address) as channel:
        yield channel


@pytest.fixture
def service(channel: grpc.aio.Channel) -> IngestionServiceStub:
    return IngestionServiceStub(channel)


def options(knowledge_base: str = "handbook", **chosen: Any) -> pb.IngestRequest:
    return pb.IngestRequest(options=pb.IngestOptions(knowledge_base=knowledge_base, **chosen))


def document(external_id: str, text: str, **described: object) -> pb.IngestRequest:
    return pb.IngestRequest(
        document=pb.IngestDocument(
            external_id=external_id,
            document=chunker_pb2.Document(text=text),
            **described,
        )
    )


async def ingest(service: IngestionServiceStub, *requests: pb.IngestRequest) -> list[pb.IngestResponse]:
    return [response async for response in service.Ingest(iter(requests))]


async def refused(call: Callable[[], object]) -> KbmeshError:
    """The typed error of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    return from_rpc_error(caught.value, dependency="retriever")


async def test_documents_go_in_and_are_described(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    written = Timestamp(seconds=1_700_000_000)
    [response] = await ingest(
        service,
        options(),
        document("docs/a.md", "Title line\n\nBody text.", uri="https://example.org/a", created_at=written),
    )
    assert response.outcome == pb.INGEST_OUTCOME_NEW
    assert (response.chunks, response.embedded, response.tokens) == (2, 2, 4)
    assert not response.HasField("error")
    found = (await service.GetDocument(pb.GetDocumentRequest(knowledge_base="handbook", document="docs/a.md"))).document
    assert (found.id, found.title, found.uri) == (response.document_id, "Title line", "https://example.org/a")
    assert (found.strategy, found.source_type) == (chunker_pb2.STRATEGY_SEMANTIC, chunker_pb2.SOURCE_TYPE_FILE)
    assert (found.chunk_count, found.generation, len(found.content_sha256)) == (2, 1, 32)
    assert found.created_at == written
    by_id = await service.GetDocument(pb.GetDocumentRequest(knowledge_base="handbook", document=found.id))
    assert by_id.document == found

    [again] = await ingest(service, options(), document("docs/a.md", "Title line\n\nBody text."))
    assert again.outcome == pb.INGEST_OUTCOME_CHANGED, "link and time went away"
    assert again.embedded == 0


async def test_a_bad_document_fails_alone(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    untimely = Timestamp(seconds=10**15)
    responses = await ingest(
        service,
        options(),
        document("good-1", "One."),
        document("empty", "  \n "),
        document("", "No name."),
        pb.IngestRequest(document=pb.IngestDocument(external_id="nothing")),
        document("late", "x", created_at=untimely),
        document("good-2", "Two."),
    )
    outcomes = {response.external_id: response for response in responses}
    assert {name for name, response in outcomes.items() if response.outcome == pb.INGEST_OUTCOME_NEW} == {
        "good-1",
        "good-2",
    }
    reasons = {
        name: response.error.reason
        for name, response in outcomes.items()
        if response.outcome == pb.INGEST_OUTCOME_FAILED
    }
    assert reasons == {
        "empty": errors_pb2.ERROR_REASON_DOCUMENT_EMPTY,
        "": errors_pb2.ERROR_REASON_INVALID_FIELD,
        "nothing": errors_pb2.ERROR_REASON_INVALID_FIELD,
        "late": errors_pb2.ERROR_REASON_INVALID_FIELD,
    }
    assert outcomes["empty"].document_id == ""


async def test_a_fault_of_ours_fails_its_document_alone(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    workshop.chunker.before("chunk", lambda call: ZeroDivisionError("a bug") if call == 0 else None)
    responses = await ingest(service, options(concurrency=1), document("a", "One."), document("b", "Two."))
    assert [response.outcome for response in responses] == [pb.INGEST_OUTCOME_FAILED, pb.INGEST_OUTCOME_NEW]
    assert responses[0].error.reason == errors_pb2.ERROR_REASON_INTERNAL
    assert "bug" not in responses[0].error.message


async def test_a_failed_version_tells_what_is_still_there(workshop: Workshop, service: IngestionServiceStub) -> None:
    """ING-01"""
    await workshop.make()
    [first] = await ingest(service, options(), document("a", "One.\n\nTwo."))
    workshop.embedder.before("embed", always(DependencyUnavailable("embedder", "down")))
    [second] = await ingest(service, options(), document("a", "Three."))
    assert second.outcome == pb.INGEST_OUTCOME_FAILED
    assert second.error.reason == errors_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE
    assert (second.document_id, second.chunks) == (first.document_id, 2)


async def test_versions_of_one_document_keep_their_order(workshop: Workshop, service: IngestionServiceStub) -> None:
    """Many at once, the first ones slow."""
    await workshop.make()

    async def slow_at_first(call: int) -> None:
        await asyncio.sleep(max(0.0, 0.05 - call / 100))

    workshop.chunker.before("chunk", slow_at_first)
    versions = [document("a", f"Version {number}.") for number in range(8)]
    responses = await ingest(service, options(concurrency=8), *versions, document("b", "Neighbour."))
    assert [r.outcome for r in responses if r.external_id == "a"] == [
        pb.INGEST_OUTCOME_NEW,
        *[pb.INGEST_OUTCOME_CHANGED] * 7,
    ]
    found = await service.GetDocument(pb.GetDocumentRequest(knowledge_base="handbook", document="a"))
    assert found.document.title == "Version 7."


async def test_results_come_as_they_are_done(workshop: Workshop, service: IngestionServiceStub) -> None:
    """The caller sends the next document only after the last one's result."""
    await workshop.make()
    call = service.Ingest()
    await call.write(options())
    for number in range(3):
        await call.write(document(f"doc-{number}", "Text."))
        assert (await call.read()).external_id == f"doc-{number}"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_no_more_documents_are_worked_on_than_asked(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    at_work = most = 0
    three = asyncio.Event()

    async def count(_call: int) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 3:
            three.set()
        await three.wait()
        await asyncio.sleep(0.01)
        at_work -= 1

    workshop.chunker.before("chunk", count)
    await ingest(service, options(concurrency=3), *(document(f"d{i}", "Text.") for i in range(12)))
    assert most == 3


NO_STREAMS: list[tuple[list[pb.IngestRequest], Reason]] = [
    ([], Reason.INVALID_FIELD),
    ([document("a", "Text.")], Reason.INVALID_FIELD),
    ([pb.IngestRequest()], Reason.INVALID_FIELD),
    ([options("")], Reason.INVALID_FIELD),
    ([options(concurrency=257)], Reason.INVALID_FIELD),
    ([options(job_id="no blanks")], Reason.INVALID_FIELD),
    ([options(into_rebuild=True)], Reason.REBUILD_NOT_FOUND),
    ([options("absent")], Reason.KNOWLEDGE_BASE_NOT_FOUND),
    ([options(), options()], Reason.INVALID_FIELD),
    ([options(), pb.IngestRequest()], Reason.INVALID_FIELD),
]


async def test_a_stream_that_is_none_is_refused(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    for requests, reason in NO_STREAMS:
        error = await refused(lambda requests=requests: ingest(service, *requests))
        assert error.reason is reason


async def test_a_stream_ends_with_its_knowledge_base(workshop: Workshop, service: IngestionServiceStub) -> None:
    """ING-08. The job keeps its stream open over deletion and re-creation."""
    await workshop.make("x")
    call = service.Ingest()
    await call.write(options("x"))
    await call.write(document("a", "Text."))
    assert (await call.read()).outcome == pb.INGEST_OUTCOME_NEW
    await workshop.knowledge_bases.delete("default", "x")
    new = await workshop.make("x")
    await call.write(document("b", "Text."))
    failed = await call.read()
    assert failed.outcome == pb.INGEST_OUTCOME_FAILED
    assert failed.error.reason == errors_pb2.ERROR_REASON_KNOWLEDGE_BASE_NOT_FOUND
    assert failed.error.metadata["knowledge_base"] == "x", "the name that the caller knows"
    assert (await refused(call.read)).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
    assert await workshop.points(new) == 0


async def test_another_model_ends_the_stream(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    workshop.words.info = type(workshop.words.info)(name="words", fingerprint="e" * 64, dimension=16, max_tokens=256)
    assert (await refused(lambda: ingest(service, options(), document("a", "Text.")))).reason is Reason.MODEL_MISMATCH


async def test_work_ends_when_the_caller_leaves(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    begun, ended = asyncio.Event(), asyncio.Event()
    chunk = workshop.paragraphs.chunk

    async def endless(document: SourceDocument, **named: object) -> Chunked:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return await chunk(document, **named)

    workshop.paragraphs.chunk = endless
    call = service.Ingest(iter([options(), document("a", "Text.")]))
    await begun.wait()
    call.cancel()
    async with asyncio.timeout(10):
        await ended.wait()
    assert not workshop.store.calls.get("upsert")


async def test_a_broken_message_ends_the_stream_after_the_results_of_those_before(
    workshop: Workshop, channel: grpc.aio.Channel
) -> None:
    await workshop.make()
    raw = channel.stream_stream(
        "/kbmesh.retriever.v1.IngestionService/Ingest",
        request_serializer=lambda message: message,
        response_deserializer=pb.IngestResponse.FromString,
    )
    sent = [options(concurrency=8), *(document(f"d{number}", f"Text {number}.") for number in range(3))]
    broken = b"\x12\x05\x0a\x03\xed\xa0\x80"  # a lone surrogate
    call = raw(iter([*(message.SerializeToString() for message in sent), broken]))
    answered: list[str] = []

    async def read_all() -> None:
        async for response in call:
            assert response.outcome == pb.INGEST_OUTCOME_NEW
            answered.append(response.external_id)

    error = await refused(read_all)
    assert error.reason is Reason.INVALID_FIELD
    assert sorted(answered) == ["d0", "d1", "d2"]


async def test_a_caller_who_does_not_read_slows_itself_down(workshop: Workshop) -> None:
    """However many documents there are, none is read beyond those in work and those whose result waits."""
    kb = await workshop.make()
    read = 0

    async def documents() -> AsyncIterator[IncomingDocument]:
        nonlocal read
        for number in range(50):
            read += 1
            yield IncomingDocument(external_id=f"d{number}", content="")

    results = ingest_stream(workshop.ingester, workshop.catalog, kb, documents(), concurrency=3, request_id="r")
    async with aclosing(results):
        for taken in range(10):
            await anext(results)
            await asyncio.sleep(0.02)
            assert read <= taken + 3


async def test_documents_are_listed_in_pages(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    await workshop.make("other")
    await ingest(service, options(), *(document(f"doc-{i}", "Text.") for i in range(5)))
    names: list[str] = []
    token, sizes = "", []
    while True:
        page = await service.ListDocuments(
            pb.ListDocumentsRequest(knowledge_base="handbook", page_size=2, page_token=token)
        )
        names += [found.external_id for found in page.documents]
        sizes.append(len(page.documents))
        if not (token := page.next_page_token):
            break
        used = token
    assert (names, sizes) == ([f"doc-{i}" for i in range(5)], [2, 2, 1])
    for knowledge_base, bad in [("handbook", "!"), ("handbook", "abcd"), ("other", used), ("handbook", used[:-4])]:
        request = pb.ListDocumentsRequest(knowledge_base=knowledge_base, page_token=bad)
        error = await refused(lambda request=request: service.ListDocuments(request))
        assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, "page_token")
    too_many = pb.ListDocumentsRequest(knowledge_base="handbook", page_size=1001)
    assert (await refused(lambda: service.ListDocuments(too_many))).reason is Reason.INVALID_FIELD


async def test_a_document_is_deleted_by_either_name(workshop: Workshop, service: IngestionServiceStub) -> None:
    kb = await workshop.make()
    first, second = await ingest(service, options(), document("a", "One.\n\nTwo."), document("b", "Three."))
    by_name = {first.external_id: first, second.external_id: second}
    deleted = await service.DeleteDocument(pb.DeleteDocumentRequest(knowledge_base="handbook", document="a"))
    assert deleted.chunks_deleted == 2
    by_id = pb.DeleteDocumentRequest(knowledge_base=str(kb.id), document=by_name["b"].document_id)
    assert (await service.DeleteDocument(by_id)).chunks_deleted == 1
    error = await refused(lambda: service.DeleteDocument(by_id))
    assert (error.reason, error.metadata["knowledge_base"]) == (Reason.DOCUMENT_NOT_FOUND, str(kb.id))
    nameless = pb.GetDocumentRequest(knowledge_base="handbook")
    assert (await refused(lambda: service.GetDocument(nameless))).reason is Reason.INVALID_FIELD
    await workshop.sweep()
    assert await workshop.points(kb) == 0


async def test_another_tenant_finds_nothing(workshop: Workshop, service: IngestionServiceStub) -> None:
    await workshop.make()
    await ingest(service, options(), document("a", "Text."))
    metadata = (("kbmesh-tenant", "rival"),)
    request = pb.GetDocumentRequest(knowledge_base="handbook", document="a")
    error = await refused(lambda: service.GetDocument(request, metadata=metadata))
    assert error.reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
