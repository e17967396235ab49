"""Series of a mesh that serves, is asked what is wrong, and whose parts fail: they move, and they do not multiply."""

import random
import subprocess
from collections.abc import Callable

import grpc
import pytest
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from kbmesh_client import KbmeshError
from observability.load import ask, at_once, make, take_in
from observability.watched_mesh import SERVICES, Scrape, WatchedMesh

pytestmark = pytest.mark.timeout(300)  # five processes start first, which a busy machine takes long for

MOST_SERIES = 3000
"""Of one service. Most are those of gRPC: a service has a few for each of its methods and codes."""


class Growth:
    """How much a sample of a service grew since this was made."""

    def __init__(self, mesh: WatchedMesh, service: str) -> None:
        self._mesh, self._service = mesh, service
        self._before = mesh.scrape(service)

    def of(self, name: str, **labels: str) -> float:
        return self._mesh.scrape(self._service).total(name, **labels) - self._before.total(name, **labels)


@pytest.fixture(scope="module")
def used(mesh: WatchedMesh) -> WatchedMesh:
    """The mesh with a knowledge base in it, every path of which was gone once."""
    with mesh.client() as client:
        make(client, "used")
        take_in(client, "used", 10)
        assert ask(client, "used", 5) == 5
        assert ask(client, "used", 5) == 5
        for strategy in ("VECTOR_ONLY", "HYBRID", "HYBRID_RERANK"):
            ask(client, "used", 1, strategy=strategy)
    return mesh


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_serves_a_valid_exposition(used: WatchedMesh, service: str) -> None:
    page = used.exposition(service)
    scrape = Scrape.of(page)
    assert scrape.total("kbmesh_build_info", service=service) == 1
    assert scrape.total("grpc_server_handled_total", grpc_code="OK") > 0
    assert "_created" not in page
    for line in page.splitlines():
        if line.startswith("# TYPE kbmesh_"):
            _, _, name, kind = line.split()
            assert f"# HELP {name} " in page
            assert (kind == "counter") == name.endswith("_total"), line


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("service", SERVICES)
def test_promtool_has_nothing_to_say(used: WatchedMesh, service: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=used.exposition(service), capture_output=True, text=True, check=False
    )
    ours = [line for line in (checked.stdout + checked.stderr).splitlines() if line.startswith(("kbmesh_", "grpc_"))]
    assert ours == []
    assert checked.returncode in (0, 3), checked.stderr  # 3: what it has to say of the client library's own names


def test_a_question_moves_the_series_along_its_way(used: WatchedMesh) -> None:
    retriever, embedder, reranker, edge = (Growth(used, one) for one in ("retriever", "embedder", "reranker", "edge"))
    with used.client() as client:
        client.retrieve("Which revision does the rollback restore?", "used", skip_cache=True)
    assert retriever.of("grpc_server_handled_total", grpc_method="Retrieve", grpc_code="OK") == 1
    assert retriever.of("kbmesh_retriever_answers_total", strategy="hybrid_rerank", outcome="full") == 1
    assert retriever.of("kbmesh_retriever_answer_results_count") == 1
    assert retriever.of("kbmesh_retriever_top_rerank_probability_count") == 1
    assert retriever.of("kbmesh_retriever_top_vector_score_count") == 1
    assert retriever.of("kbmesh_retriever_context_tokens_count") == 1
    assert retriever.of("kbmesh_retriever_stage_seconds_count", stage="search") == 1
    assert retriever.of("grpc_client_handled_total", grpc_method="Rerank", grpc_code="OK") == 1
    assert embedder.of("kbmesh_embedder_tokens_total", lane="interactive") > 0
    assert reranker.of("kbmesh_reranker_tokens_total", lane="interactive") > 0
    assert edge.of("grpc_server_handled_total", grpc_service="qdrant.Points", grpc_code="OK") > 0


