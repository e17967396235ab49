"""A question, and an ingestion, is one trace through all services; batches know the requests in them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh.retriever.v1 import ingestion_pb2, ingestion_pb2_grpc, retriever_pb2, retriever_pb2_grpc
from kbmesh_client import ChunkingConfig, ChunkingStrategy
from observability.load import documents, make, take_in
from observability.span_receiver import ReceivedSpan, SpanReceiver, receiving
from observability.watched_mesh import WatchedMesh

pytestmark = pytest.mark.timeout(300)  # five processes start first, which a busy machine takes long for

INTERNAL, SERVER, CLIENT = 1, 2, 3


@pytest.fixture(scope="module")
def receiver() -> Iterator[SpanReceiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def traced(receiver: SpanReceiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedMesh]:
    """A mesh that sends its spans, by OpenTelemetry's own settings."""
    standard = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    mesh = WatchedMesh(folder=tmp_path_factory.mktemp("traced"), environment={"": standard})
    try:
        mesh.start()
        with mesh.client() as client:
            make(client, "traced")
            for name in ("traced-1", "traced-2"):
                make(client, name)
                take_in(client, name, 3)
            take_in(client, "traced", 5)
        yield mesh
    finally:
        mesh.stop()


def traceparent(trace_id: str, *, sampled: bool = True) -> tuple[tuple[str, str], ...]:
    return (("traceparent", f"00-{trace_id}-b7ad6b7169203331-{'01' if sampled else '00'}"),)


def ask(
    mesh: WatchedMesh, query: str, *names: str, metadata: tuple[tuple[str, str], ...], explain: bool = True
) -> None:
    selectors = [retriever_pb2.KnowledgeBaseSelector(knowledge_base=name) for name in names]
    request = retriever_pb2.RetrieveRequest(query=query, knowledge_bases=selectors, explain=True)
    with grpc.insecure_channel(mesh.address("retriever")) as channel:
        retriever_pb2_grpc.RetrieverServiceStub(channel).Retrieve(request, timeout=20, metadata=metadata)


def chain(span: ReceivedSpan, spans: list[ReceivedSpan]) -> list[str]:
    """The names from a span up to the one whose parent is outside."""
    by_id = {each.span_id: each for each in spans}
    names = [span.name]
    while span.parent_id in by_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names


def test_a_question_to_several_knowledge_bases_is_one_trace(traced: WatchedMesh, receiver: SpanReceiver) -> None:
    """OBS-01: nothing of it becomes a trace of its own, whichever task or thread did it."""
    trace_id = "1" * 32
    ask(traced, "Which node holds the disk?", "traced", "traced-1", "traced-2", metadata=traceparent(trace_id))
    root = "kbmesh.retriever.v1.RetrieverService/Retrieve"
    stages = ["resolve", "embed", "search", "fuse", "deduplicate", "rerank", "attribute"]
    spans = receiver.trace(trace_id, until=[root, "model run", *(f"retrieve {stage}" for stage in stages)])
    assert {span.service for span in spans} == {"kbmesh-retriever", "kbmesh-embedder", "kbmesh-reranker"}
    assert all(chain(span, spans)[-1] == root for span in spans), [chain(span, spans) for span in spans]
    searches = [span for span in spans if span.name == "vector store search"]
    assert len(searches) >= 3
    assert all(chain(span, spans)[1:] == ["retrieve search", root] for span in searches)
    served = next(span for span in spans if span.name.endswith("/Embed") and span.kind == SERVER)
    assert chain(served, spans)[1:3] == ["kbmesh.embedder.v1.EmbedderService/Embed", "retrieve embed"]
    assert {span.kind for span in spans if span.name.startswith("retrieve ")} == {INTERNAL}
    [asked] = [span for span in spans if span.name == root]
    assert set(asked.attributes) >= {"rpc.system", "rpc.grpc.status_code", "kbmesh.request_id", "kbmesh.tenant_hash"}


def test_an_ingestion_is_one_trace(traced: WatchedMesh, receiver: SpanReceiver) -> None:
    """Also where the chunker cuts in a thread and asks the embedder from there."""
    trace_id = "2" * 32
    with traced.client() as client:
        make(client, "similar", ChunkingConfig(strategy=ChunkingStrategy.SIMILARITY))
    given = list(documents(4, seed=2))

    def requests() -> Iterator[ingestion_pb2.IngestRequest]:
        yield ingestion_pb2.IngestRequest(options=ingestion_pb2.IngestOptions(knowledge_base="similar"))
        for one in given:
            message = ingestion_pb2.IngestDocument(external_id=one.external_id)
            message.document.text = str(one.content)
            yield ingestion_pb2.IngestRequest(document=message)

    with grpc.insecure_channel(traced.address("retriever")) as channel:
        stub = ingestion_pb2_grpc.IngestionServiceStub(channel)
        results = list(stub.Ingest(requests(), timeout=60, metadata=traceparent(trace_id)))
    assert [result.HasField("error") for result in results] == [False] * 4
    root = "kbmesh.retriever.v1.IngestionService/Ingest"
    wanted = [root, "ingest document", "vector store write", "catalog publish", "model run"]
    spans = receiver.trace(trace_id, until=wanted)
    assert {span.service for span in spans} == {"kbmesh-retriever", "kbmesh-chunker", "kbmesh-embedder"}
    assert all(chain(span, spans)[-1] == root for span in spans), [chain(span, spans) for span in spans]
    assert [span.attributes["kbmesh.document.outcome"] for span in spans if span.name == "ingest document"] == [
        "new"
    ] * 4
    by_chunker = [span for span in spans if span.service == "kbmesh-chunker" and span.kind == CLIENT]
    assert {span.name.rpartition("/")[2] for span in by_chunker} >= {"Embed"}


