"""A service is killed with SIGKILL while documents go in. After a new start the same ingestion leaves every document
there once, current and searchable, and nothing else in the vector store."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mesh_process import Mesh
from qdrant_client import QdrantClient

DOCUMENTS = 24
SEED = 4815


def write_documents(folder: Path, *, version: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(DOCUMENTS):
        paragraphs = "\n\n".join(
            f"Paragraph {part} of runbook {number}: step {part} restarts unit u{number}x{part} and waits for its probe "
            f"and writes revision {version} to the log of host h{number}." + " Nothing else happens here." * 12
            for part in range(4)
        )
        (folder / f"runbook-{number:03}.md").write_text(f"# Runbook marker{number:03}\n\n{paragraphs}\n")


def points(mesh: Mesh) -> dict[tuple[str, int], int]:
    """Points in the vector store by (external id, generation)."""
    client = QdrantClient(
        host="127.0.0.1", grpc_port=mesh.port_base + 4, prefer_grpc=True, check_compatibility=False, timeout=30
    )
    try:
        found: dict[tuple[str, int], int] = {}
        for collection in client.get_collections().collections:
            offset = None
            while True:
                page, offset = client.scroll(collection.name, limit=1000, offset=offset, with_payload=True)
                for point in page:
                    payload = point.payload or {}
                    key = (payload["external_id"], payload["generation"])
                    found[key] = found.get(key, 0) + 1
                if offset is None:
                    return found
    finally:
        client.close()


def check_every_document_is_there_once(mesh: Mesh, folder: Path) -> None:
    listed = mesh.json("kb", "show", "runbooks")
    assert listed["document_count"] == DOCUMENTS
    # The sweeper removes what the crash left behind.
    mesh.wait_for(lambda: len(points(mesh)) == DOCUMENTS, "one generation of each document in the vector store")
    stored = points(mesh)
    assert len({external_id for external_id, _ in stored}) == DOCUMENTS
    assert sum(stored.values()) == listed["chunk_count"]
    for number in random.Random(SEED).sample(range(DOCUMENTS), 5):
        answer = mesh.json("search", f"marker{number:03}", "--kb", "runbooks", "--strategy", "hybrid", "--top-k", "20")
        assert answer["results"][0]["document"]["title"] == f"Runbook marker{number:03}"
        spans = [
            (result["document"]["id"], result["span"]["start"], result["span"]["end"]) for result in answer["results"]
        ]
        assert len(spans) == len(set(spans)), "a chunk was found twice"
        text = (folder / f"runbook-{number:03}.md").read_text()
        best = answer["results"][0]
        assert text[best["span"]["start"] : best["span"]["end"]] == best["text"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["retriever", "edge", "embedder", "chunker", "reranker"])
def test_kill_a_service_and_ingest_again(victim: str, make_mesh: Callable[[], Mesh], tmp_path: Path) -> None:
    monkey = random.Random(f"{SEED} {victim}")
    folder = tmp_path / "runbooks"
    write_documents(folder, version=1)
    mesh = make_mesh()
    mesh.environment["KBMESH_SUPERSEDED_GRACE_SECONDS"] = "1"
    mesh.environment["KBMESH_SWEEP_INTERVAL_SECONDS"] = "1"
    mesh.up()
    mesh.json("kb", "create", "runbooks")
    ingestion = mesh.start_ingest("runbooks", folder)
    mesh.wait_for(lambda: mesh.json("kb", "show", "runbooks")["document_count"] >= 3, "the first documents")
    time.sleep(monkey.random() / 2)
    assert ingestion.poll() is None, "the ingestion was over before the kill"
    killed = mesh.kill(victim)
    ingestion.communicate(timeout=120)
    mesh.wait_for(lambda: mesh.pids[victim] != killed, "a new process")
    mesh.down()

    mesh.up()
    again = mesh.json("ingest", "runbooks", folder)
    assert again["failed"] == 0
    assert again["new"] + again["changed"] + again["unchanged"] == DOCUMENTS
    check_every_document_is_there_once(mesh, folder)

    once_more = mesh.json("ingest", "runbooks", folder)
    assert (once_more["unchanged"], once_more["embedded"]) == (DOCUMENTS, 0)