def test_a_document_moves_the_series_along_its_way(used: WatchedMesh) -> None:
    retriever, chunker, embedder = (Growth(used, one) for one in ("retriever", "chunker", "embedder"))
    with used.client() as client:
        outcomes = take_in(client, "used", 3, seed=7, prefix="way")
    assert sorted(outcomes) == ["FAILED", "NEW", "NEW", "NEW"]
    assert retriever.of("kbmesh_retriever_ingested_documents_total", outcome="new") == 3
    assert retriever.of("kbmesh_retriever_ingested_documents_total", outcome="failed") == 1
    assert retriever.of("kbmesh_retriever_ingest_failures_total", reason="DOCUMENT_UNREADABLE") == 1
    assert retriever.of("kbmesh_retriever_ingest_document_seconds_count") == 4
    embedded = retriever.of("kbmesh_retriever_ingest_embedded_chunks_total")
    assert embedded >= 3
    assert retriever.of("kbmesh_retriever_ingest_tokens_total") > embedded
    assert chunker.of("kbmesh_chunker_documents_total") == 3
    assert chunker.of("kbmesh_chunker_chunks_total") == embedded
    assert embedder.of("kbmesh_embedder_tokens_total", lane="bulk") > 0
    scrape = used.scrape("retriever")
    assert scrape.total("kbmesh_retriever_ingest_documents_in_work") == 0
    assert scrape.total("kbmesh_retriever_ingest_bytes_in_work") == 0
    assert used.scrape("chunker").total("kbmesh_chunker_waiting_bytes") == 0


def failing(mesh: WatchedMesh, call: Callable[[retriever_pb2_grpc.RetrieverServiceStub], object]) -> grpc.StatusCode:
    with grpc.insecure_channel(mesh.address("retriever")) as channel, pytest.raises(grpc.RpcError) as caught:
        call(retriever_pb2_grpc.RetrieverServiceStub(channel))
    code: grpc.StatusCode = caught.value.code()
    return code


def test_bad_input_is_counted_by_its_reason(used: WatchedMesh) -> None:
    grew = Growth(used, "retriever")
    code = failing(used, lambda stub: stub.Retrieve(retriever_pb2.RetrieveRequest(query="  "), timeout=5))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert grew.of("grpc_server_handled_total", grpc_method="Retrieve", grpc_code="INVALID_ARGUMENT") == 1
    assert grew.of("kbmesh_server_errors_total") == 1


def test_a_dead_reranker_degrades_answers_and_opens_its_breaker(used: WatchedMesh) -> None:
    grew = Growth(used, "retriever")
    used.kill("reranker")
    try:
        with used.client() as client:
            for number in range(8):
                client.retrieve(f"What does probe {number} wait for?", "used", timeout_seconds=3)
        assert grew.of("kbmesh_retriever_answers_total", outcome="degraded") == 8
        assert grew.of("kbmesh_retriever_degraded_answers_total", stage="rerank") == 8
        assert grew.of("grpc_client_handled_total", grpc_method="Rerank", grpc_code="UNAVAILABLE") > 0
        assert used.scrape("retriever").total("kbmesh_retriever_breakers_open", dependency="reranker") == 1
        assert grew.of("kbmesh_retriever_breaker_refusals_total", dependency="reranker") > 0
    finally:
        used.start("reranker")


def test_a_dead_embedder_fails_documents_by_a_fault_of_ours(used: WatchedMesh) -> None:
    grew = Growth(used, "retriever")
    used.kill("embedder")
    try:
        with used.client() as client:
            assert set(take_in(client, "used", 2, seed=8, prefix="dead")) == {"FAILED"}
        assert grew.of("kbmesh_retriever_ingest_failures_total") == 3
        faults = grew.of("kbmesh_retriever_ingest_failures_total", reason="DEPENDENCY_UNAVAILABLE")
        assert faults == 2
    finally:
        used.start("embedder")


def test_a_hanging_store_is_a_deadline_and_given_up_calls(used: WatchedMesh) -> None:
    grew = Growth(used, "retriever")
    with used.frozen("edge"), used.client(timeout_seconds=0.7) as client:
        for number in range(3):
            try:
                client.retrieve(f"Which node holds disk {number}?", "used", strategy="HYBRID", skip_cache=True)
            except KbmeshError:
                continue
    late = grew.of("grpc_server_handled_total", grpc_method="Retrieve", grpc_code="DEADLINE_EXCEEDED")
    partial = grew.of("kbmesh_retriever_answers_total", outcome="partial")
    assert late + partial + grew.of("kbmesh_server_errors_total") >= 3
    assert grew.of("kbmesh_retriever_abandoned_calls_total") > 0


def test_overload_is_counted_and_timed_as_a_refusal(used: WatchedMesh) -> None:
    grew = Growth(used, "embedder")
    # More than the queue of any model may hold for one tenant.
    texts = [f"word{number} " * 250 for number in range(2000)]
    request = embedder_pb2.EmbedRequest(texts=texts, input_type=embedder_pb2.INPUT_TYPE_DOCUMENT)
    with grpc.insecure_channel(used.address("embedder")) as channel:
        stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        calls = [stub.Embed.future(request, timeout=8) for _ in range(4)]
        codes = {call.exception().code() if call.exception() else grpc.StatusCode.OK for call in calls}
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
    assert grew.of("kbmesh_server_refusal_seconds_count") > 0
    assert grew.of("kbmesh_server_errors_total", reason="QUEUE_FULL") > 0


