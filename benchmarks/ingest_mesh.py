"""A mesh to take documents into, each service in a process of its own on loopback."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.served import Service, service

MODEL = "all-MiniLM-L6-v2"
FAKE_MODEL = "fake"


@dataclass(frozen=True, kw_only=True)
class IngestMesh:
    """The services that an ingestion needs."""

    embedder: Service
    chunker: Service
    edge: Service
    retriever: Service
    data: Path
    """Folder of the catalog and of the vector store."""


@contextmanager
def ingest_mesh(models: Path | None, *, retriever: Mapping[str, object] | None = None) -> Iterator[IngestMesh]:
    """Runs one until the block ends; its data go with it. `models` None: vectors come from a fake model, whose work is
    next to nothing. `retriever` has settings of the retriever."""
    embedding: dict[str, object] = {"backend": "fake", "model": FAKE_MODEL}
    if models is not None:
        embedding = {"models": models, "model": MODEL}
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="kbmesh-bench-", ignore_cleanup_errors=True)))
        edge = stack.enter_context(service("kbmesh_edge", "qdrant.Points", {"home": home}))
        embedder = stack.enter_context(
            service("kbmesh_embedder", "kbmesh.embedder.v1.EmbedderService", {"home": home, **embedding})
        )
        chunker = stack.enter_context(
            service(
                "kbmesh_chunker",
                "kbmesh.chunker.v1.ChunkerService",
                {"embedder_address": embedder.target},
            )
        )
        addresses = {
            "home": home,
            "chunker_address": chunker.target,
            "embedder_address": embedder.target,
            "reranker_address": "",
            "qdrant_url": f"http://{edge.target}",
        }
        retriever_service = stack.enter_context(
            service("kbmesh_retriever", "kbmesh.retriever.v1.IngestionService", {**addresses, **(retriever or {})})
        )
        yield IngestMesh(embedder=embedder, chunker=chunker, edge=edge, retriever=retriever_service, data=home / "data")
