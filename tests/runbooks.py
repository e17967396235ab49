"""Documents to kill services over, and how to tell that none was lost or doubled."""

import random
from pathlib import Path

from mesh_process import Mesh
from qdrant_client import QdrantClient

SEED = 4815


def write_runbooks(folder: Path, *, count: int, version: int = 1) -> None:
    """Writes so many runbooks, of several chunks each, no two alike."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
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


def check_every_runbook_is_there_once(mesh: Mesh, folder: Path, *, count: int) -> None:
    """Every runbook is current, in the vector store once, and searchable with exact spans."""
    listed = mesh.json("kb", "show", "runbooks")
    assert listed["document_count"] == count
    # The sweeper removes what the crash left behind.
    mesh.wait_for(lambda: len(points(mesh)) == count, "one generation of each document in the vector store")
    stored = points(mesh)
    assert len({external_id for external_id, _ in stored}) == count
    assert sum(stored.values()) == listed["chunk_count"]
    for number in random.Random(SEED).sample(range(count), 5):
        name = f"runbook-{number:03}.md"
        external_id = next(external_id for external_id, _ in stored if external_id.endswith(name))
        answer = mesh.json(
            "search", f"Which unit does step 2 of runbook {number} restart?", "--kb", "runbooks",
            "--filter", f"external_id={external_id}", "--top-k", "50",
        )  # fmt: skip
        assert {result["document"]["title"] for result in answer["results"]} == {f"Runbook marker{number:03}"}
        assert len(answer["results"]) == sum(chunks for (found, _), chunks in stored.items() if found == external_id)
        spans = [
            (result["document"]["id"], result["span"]["start"], result["span"]["end"]) for result in answer["results"]
        ]
        assert len(spans) == len(set(spans)), "a chunk was found twice"
        text = (folder / name).read_text()
        for result in answer["results"]:
            assert text[result["span"]["start"] : result["span"]["end"]] == result["text"]