def test_a_batch_is_linked_to_every_request_in_it(traced: WatchedMesh, receiver: SpanReceiver) -> None:
    traces = [f"{number:032x}" for number in range(0x3000, 0x3010)]
    barrier = threading.Barrier(len(traces))

    def call(trace_id: str) -> None:
        texts = [f"text {number} of {trace_id} " * 20 for number in range(8)]
        request = embedder_pb2.EmbedRequest(texts=texts, input_type=embedder_pb2.INPUT_TYPE_DOCUMENT)
        with grpc.insecure_channel(traced.address("embedder")) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
            barrier.wait()
            embedder_pb2_grpc.EmbedderServiceStub(channel).Embed(request, timeout=30, metadata=traceparent(trace_id))

    threads = [threading.Thread(target=call, args=(trace_id,)) for trace_id in traces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name = "kbmesh.embedder.v1.EmbedderService/Embed"
    served = [span for trace_id in traces for span in receiver.trace(trace_id, until=[name]) if span.name == name]
    traced.wait_for(lambda: len(linked_requests(receiver, traces)) == len(traces), "a batch for each request")
    batches = [span for span in receiver.spans if span.name == "model run" and span.trace_id in traces]
    assert max(len(batch.links) for batch in batches) > 1, "no two requests shared a batch"
    requests = {(span.trace_id, span.span_id): span for span in served}
    for batch in batches:
        assert batch.attributes["kbmesh.batch.requests"] == len(batch.links)
        for link in batch.links:
            # And back again, so that each trace leads to the batch.
            assert (batch.trace_id, batch.span_id) in requests[link].links


def linked_requests(receiver: SpanReceiver, traces: list[str]) -> set[str]:
    found = [span for span in receiver.spans if span.name == "model run"]
    return {trace_id for span in found for trace_id, _ in span.links if trace_id in traces}


def test_what_fails_says_so_in_its_span_without_a_word_of_the_request(
    traced: WatchedMesh, receiver: SpanReceiver
) -> None:
    trace_id = "4" * 32
    with pytest.raises(grpc.RpcError):
        ask(traced, "What did Ulysses whisper?", "nowhere", metadata=traceparent(trace_id))
    [span] = [
        each
        for each in receiver.trace(trace_id, until=["kbmesh.retriever.v1.RetrieverService/Retrieve"])
        if each.kind == SERVER
    ]
    assert span.attributes["error.type"] == "KNOWLEDGE_BASE_NOT_FOUND"
    assert "Ulysses" not in str(receiver.spans)


def test_a_caller_that_does_not_sample_gets_no_spans(traced: WatchedMesh, receiver: SpanReceiver) -> None:
    trace_id, after = "5" * 32, "6" * 32
    ask(traced, "Which probe waits?", "traced", metadata=traceparent(trace_id, sampled=False))
    ask(traced, "Which probe waits?", "traced", metadata=traceparent(after))
    receiver.trace(after, until=["kbmesh.retriever.v1.RetrieverService/Retrieve", "model run"])
    assert [span for span in receiver.spans if span.trace_id == trace_id] == []


def test_resources_say_who_sends(traced: WatchedMesh, receiver: SpanReceiver) -> None:
    for resource in receiver.resources:
        assert resource["deployment.environment.name"] == "test"
        assert resource["service.namespace"] == "kbmesh"
        assert resource["service.version"]


def test_opentelemetrys_own_settings_turn_it_off(receiver: SpanReceiver, tmp_path: Path) -> None:
    standard = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_SERVICE_NAME": "sampled-out",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }
    mesh = WatchedMesh(folder=tmp_path, environment={"": standard})
    try:
        mesh.start("embedder")
        with grpc.insecure_channel(mesh.address("embedder")) as channel:
            stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
            stub.ListModels(embedder_pb2.ListModelsRequest(), timeout=10)
            stub.ListModels(embedder_pb2.ListModelsRequest(), timeout=10, metadata=traceparent("7" * 32))
        receiver.trace("7" * 32, until=["kbmesh.embedder.v1.EmbedderService/ListModels"])
    finally:
        mesh.stop()
    sent = [span for span in receiver.spans if span.service == "sampled-out"]
    assert [span.trace_id for span in sent] == ["7" * 32]
