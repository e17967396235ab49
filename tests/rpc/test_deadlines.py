"""One deadline runs through all stages."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.call import CallContext, current_call, with_call
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Cancelled, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import CHUNKER, ChunkerApplication, Context, raising, settings, stub

REQUEST = chunker_pb2.ChunkRequest()
ENOUGH_SECONDS = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def call_with(deadline: Deadline | None) -> CallContext:
    return CallContext(request_id="r", tenant="t", principals=(), deadline=deadline)


class Sleeper:
    """A servicer that never answers, and knows whether it was told to stop."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()

    async def chunk(self, _request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        return chunker_pb2.ChunkResponse()


class Witness:
    """A servicer that notes the seconds each call has left."""

    def __init__(self) -> None:
        self.seconds: list[float | None] = []

    async def chunk(self, _request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        self._note()
        return chunker_pb2.ChunkResponse()

    async def chunk_stream(
        self, requests: AsyncIterator[chunker_pb2.ChunkStreamRequest], _context: Context
    ) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
        self._note()
        async for _ in requests:
            yield chunker_pb2.ChunkStreamResponse()

    def _note(self) -> None:
        deadline = current_call().deadline
        self.seconds.append(None if deadline is None else deadline.remaining())


def test_a_deadline_counts_down_to_zero() -> None:
    clock = Clock()
    deadline = Deadline.after(2.0, clock)
    assert (deadline.remaining(), deadline.expired) == (2.0, False)
    assert deadline.less(0.5).remaining() == 1.5
    clock.now += 2.0
    assert (deadline.remaining(), deadline.expired) == (0.0, True)
    clock.now += 1.0
    assert deadline.remaining() == 0.0


async def test_a_unary_call_without_deadline_gets_the_default() -> None:
    sleeper = Sleeper()
    async with (
        running(ChunkerApplication(chunk=sleeper.chunk), settings(default_deadline_seconds=0.05)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST)
    error = from_rpc_error(caught.value, dependency="chunker")
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (error.reason, error.metadata) == (Reason.DEADLINE_EXCEEDED, {"stage": f"{CHUNKER}/Chunk"})
    assert sleeper.stopped.is_set()


async def test_the_default_holds_where_the_servicer_answers_the_cancellation_with_an_error() -> None:
    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Cancelled from None
        return chunker_pb2.ChunkResponse()

    async with (
        running(ChunkerApplication(chunk=chunk), settings(default_deadline_seconds=0.05)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST)
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.DEADLINE_EXCEEDED


async def test_a_servicers_own_timeout_is_not_taken_for_the_deadline() -> None:
    async with (
        running(ChunkerApplication(chunk=raising(TimeoutError())), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST)
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.INTERNAL


async def test_the_callers_deadline_and_not_the_default_is_the_calls() -> None:
    witness = Witness()
    application = ChunkerApplication(chunk=witness.chunk, chunk_stream=witness.chunk_stream)
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        await stub(channel).Chunk(REQUEST)
        await stub(channel).Chunk(REQUEST, timeout=ENOUGH_SECONDS)
        assert [each async for each in stub(channel).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()]))]
        async for _ in stub(channel).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()]), timeout=ENOUGH_SECONDS):
            pass
    default, given, streaming, streaming_given = witness.seconds
    assert default is not None
    assert default <= 10
    assert given is not None
    assert 10 < given <= ENOUGH_SECONDS + 1
    assert streaming is None
    assert streaming_given is not None


@pytest.mark.parametrize(
    ("left", "asked", "expected"),
    [(40.0, None, 39.95), (40.0, 20.0, 20.0), (40.0, 60.0, 39.95), (None, 20.0, 20.0)],
    ids=["none asked", "less asked", "more asked", "no deadline"],
)
async def test_a_call_carries_on_what_is_left_less_a_reserve(
    left: float | None, asked: float | None, expected: float
) -> None:
    witness = Witness()
    application = ChunkerApplication(chunk=witness.chunk)
    current = call_with(None if left is None else Deadline.after(left, Clock()))
    async with running(application, settings()) as address, open_channel(address) as channel:
        with with_call(current):
            await stub(channel).Chunk(REQUEST, timeout=asked)
    [seconds] = witness.seconds
    # gRPC's deadlines travel as a timeout of up to eight digits, rounded up.
    assert seconds == pytest.approx(expected, abs=5.0)
    assert seconds <= expected + 0.1


async def test_a_call_that_has_no_time_left_is_not_sent() -> None:
    witness = Witness()
    application = ChunkerApplication(chunk=witness.chunk, chunk_stream=witness.chunk_stream)
    current = call_with(Deadline.after(0.0, Clock()))
    async with running(application, settings()) as address, open_channel(address) as channel:
        with with_call(current):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub(channel).Chunk(REQUEST)
            with pytest.raises(grpc.aio.AioRpcError):
                async for _ in stub(channel).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()])):
                    pass
    error = from_rpc_error(caught.value, dependency="chunker")
    assert (error.reason, error.metadata) == (Reason.DEADLINE_EXCEEDED, {"stage": "chunker"})
    assert witness.seconds == []


async def test_grp_06_work_ends_downstream_when_the_caller_has_gone() -> None:
    """GRP-06."""
    sleeper = Sleeper()
    async with (
        running(ChunkerApplication(chunk=sleeper.chunk), settings()) as inner_address,
        open_channel(inner_address) as inner,
    ):

        async def forward(request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
            return await stub(inner).Chunk(request)

        async with (
            running(ChunkerApplication(chunk=forward), settings()) as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub(channel).Chunk(REQUEST, timeout=0.5)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert sleeper.started.is_set()
            await sleeper.stopped.wait()


async def test_work_ends_downstream_when_the_caller_cancels() -> None:
    sleeper = Sleeper()
    async with (
        running(ChunkerApplication(chunk=sleeper.chunk), settings()) as inner_address,
        open_channel(inner_address) as inner,
    ):

        async def forward(request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
            return await stub(inner).Chunk(request)

        async with (
            running(ChunkerApplication(chunk=forward), settings()) as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            call = stub(channel).Chunk(REQUEST)
            await sleeper.started.wait()
            call.cancel()
            await sleeper.stopped.wait()


async def test_a_cancelled_task_of_the_servicer_does_not_leave_the_caller_waiting() -> None:
    async with (
        running(ChunkerApplication(chunk=raising(asyncio.CancelledError())), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST)
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.INTERNAL
