"""Chunkers for tests: in process, and behind a real gRPC server."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
from chunker.counters import WordPieceCounter
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running

DOCUMENTS = {
    path.name: path.read_bytes() for path in sorted((Path(__file__).parent.parent / "data" / "documents").iterdir())
}

Chunk = Callable[..., Awaitable[ChunkedDocument]]


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def counter() -> WordPieceCounter:
    return WordPieceCounter()


@pytest.fixture
def chunk(executor: Executor, counter: WordPieceCounter) -> Chunk:
    """chunk(content, strategy=..., size=..., media_type=..., filename=...) -> ChunkedDocument"""
    chunker = Chunker(limits=ReadingLimits(max_document_bytes=1_000_000), counter=counter, executor=executor)

    async def call(
        content: str | bytes, *, media_type: str = "", filename: str = "", **config: object
    ) -> ChunkedDocument:
        source = SourceDocument(content=content, media_type=media_type, filename=filename)
        return await chunker.chunk(source, ConfigRequest(**config), deadline=None)

    return call


@pytest.fixture
async def stub() -> AsyncIterator["chunker_pb2_grpc.ChunkerServiceAsyncStub"]:
    """A chunker that reads documents of at most 100,000 bytes and knows no embedder."""
    settings = ChunkerSettings(port=0, max_document_bytes=100_000, reading_processes=0)
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        yield chunker_pb2_grpc.ChunkerServiceStub(channel)


@pytest.fixture
def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