def test_series_do_not_grow_with_tenants_knowledge_bases_documents_or_queries(used: WatchedMesh) -> None:
    """OBS-03: label values come from closed sets, so that the number of series stays what it is."""
    before = {service: used.scrape(service).series for service in SERVICES}
    chance = random.Random(3)
    for tenant in range(6):
        with used.client(tenant=f"tenant-{tenant}") as client:
            for base in range(2):
                make(client, f"base-{tenant}-{base}")
                take_in(client, f"base-{tenant}-{base}", 2, seed=tenant, prefix=f"own-{tenant}-{base}")
            for _ in range(20):
                ask(client, f"base-{tenant}-{chance.randrange(2)}", 1, seed=chance.randrange(10**9))
                ask(client, f"nowhere-{chance.randrange(10**9)}", 1)
    with grpc.insecure_channel(used.address("retriever")) as channel:
        for number in range(200):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary(f"/made.up.Service{number}/Method{number}")(b"", timeout=5)
    # What nobody has asked for before is counted as `other`, once and for all.
    other = {series for series in used.scrape("retriever").series if ("grpc_service", "other") in series[1]}
    for service in SERVICES:
        after = used.scrape(service).series
        grown = after - before[service] - other
        assert grown == set(), service
        assert len(after) <= MOST_SERIES, service
    values = {value for service in SERVICES for _, labels in used.scrape(service).series for _, value in labels}
    assert not any(value.startswith(("tenant-", "base-", "own-", "made.up", "nowhere-")) for value in values)


def test_counters_never_go_back_while_calls_are_made(used: WatchedMesh) -> None:
    """OBS-04: a process counts for itself, so that a thousand calls are a thousand in every later scrape."""
    labels = {"grpc_service": "kbmesh.embedder.v1.EmbedderService", "grpc_method": "CountTokens", "grpc_code": "OK"}
    name = "grpc_server_handled_total"
    start = used.scrape("embedder").total(name, **labels)
    seen: list[float] = []

    def call() -> None:
        with grpc.insecure_channel(used.address("embedder")) as channel:
            stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
            for number in range(250):
                stub.CountTokens(embedder_pb2.CountTokensRequest(texts=[f"text {number}"]), timeout=10)

    def watch() -> None:
        seen.extend(used.scrape("embedder").total(name, **labels) - start for _ in range(20))

    at_once(call, call, call, call, watch)
    assert seen == sorted(seen)
    for _ in range(20):
        assert used.scrape("embedder").total(name, **labels) - start == 1000


@pytest.mark.parametrize("service", ["embedder", "reranker"])
def test_models_are_told_from_the_live_session(used: WatchedMesh, service: str) -> None:
    """OBS-06: what is shown is what runs, beside what was asked for."""
    [labels] = [dict(labels) for name, labels in used.scrape(service).series if name == f"kbmesh_{service}_model_info"]
    assert (labels["device"], labels["wanted_device"], labels["backend"]) == ("cpu", "auto", "fake")
    assert labels["fingerprint"].startswith("fake-")
    assert labels["max_tokens"] == "256"
    assert used.scrape(service).total(f"kbmesh_{service}_model_ready", model=labels["model"]) == 1


def test_a_rebuild_and_the_sweep_after_it_are_counted(used: WatchedMesh) -> None:
    grew = Growth(used, "retriever")
    with used.client() as client:
        make(client, "rebuilt")
        take_in(client, "rebuilt", 2, seed=5, prefix="re")
        client.rebuild_knowledge_base("rebuilt", embedding_model="")
        client.cancel_rebuild("rebuilt")
        client.delete_knowledge_base("rebuilt")
    assert grew.of("kbmesh_retriever_rebuilds_total", event="started") == 1
    assert grew.of("kbmesh_retriever_rebuilds_total", event="cancelled") == 1
    used.wait_for(lambda: grew.of("kbmesh_retriever_swept_total", kind="knowledge_base") >= 1, "a sweep")
    scrape = used.scrape("retriever")
    assert scrape.total("kbmesh_retriever_last_sweep_timestamp_seconds") > 0
