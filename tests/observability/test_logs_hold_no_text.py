"""No word of a document, a query or a key is in any log, at any level, whatever fails."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh.reranker.v1 import reranker_pb2, reranker_pb2_grpc
from kbmesh_client import ChunkingConfig, ChunkingStrategy, IngestDocument, KbmeshClient, KbmeshError
from kbmesh_rpc.logs import tenant_hash
from observability.watched_mesh import SERVICES, WatchedMesh

CANARY = "Zwetschgendatschi"
"""A word that is in documents, queries, names, metadata, keys and a tenant's name, and may be in no log."""
TENANT = f"tenant-{CANARY}"
SECRETS = {
    "retriever": {
        "KBMESH_QDRANT_API_KEY": f"key-{CANARY}",
        "KBMESH_LLM_URL": "http://127.0.0.1:9/v1",
        "KBMESH_LLM_MODEL": "small",
        "KBMESH_LLM_API_KEY": f"key-{CANARY}",
        "KBMESH_S3_SECRET_ACCESS_KEY": f"key-{CANARY}",
    },
    "chunker": {
        "KBMESH_LLM_URL": "http://127.0.0.1:9/v1",
        "KBMESH_LLM_MODEL": "small",
        "KBMESH_LLM_API_KEY": f"key-{CANARY}",
    },
}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[WatchedMesh]:
    found = WatchedMesh(folder=tmp_path, environment={"": {"KBMESH_LOG_LEVEL": "debug"}, **SECRETS})
    try:
        found.start()
        yield found
    finally:
        found.stop()


def documents() -> list[IngestDocument]:
    text = f"# {CANARY}\n\n" + f"The recipe of {CANARY} is a secret of the house. It is baked in summer. " * 40
    about = {"title": f"On {CANARY}", "author": CANARY, "metadata": {"cake": CANARY}, "tags": (CANARY,)}
    common = {**about, "uri": f"https://x.test/{CANARY}"}
    return [
        IngestDocument(external_id=f"a-{CANARY}.md", content=text, **common),
        IngestDocument(
            external_id=f"b-{CANARY}.py", content=f"def {CANARY}():\n    return '{CANARY}'\n" * 50, **common
        ),
        IngestDocument(
            external_id="c",
            content=f"%PDF-1.4 {CANARY}".encode(),
            filename=f"{CANARY}.pdf",
            media_type="application/pdf",
        ),
        IngestDocument(external_id="d", content=f"{CANARY}".encode() + b"\x00\xff\xfe", filename=f"{CANARY}.docx"),
        IngestDocument(external_id=f"e-{CANARY}\0", content=text),
        IngestDocument(external_id="f", content=f"From: {CANARY}\n\n{text}".encode(), media_type="message/rfc822"),
        IngestDocument(external_id="g", content=text, metadata={CANARY: "x" * 20_000}),
        IngestDocument(external_id="h", content="", title=CANARY),
    ]


def use(client: KbmeshClient, base: str) -> None:
    """Everything a caller can do with text, right and wrong. What fails goes on."""
    questions: list[tuple[str, dict[str, object]]] = [
        (f"Where is {CANARY} baked?", {}),
        (f"{CANARY}", {"strategy": "ADVANCED", "hypothetical_answer": True}),
        (f"{CANARY} " * 3000, {}),
        (f"{CANARY}", {"filter": {f"metadata.{CANARY}": CANARY}}),
        (f"{CANARY}", {"filter": {CANARY: CANARY}}),
        (f"{CANARY}", {"context_tokenizer": CANARY}),
        (f"{CANARY}", {"top_k": 10_000}),
        (f"{CANARY}\0\u200b", {"expand": 2, "diversity": 0.5}),
    ]
    for query, options in questions:
        for name in (base, f"nowhere-{CANARY}"):
            with suppress(KbmeshError, ValueError):
                client.retrieve(query, name, **options)  # type: ignore[arg-type]  # names are the SDK's own
    with suppress(KbmeshError):
        list(client.ingest(base, documents()))
    for strategy in (ChunkingStrategy.SIMILARITY, ChunkingStrategy.PROPOSITION):
        with suppress(KbmeshError):
            client.create_knowledge_base(f"{base}-{strategy.value}", chunking=ChunkingConfig(strategy=strategy))
        with suppress(KbmeshError):
            list(client.ingest(f"{base}-{strategy.value}", documents()[:2]))
    with suppress(KbmeshError):
        client.create_profile(f"p-{CANARY}", description=CANARY)
    with suppress(KbmeshError):
        client.retrieve(f"What is {CANARY}?", profile=f"p-{CANARY}")
    for call in (client.get_document, client.delete_document):
        with suppress(KbmeshError):
            call(base, f"a-{CANARY}.md")


