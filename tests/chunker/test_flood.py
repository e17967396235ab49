"""More documents than a chunker has room for: it says so, and when to come back, and loses none."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh_chunker.admission import Admission, WaitingFull
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error

WORDS = "Some words of a document that many send at once. " * 2_000


def check_refusal(error: grpc.aio.AioRpcError, limit: int) -> None:
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    known = from_rpc_error(error, dependency="chunker")
    assert known.reason is Reason.QUEUE_FULL
    assert int(known.metadata["limit"]) == limit
    assert int(known.metadata["queued_bytes"]) <= limit
    assert known.retry_after_seconds is not None


async def test_a_flood_is_told_when_to_come_back_and_nothing_is_lost() -> None:
    settings = ChunkerSettings(port=0, reading_processes=0, max_waiting_bytes=3 * len(WORDS))
    refused = 0

    async def send(stub: "chunker_pb2_grpc.ChunkerServiceAsyncStub", number: int) -> pb.ChunkResponse:
        nonlocal refused
        text = f"Document {number}. {WORDS}"
        while True:
            try:
                return await stub.Chunk(pb.ChunkRequest(document=pb.Document(text=text)), timeout=60)
            except grpc.aio.AioRpcError as error:
                check_refusal(error, settings.max_waiting_bytes)
                refused += 1
                # A test need not be as patient as a caller should be.
                await asyncio.sleep(0.02)

    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        stub: chunker_pb2_grpc.ChunkerServiceAsyncStub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        responses = await asyncio.gather(*(send(stub, number) for number in range(24)))
    assert refused > 0
    for number, response in enumerate(responses):
        assert response.chunks[0].text.startswith(f"Document {number}. ")
        assert response.chunks[-1].span.end == response.summary.text_characters - 1
    assert {response.summary.total for response in responses} == {responses[0].summary.total}


async def test_one_that_is_larger_than_the_room_is_taken_where_nothing_waits() -> None:
    with ThreadPoolExecutor(1) as executor:
        chunker = Chunker(
            limits=ReadingLimits(), counter=None, executor=executor, admission=Admission(limit_bytes=1_000)
        )
        source = SourceDocument(content=WORDS)
        chunked = await chunker.chunk(source, ConfigRequest(), deadline=None)
        assert len(chunked.chunks) > 10
        outcomes = await asyncio.gather(
            *(chunker.chunk(source, ConfigRequest(), deadline=None) for _ in range(3)), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes[1:]] == [WaitingFull, WaitingFull]
    assert chunker.admission.waiting_bytes == 0


async def test_what_waited_until_its_deadline_leaves_before_it_is_read() -> None:
    now = [0.0]
    blocked = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor)
        # The one thread is busy until the deadline has passed.
        executor.submit(blocked.wait, 60)
        # Bytes that are no text, too many to be looked at at once: reading them would fail in another way.
        source = SourceDocument(content=b"\x00" * 1_000_000)
        deadline = Deadline.after(1.0, lambda: now[0])
        call = asyncio.create_task(chunker.chunk(source, ConfigRequest(), deadline=deadline))
        await asyncio.sleep(0)
        now[0] = 2.0
        blocked.set()
        with pytest.raises(DeadlineExceeded):
            await call
    assert chunker.admission.waiting_bytes == 0
