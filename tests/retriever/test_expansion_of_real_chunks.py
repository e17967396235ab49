"""Chunks that the real chunker cut are joined to the exact text of the document, and never across its parts."""

from collections.abc import AsyncIterator, Mapping, Sequence
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_retriever.ingest.points import BLANK_BEFORE
from kbmesh_retriever.retrieve.expansion import Expansion, expand
from kbmesh_retriever.retrieve.fragment import Candidate, Fragment, Ranks, Scores
from kbmesh_retriever.stores.port import Point, StoredChunk
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running
from memory_store import MemoryStore
from store_points import DIMENSION, chunk, scope

DATA = Path(__file__).parent.parent / "data"
HANDBOOK = scope("acme", "handbook")
TARGET: Any = SimpleNamespace(
    knowledge_base=SimpleNamespace(collection="kb"), scope=HANDBOOK, principals=frozenset[str]()
)
DOCUMENTS: Mapping[str, str] = {
    "documents/httpx-quickstart.md": "AUTO",
    "documents/infinity-readme.md": "SEMANTIC",
    "documents/us-declaration.txt": "FIXED",
    "documents/currency-server.js": "AUTO",
    "documents/slack-2016-02-07.json": "AUTO",
    "code/httpx_models.py": "AUTO",
    "code/server.cpp": "FIXED",
}


@pytest.fixture
async def stub() -> AsyncIterator["chunker_pb2_grpc.ChunkerServiceStub"]:
    settings = ChunkerSettings(port=0, metrics_port=0, reading_processes=0)
    async with running(ChunkerApplication(settings), settings) as target, open_channel(target) as channel:
        yield chunker_pb2_grpc.ChunkerServiceStub(channel)


async def cut(
    stub: "chunker_pb2_grpc.ChunkerServiceStub", name: str, data: bytes, strategy: str = "AUTO", size: int = 300
) -> tuple[str, list[Point], chunker_pb2.DocumentSummary]:
    """The document's text and its chunks as points."""
    request = chunker_pb2.ChunkRequest(
        document=chunker_pb2.Document(data=data, filename=name),
        config=chunker_pb2.ChunkingConfig(strategy=chunker_pb2.Strategy.Value(f"STRATEGY_{strategy}"), size=size),
        return_text=True,
    )
    response = await stub.Chunk(request)
    points = [
        chunk(
            HANDBOOK,
            name,
            one.text,
            index=one.index,
            start=one.span.start,
            end=one.span.end,
            start_byte=one.span.start_byte,
            end_byte=one.span.end_byte,
            metadata=dict(one.metadata),
            **({BLANK_BEFORE: one.blank_before} if one.blank_before else {}),
        )
        for one in response.chunks
    ]
    return response.text, points, response.summary


async def expansions(points: Sequence[Point], each_side: int) -> list[Expansion]:
    """Of each chunk alone."""
    store = MemoryStore()
    await store.ensure_collection("kb", dimension=DIMENSION)
    await store.upsert("kb", points)
    found = []
    for point in points:
        fragment = Fragment.from_chunk(StoredChunk(id=point.id, payload=point.payload), HANDBOOK)
        candidate = Candidate(fragment=fragment, target=0, scores=Scores(), ranks=Ranks())
        outcome = await expand(store, [candidate], {0: TARGET}, each_side=each_side, seconds=5)
        found.append(outcome.expansions[candidate.chunk_id])
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_neighbours_of_every_chunk_are_joined_exactly(
    name: str, stub: "chunker_pb2_grpc.ChunkerServiceStub"
) -> None:
    text, points, _ = await cut(stub, name, (DATA / name).read_bytes(), DOCUMENTS[name])
    encoded = text.encode()
    assert len(points) > 5
    for place, expansion in enumerate(await expansions(points, 2)):
        span = expansion.span
        assert text[span.start : span.end] == expansion.text
        assert encoded[span.start_byte : span.end_byte].decode() == expansion.text
        first, last = points[max(0, place - 2)], points[min(len(points) - 1, place + 2)]
        assert (span.start, span.end) == (first.payload["start"], last.payload["end"]), "none of them is missing"


async def test_an_attachment_is_not_joined_to_its_mail(stub: "chunker_pb2_grpc.ChunkerServiceStub") -> None:
    message = EmailMessage()
    message["From"], message["Subject"] = "Ada <ada@example.com>", "Pool"
    message.set_content("The pool was too small.\n\nWe raised it to fifty connections. " * 20)
    for number in (1, 2):
        message.add_attachment(f"Note {number} of the pool. " * 40, filename=f"note{number}.txt")
    text, points, summary = await cut(stub, "mail.eml", message.as_bytes())
    assert len(summary.parts) == 3
    parts = [range(part.span.start, part.span.end) for part in summary.parts]
    for point, expansion in zip(points, await expansions(points, 5), strict=True):
        (own,) = [part for part in parts if point.payload["start"] in part]
        assert expansion.span.start in own
        assert expansion.span.end - 1 in own
        assert text[expansion.span.start : expansion.span.end] == expansion.text