def ask_models(mesh: WatchedMesh) -> None:
    """The models' own services, and bytes that are no message."""
    texts = [f"{CANARY} {number}" for number in range(5)] + ["", CANARY * 5000]
    with grpc.insecure_channel(mesh.address("embedder")) as channel:
        stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        for model in ("", CANARY):
            request = embedder_pb2.EmbedRequest(
                model=model,
                texts=texts,
                input_type=embedder_pb2.INPUT_TYPE_DOCUMENT,
                truncation=embedder_pb2.TRUNCATION_NONE,
            )
            with suppress(grpc.RpcError):
                stub.Embed(request, timeout=5, metadata=(("kbmesh-tenant", TENANT),))
    with grpc.insecure_channel(mesh.address("reranker")) as channel, suppress(grpc.RpcError):
        reranker_pb2_grpc.RerankerServiceStub(channel).Rerank(
            reranker_pb2.RerankRequest(query=CANARY, documents=texts), timeout=5
        )
    methods = {
        "retriever": "/kbmesh.retriever.v1.RetrieverService/Retrieve",
        "chunker": "/kbmesh.chunker.v1.ChunkerService/Chunk",
        "edge": "/qdrant.Points/Search",
    }
    for service, method in methods.items():
        for path in (method, f"/x.{CANARY}/y"):
            with grpc.insecure_channel(mesh.address(service)) as channel, suppress(grpc.RpcError):
                channel.unary_unary(path)(b"\xff\xff" + CANARY.encode(), timeout=5)


def break_catalog(mesh: WatchedMesh) -> None:
    """Refuses changes beneath the retriever in a way that nobody foresaw: statements with titles in them fail."""
    with sqlite3.connect(mesh.folder / "catalog.db", timeout=10) as database:
        act = "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        database.execute(f"CREATE TRIGGER no BEFORE UPDATE OF title ON generations {act}")


def fail_by_name(mesh: WatchedMesh) -> None:
    """A call whose line in the log is to be found again."""
    metadata = (
        ("kbmesh-request-id", "request-77"),
        ("kbmesh-tenant", TENANT),
        ("traceparent", f"00-{'ab' * 16}-b7ad6b7169203331-01"),
    )
    with grpc.insecure_channel(mesh.address("embedder")) as channel:
        request = embedder_pb2.EmbedRequest(model="none such", texts=["x"], input_type=embedder_pb2.INPUT_TYPE_QUERY)
        with pytest.raises(grpc.RpcError):
            embedder_pb2_grpc.EmbedderServiceStub(channel).Embed(request, timeout=5, metadata=metadata)


@pytest.mark.timeout(240)
def test_no_word_of_documents_queries_and_keys_is_in_any_log(mesh: WatchedMesh) -> None:
    """And every line is JSON that leads to its call. At debug: what is logged at any other level is among it."""
    with mesh.client(tenant=TENANT, timeout_seconds=4) as client:
        client.create_knowledge_base(f"kb-{CANARY}", description=CANARY)
        use(client, f"kb-{CANARY}")
        ask_models(mesh)
        fail_by_name(mesh)
        for service in ("reranker", "embedder", "chunker", "edge"):
            mesh.kill(service)
            with suppress(KbmeshError):
                client.retrieve(f"Who bakes {CANARY} while {service} is away?", f"kb-{CANARY}", skip_cache=True)
            with suppress(KbmeshError):
                list(client.ingest(f"kb-{CANARY}", documents()[:1], timeout_seconds=3))
        mesh.start("reranker", "embedder", "chunker", "edge")
        break_catalog(mesh)
        # Another title alone: the catalog is told of it.
        changed = [replace(one, title=f"Of {CANARY} anew") for one in documents()[:2]]

        def refused() -> bool:
            errors = [result.error for result in client.ingest(f"kb-{CANARY}", changed)]
            return [error.reason if error else "" for error in errors] == ["INTERNAL"] * 2

        mesh.wait_for(refused, "an error that nobody foresaw")
    mesh.stop()
    logs = mesh.log_bytes()
    found = [line for line in logs.decode().splitlines() if CANARY.lower() in line.lower()]
    assert found == [], f"{len(found)} lines"
    for service in SERVICES:
        for line in mesh.log_lines(service):
            assert {"event", "level", "logger", "service", "timestamp"} <= line.keys(), line
            assert line["service"] == service
    # What was to fail did fail, in full.
    unknown = [line for line in mesh.log_lines("retriever") if "IntegrityError" in str(line.get("exception"))]
    assert len(unknown) >= 2
    assert all(line["tenant_hash"] == tenant_hash(TENANT) for line in unknown)
    [call] = [line for line in mesh.log_lines("embedder") if line.get("request_id") == "request-77"]
    assert (call["event"], call["code"], call["trace_id"]) == ("call", "NOT_FOUND", "ab" * 16)
    assert call["tenant_hash"] == tenant_hash(TENANT)


def test_the_log_of_the_busiest_is_what_the_dashboard_of_talkers_asks_for() -> None:
    """Each field that its queries name is one that the line has."""
    script = """
import asyncio, grpc
from kbmesh_rpc import interceptors, logs, talkers
from kbmesh_rpc.settings import ServerSettings
logs.configure_logging(ServerSettings(port=0), service="retriever")
busy = talkers.Talkers()
busy.add("acme", failed=True, seconds=0.5)
talkers.tell(busy, logs.tenant_hash, interceptors.logger.info)
interceptors._log("/a.B/C", grpc.StatusCode.INVALID_ARGUMENT, 0.5)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = {line["event"]: line for line in map(json.loads, done.stderr.splitlines())}
    page = json.loads((Path(__file__).parents[2] / "deploy/dashboards/kbmesh-talkers.json").read_text())
    for target in (target for panel in page["panels"] for target in panel["targets"]):
        event = re.search(r'event="(\w+)"', target["expr"])
        if event is None:
            continue
        fields = set(re.findall(r"unwrap (\w+)|sum by \(([\w, ]+)\)|\| (\w+)!?=", target["expr"]))
        names = {name.strip() for group in fields for part in group for name in part.split(",") if name.strip()}
        assert names <= lines[event[1]].keys(), names - lines[event[1]].keys()
