"""A small application over the chunker's contract, whose methods each test gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh_rpc.server import Registration
from kbmesh_rpc.settings import ServerSettings

CHUNKER = "kbmesh.chunker.v1.ChunkerService"

Context = grpc.aio.ServicerContext[Any, Any]
Chunk = Callable[[chunker_pb2.ChunkRequest, Context], Awaitable[chunker_pb2.ChunkResponse]]
ChunkStream = Callable[
    [AsyncIterator[chunker_pb2.ChunkStreamRequest], Context], AsyncIterator[chunker_pb2.ChunkStreamResponse]
]


async def answer(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
    return chunker_pb2.ChunkResponse()


async def echo(
    requests: AsyncIterator[chunker_pb2.ChunkStreamRequest], _context: Context
) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
    async for _ in requests:
        yield chunker_pb2.ChunkStreamResponse()


class Servicer(chunker_pb2_grpc.ChunkerServiceServicer):
    def __init__(self, chunk: Chunk, chunk_stream: ChunkStream) -> None:
        self._chunk = chunk
        self._chunk_stream = chunk_stream

    async def Chunk(self, request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:  # noqa: N802 - the contract's name
        return await self._chunk(request, context)

    async def ChunkStream(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[chunker_pb2.ChunkStreamRequest], context: Context
    ) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
        async for response in self._chunk_stream(request_iterator, context):
            yield response


@dataclass
class ChunkerApplication:
    chunk: Chunk = answer
    chunk_stream: ChunkStream = echo
    warm: asyncio.Event | None = None
    """warm_up waits for it."""
    fault: Exception | None = None
    """warm_up raises it."""
    closed: int = 0
    endless: bool = False
    registrations: list[Registration] = field(init=False)

    def __post_init__(self) -> None:
        servicer = Servicer(self.chunk, self.chunk_stream)

        def add(server: grpc.aio.Server) -> None:
            chunker_pb2_grpc.add_ChunkerServiceServicer_to_server(servicer, server)

        self.registrations = [Registration(name=CHUNKER, add=add, endless=self.endless)]

    async def warm_up(self) -> None:
        if self.fault is not None:
            raise self.fault
        if self.warm is not None:
            await self.warm.wait()

    async def close(self) -> None:
        self.closed += 1


def settings(**changes: Any) -> ServerSettings:
    return ServerSettings(**{"port": 0, "metrics_port": 0, "grace_seconds": 5, **changes})


def stub(channel: grpc.aio.Channel) -> "chunker_pb2_grpc.ChunkerServiceAsyncStub":
    return chunker_pb2_grpc.ChunkerServiceStub(channel)


def raising(error: BaseException) -> Chunk:
    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        raise error

    return chunk
