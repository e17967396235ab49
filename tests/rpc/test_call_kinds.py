"""All four kinds of call go through the same gate, at the server and at the client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from kbmesh_rpc.call import CallContext, current_call, with_call
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Conflict, Reason
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.status import from_rpc_error
from prometheus_client import REGISTRY
from rpc.chunker_application import Context, settings

SERVICE = "test.kinds.v1.KindsService"
FAULT = b"fault"

Call = Callable[[grpc.aio.Channel, list[bytes]], Awaitable[list[bytes]]]


def check(request: bytes) -> bytes:
    if request == FAULT:
        raise Conflict("r", "changed")
    return current_call().request_id.encode() + b":" + request


@dataclass
class KindsApplication:
    """Answers each request with the call's id and the request, in every style that grpc.aio knows."""

    closings: list[str] = field(default_factory=list)

    @property
    def registrations(self) -> list[Registration]:
        handlers = {
            "UnaryUnary": grpc.unary_unary_rpc_method_handler(self.unary_unary),
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self.unary_stream),
            "UnaryStreamWriting": grpc.unary_stream_rpc_method_handler(self.unary_stream_writing),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(self.stream_unary),
            "StreamStream": grpc.stream_stream_rpc_method_handler(self.stream_stream),
            "StreamStreamReading": grpc.stream_stream_rpc_method_handler(self.stream_stream_reading),
        }

        def add(server: grpc.aio.Server) -> None:
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

        return [Registration(name=SERVICE, add=add)]

    async def warm_up(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)

    async def unary_unary(self, request: bytes, _context: Context) -> bytes:
        return check(request)

    async def unary_stream(self, request: bytes, _context: Context) -> AsyncIterator[bytes]:
        try:
            yield check(b"first")
            yield check(request)
        finally:
            self.closings.append("unary_stream")

    async def unary_stream_writing(self, request: bytes, context: Context) -> None:
        await context.write(check(b"first"))
        await context.write(check(request))

    async def stream_unary(self, requests: AsyncIterator[bytes], _context: Context) -> bytes:
        return b",".join([check(request) async for request in requests])

    async def stream_stream(self, requests: AsyncIterator[bytes], _context: Context) -> AsyncIterator[bytes]:
        async for request in requests:
            yield check(request)

    async def stream_stream_reading(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        while True:
            request: Any = await context.read()
            if request is grpc.aio.EOF:
                return
            await context.write(check(request))


async def unary_unary(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.unary_unary(f"/{SERVICE}/UnaryUnary")
    return [await call(request) for request in requests]


async def unary_stream(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.unary_stream(f"/{SERVICE}/UnaryStream")
    return [response async for response in call(requests[-1])]


async def unary_stream_writing(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.unary_stream(f"/{SERVICE}/UnaryStreamWriting")
    return [response async for response in call(requests[-1])]


async def stream_unary(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.stream_unary(f"/{SERVICE}/StreamUnary")
    return (await call(iter(requests))).split(b",")


async def stream_stream(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.stream_stream(f"/{SERVICE}/StreamStream")
    return [response async for response in call(iter(requests))]


async def stream_stream_reading(channel: grpc.aio.Channel, requests: list[bytes]) -> list[bytes]:
    call = channel.stream_stream(f"/{SERVICE}/StreamStreamReading")
    return [response async for response in call(iter(requests))]


each_kind = pytest.mark.parametrize(
    "call",
    [
        unary_unary,
        unary_stream,
        unary_stream_writing,
        stream_unary,
        stream_stream,
        stream_stream_reading,
    ],
    ids=lambda call: call.__name__,
)


def under(deadline: Deadline | None) -> CallContext:
    return CallContext(request_id="r-7", tenant="acme", principals=("ann",), deadline=deadline)


@each_kind
async def test_a_call_is_answered_under_its_callers_id(call: Call) -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        with with_call(under(Deadline.after(60))):
            assert await call(channel, [b"first", b"second"]) == [b"r-7:first", b"r-7:second"]


@each_kind
async def test_an_error_ends_a_call_typed_even_after_its_first_answer(call: Call) -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, [b"first", FAULT])
    assert from_rpc_error(caught.value, dependency="kinds").reason is Reason.CONFLICT


@each_kind
async def test_no_call_begins_without_time_left(call: Call) -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        with with_call(under(Deadline.after(0))), pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(channel, [b"first", b"second"])
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_can_be_written_by_hand() -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        call = channel.stream_stream(f"/{SERVICE}/StreamStream")(metadata=(("kbmesh-request-id", "r-7"),))
        await call.write(b"first")
        assert await call.read() == b"r-7:first"
        await call.write(b"second")
        assert await call.read() == b"r-7:second"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_stream_written_by_hand_without_time_left_tells_its_code() -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        with with_call(under(Deadline.after(0))):
            call = channel.stream_stream(f"/{SERVICE}/StreamStream")()
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"first")
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_whose_reader_leaves_is_closed_at_the_server() -> None:
    application = KindsApplication()
    async with running(application, settings()) as address, open_channel(address) as channel:
        call = channel.unary_stream(f"/{SERVICE}/UnaryStream")(b"second")
        assert await anext(aiter(call))
        call.cancel()
    assert application.closings == ["unary_stream"]


async def test_handlers_without_a_descriptor_are_counted_from_their_first_call() -> None:
    async with running(KindsApplication(), settings()) as address, open_channel(address) as channel:
        await stream_unary(channel, [b"first"])
    labels = {"grpc_type": "client_stream", "grpc_service": SERVICE, "grpc_method": "StreamUnary"}
    handled = REGISTRY.get_sample_value("grpc_server_handled_total", {**labels, "grpc_code": "OK"})
    assert handled is not None
    assert handled >= 1
