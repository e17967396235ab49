"""Work whose caller has gone ends."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Cancelled, DeadlineExceeded

LONG = SourceDocument(content="word " * 150_000)
SMALL_CHUNKS = ConfigRequest(strategy=Strategy.FIXED, size=32)


class RecordingExecutor(ThreadPoolExecutor):
    """Remembers what it was given to do, and tells when the second thing, which is the cutting, begins."""

    def __init__(self) -> None:
        super().__init__(1)
        self.futures: list[Future[Any]] = []
        self.cutting = threading.Event()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        def begun() -> Any:
            self.cutting.set()
            return function(*arguments, **keywords)

        self.futures.append(super().submit(begun))
        return self.futures[-1]


async def test_a_caller_that_leaves_frees_the_thread() -> None:
    with RecordingExecutor() as executor:
        chunker = Chunker(limits=ReadingLimits(max_document_bytes=1_000_000), counter=None, executor=executor)
        call = asyncio.create_task(chunker.chunk(LONG, SMALL_CHUNKS, deadline=None))
        await asyncio.to_thread(executor.cutting.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        ended = await asyncio.to_thread(executor.futures[0].exception)
        assert isinstance(ended, Cancelled)


async def test_a_deadline_that_passes_meanwhile_ends_the_work() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    with RecordingExecutor() as executor:
        chunker = Chunker(limits=ReadingLimits(max_document_bytes=1_000_000), counter=None, executor=executor)
        with pytest.raises(DeadlineExceeded):
            await chunker.chunk(LONG, SMALL_CHUNKS, deadline=Deadline.after(0.1, clock))
        assert isinstance(executor.futures[-1].exception(), DeadlineExceeded)
