"""A caller in another language sends what is no message: it learns that the request is wrong, not that kbmesh broke."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import CHUNKER, ChunkerApplication, Context, settings

SERVICE = "test.undecodable.v1.UndecodableService"
LONE_SURROGATE = b"\x0a\x03\xed\xa0\x80"

each_fault = pytest.mark.parametrize("fault", [LONE_SURROGATE, b"\xff\xff\xff"])
each_method = pytest.mark.parametrize("method", ["StreamStream", "StreamStreamReading"])


class UndecodableApplication:
    """Methods of the kinds that the chunker's contract has not, over its messages."""

    def __init__(self) -> None:
        self.received: list[str] = []

    @property
    def registrations(self) -> list[Registration]:
        decode = chunker_pb2.Document.FromString
        handlers = {
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self.unary_stream, decode),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(self.stream_unary, decode),
            "StreamStream": grpc.stream_stream_rpc_method_handler(self.stream_stream, decode),
            "StreamStreamReading": grpc.stream_stream_rpc_method_handler(self.stream_stream_reading, decode),
        }

        def add(server: grpc.aio.Server) -> None:
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

        return [Registration(name=SERVICE, add=add)]

    async def warm_up(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)

    def receive(self, request: chunker_pb2.Document) -> bytes:
        self.received.append(request.text)
        return request.text.encode()

    async def unary_stream(self, request: chunker_pb2.Document, _context: Context) -> AsyncIterator[bytes]:
        yield self.receive(request)

    async def stream_unary(self, requests: AsyncIterator[chunker_pb2.Document], _context: Context) -> bytes:
        return b",".join([self.receive(request) async for request in requests])

    async def stream_stream(
        self, requests: AsyncIterator[chunker_pb2.Document], _context: Context
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield self.receive(request)

    async def stream_stream_reading(self, _requests: AsyncIterator[chunker_pb2.Document], context: Context) -> None:
        while True:
            request: Any = await context.read()
            if request is grpc.aio.EOF:
                return
            await context.write(self.receive(request))


def good(name: str) -> bytes:
    return chunker_pb2.Document(text=name).SerializeToString()


def refusal(error: grpc.aio.AioRpcError) -> KbmeshError:
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    return from_rpc_error(error, dependency="chunker")


@each_fault
async def test_a_request_that_is_no_message_is_invalid(fault: bytes) -> None:
    async with running(ChunkerApplication(), settings()) as address, open_channel(address) as channel:
        call = channel.unary_unary(f"/{CHUNKER}/Chunk")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            # Field 1 of ChunkRequest is the document, whose own field 1 is text.
            await call(b"\x0a\x05" + fault if fault == LONE_SURROGATE else fault)
        error = refusal(caught.value)
        assert error.reason is Reason.INVALID_FIELD
        assert error.metadata == {"field": "request"}
        assert await call(b"") == b""


@each_fault
async def test_a_request_for_a_stream_that_is_no_message_is_invalid(fault: bytes) -> None:
    application = UndecodableApplication()
    async with running(application, settings()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(channel.unary_stream(f"/{SERVICE}/UnaryStream")(fault)))
    assert refusal(caught.value).reason is Reason.INVALID_FIELD
    assert application.received == []


@each_fault
@each_method
async def test_the_messages_before_a_broken_one_are_served(method: str, fault: bytes) -> None:
    application = UndecodableApplication()
    requests = [good("a"), good("b"), fault, good("c")]
    async with running(application, settings()) as address, open_channel(address) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{method}")(iter(requests))
        assert [await call.read(), await call.read()] == [b"a", b"b"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert refusal(caught.value).reason is Reason.INVALID_FIELD
    assert application.received == ["a", "b"]


@each_fault
async def test_a_broken_message_ends_a_call_with_one_answer(fault: bytes) -> None:
    application = UndecodableApplication()
    async with running(application, settings()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_unary(f"/{SERVICE}/StreamUnary")(iter([good("a"), fault]))
    assert refusal(caught.value).reason is Reason.INVALID_FIELD
    assert application.received == ["a"]
