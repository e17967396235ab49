"""Documents are read in processes that may die of them."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest
from kbmesh_chunker.documents.reader import parsed_type
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.reading_process import ReadingFault, ReadingProcesses
from kbmesh_chunker.documents.source import Grammar, SourceDocument
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    DependencyUnavailable,
    DocumentEmpty,
    DocumentUnreadable,
    Reason,
    ShuttingDown,
)
from kbmesh_rpc.server import running
from reportlab.pdfgen.canvas import Canvas

one_loop = pytest.mark.asyncio(loop_scope="module")

GIBIBYTE = 1024**3
FAULTY = (sys.executable, str(Path(__file__).with_name("faulty_worker.py")))
GOOD = SourceDocument(content=b"%PDF-ok", filename="good.pdf")


def pdf(fault: str) -> SourceDocument:
    """A document that the worker of these tests takes for an order to go wrong."""
    return SourceDocument(content=b"%PDF-" + fault.encode(), filename="bad.pdf")


@asynccontextmanager
async def reading(
    executor: Executor, *, processes: int = 1, memory_bytes: int = GIBIBYTE, seconds: float = 30
) -> AsyncIterator[ReadingProcesses]:
    limits = ReadingLimits(max_seconds=seconds, max_document_bytes=1_000_000)
    reader = ReadingProcesses(
        limits=limits, processes=processes, memory_bytes=memory_bytes, executor=executor, command=FAULTY
    )
    try:
        await reader.start()
        yield reader
    finally:
        await reader.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(executor: Executor) -> AsyncIterator[ReadingProcesses]:
    """One place for one process, which each test finds with a process in it, however the test before it went."""
    async with reading(executor) as reader:
        yield reader


async def begun(reader: ReadingProcesses) -> None:
    """Waits until the only process is at work."""
    while reader.pids:  # noqa: ASYNC110 - a port tells nobody what it is doing
        await asyncio.sleep(0.01)


async def text_of(reader: ReadingProcesses, source: SourceDocument) -> str:
    return (await reader.read(source, deadline=Deadline.after(60))).text


@one_loop
async def test_a_document_that_crashes_its_parser_fails_alone(executor: Executor) -> None:
    async with reading(executor, processes=2) as reader:
        sources = [GOOD, pdf("crash"), GOOD, pdf("exit"), GOOD, GOOD]
        results = await asyncio.gather(*(text_of(reader, source) for source in sources), return_exceptions=True)
        assert [result for result in results if isinstance(result, str)] == ["ok"] * 4
        failures = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(failure, DocumentUnreadable) for failure in failures)
        assert await text_of(reader, GOOD) == "ok"


@one_loop
async def test_a_process_that_is_killed_in_the_middle_is_replaced(reader: ReadingProcesses) -> None:
    (pid,) = reader.pids
    call = asyncio.create_task(text_of(reader, pdf("hang")))
    await begun(reader)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(DocumentUnreadable):
        await call
    assert await text_of(reader, GOOD) == "ok"
    assert reader.pids != [pid]


@one_loop
async def test_a_process_that_died_while_it_waited_fails_no_more_than_one_document(reader: ReadingProcesses) -> None:
    os.kill(reader.pids[0], signal.SIGKILL)
    assert await text_of(reader, GOOD) == "ok"


@one_loop
async def test_a_reader_that_hangs_is_ended_at_its_limit(executor: Executor) -> None:
    async with reading(executor, seconds=0.2) as reader:
        with pytest.raises(DocumentUnreadable) as caught:
            await text_of(reader, pdf("hang"))
        assert caught.value.metadata["media_type"] == "application/pdf"
        assert await text_of(reader, GOOD) == "ok"


@one_loop
async def test_a_call_ends_at_its_deadline_and_so_does_the_process(reader: ReadingProcesses) -> None:
    (pid,) = reader.pids
    with pytest.raises(DeadlineExceeded):
        await reader.read(pdf("hang"), deadline=Deadline.after(0.2))
    assert await text_of(reader, GOOD) == "ok"
    assert is_gone(pid)


@one_loop
async def test_a_caller_that_leaves_takes_its_reading_along(reader: ReadingProcesses) -> None:
    (pid,) = reader.pids
    call = asyncio.create_task(text_of(reader, pdf("hang")))
    await begun(reader)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await text_of(reader, GOOD) == "ok"
    assert is_gone(pid)


@one_loop
async def test_who_waits_for_a_process_leaves_the_queue_at_the_deadline(reader: ReadingProcesses) -> None:
    busy = asyncio.create_task(text_of(reader, pdf("hang")))
    await begun(reader)
    with pytest.raises(DeadlineExceeded):
        await reader.read(GOOD, deadline=Deadline.after(0.1))
    waiting = asyncio.create_task(text_of(reader, GOOD))
    await asyncio.sleep(0)
    waiting.cancel()
    busy.cancel()
    await asyncio.gather(waiting, busy, return_exceptions=True)
    assert await text_of(reader, GOOD) == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to a bound of its memory")
@one_loop
async def test_memory_is_bounded(reader: ReadingProcesses) -> None:
    with pytest.raises(DocumentUnreadable):
        await text_of(reader, pdf("eat"))
    assert await text_of(reader, GOOD) == "ok"


@one_loop
async def test_errors_come_back_with_their_type(reader: ReadingProcesses) -> None:
    (pid,) = reader.pids
    with pytest.raises(DocumentUnreadable) as caught:
        await text_of(reader, pdf("unreadable"))
    assert caught.value.metadata == {"media_type": "application/pdf"}
    with pytest.raises(DocumentEmpty):
        await text_of(reader, pdf("blank"))
    with pytest.raises(DocumentUnreadable):
        await text_of(reader, pdf("recursion"))
    assert reader.pids == [pid]


@one_loop
async def test_an_error_nobody_foresaw_is_for_the_log_in_full(reader: ReadingProcesses) -> None:
    with pytest.raises(ReadingFault, match="ZeroDivisionError"):
        await text_of(reader, pdf("bug"))


@one_loop
async def test_a_hostile_answer_runs_nothing(reader: ReadingProcesses, tmp_path: Path) -> None:
    mark = tmp_path / "owned"
    with pytest.raises(DocumentUnreadable):
        await text_of(reader, pdf(f"own {mark}"))
    with pytest.raises(DocumentUnreadable):
        await text_of(reader, pdf("babble"))
    assert not mark.exists()
    assert await text_of(reader, GOOD) == "ok"


@one_loop
async def test_plain_text_is_read_without_a_process(executor: Executor) -> None:
    limits = ReadingLimits()
    reader = ReadingProcesses(limits=limits, processes=1, memory_bytes=GIBIBYTE, executor=executor, command=("/none",))
    assert (await reader.read(SourceDocument(content=b"plain"), deadline=None)).text == "plain"
    with pytest.raises(DependencyUnavailable):
        await reader.read(GOOD, deadline=None)
    with pytest.raises(DependencyUnavailable):
        await reader.start()
    await reader.close()


@one_loop
async def test_a_closed_reader_reads_no_more(executor: Executor) -> None:
    async with reading(executor) as reader:
        pids = list(reader.pids)
        await reader.close()
        with pytest.raises(ShuttingDown):
            await reader.read(GOOD, deadline=None)
    assert all(is_gone(pid) for pid in pids)


@one_loop
async def test_the_chunker_reads_through_it(reader: ReadingProcesses, executor: Executor) -> None:
    chunker = Chunker(limits=ReadingLimits(), counter=None, executor=executor, reader=reader)
    request = ConfigRequest()
    with pytest.raises(DocumentUnreadable) as caught:
        await chunker.chunk(pdf("exit"), request, deadline=None)
    assert caught.value.reason is Reason.DOCUMENT_UNREADABLE
    chunked = await chunker.chunk(GOOD, request, deadline=None)
    assert [chunk.text for chunk in chunked.chunks] == ["ok"]


@pytest.mark.parametrize("state", ["waiting", "reading"])
def test_no_process_outlives_a_chunker_that_is_killed(state: str) -> None:
    script = Path(__file__).with_name("reading_parent.py")
    with subprocess.Popen([sys.executable, script, *FAULTY, state], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 10
    while not is_gone(worker):
        assert time.monotonic() < until, "the worker lives on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("source", "media_type"),
    [
        (SourceDocument(content=b"%PDF-1.7"), "application/pdf"),
        (SourceDocument(content=b"damaged", media_type="application/pdf"), "application/pdf"),
        (SourceDocument(content=b"From: a\r\n\r\nb", media_type="message/rfc822"), "message/rfc822"),
        (SourceDocument(content='[{"ts": "1.2", "user": "U", "text": "t"}]'), "application/json"),
        (SourceDocument(content="From: a\n\nb", grammar=Grammar.MAIL), "message/rfc822"),
        (SourceDocument(content="plain"), ""),
        (SourceDocument(content=b"# Title\n\n- one", filename="a.md"), ""),
        (SourceDocument(content=b"\xff\xfep\x00l\x00"), ""),
        (SourceDocument(content=b'{"a": 1}', filename="a.json"), ""),
        (SourceDocument(content=b"def f(): pass", filename="a.py"), ""),
        (SourceDocument(content=b"\x89PNG\r\n\x1a\n"), "image/png"),
    ],
)
def test_what_needs_a_parser(source: SourceDocument, media_type: str) -> None:
    assert parsed_type(source) == media_type


def is_gone(pid: int) -> bool:
    """Whether a process has ended. One whose parent has died may stay in the table for a while."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not Path("/proc").exists()


async def test_a_server_reads_pdf_and_ends_its_processes() -> None:
    buffer = io.BytesIO()
    canvas = Canvas(buffer)
    canvas.drawString(72, 700, "read in another process")
    canvas.save()
    settings = ChunkerSettings(port=0, reading_processes=1)
    application = ChunkerApplication(settings)
    async with running(application, settings) as address, open_channel(address) as channel:
        stub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        response = await stub.Chunk(pb.ChunkRequest(document=pb.Document(data=buffer.getvalue())), timeout=60)
    assert [chunk.text for chunk in response.chunks] == ["read in another process"]
    assert list(response.chunks[0].pages) == [1]


@one_loop
async def test_a_process_that_is_ended_while_the_server_warms_up_is_started_again(
    executor: Executor, tmp_path: Path
) -> None:
    """The first one that starts is gone at once."""
    marker = tmp_path / "started"
    script = f'if [ -e "{marker}" ]; then exec "$@"; else : > "{marker}"; kill -9 $$; fi'
    reader = ReadingProcesses(
        limits=ReadingLimits(),
        processes=1,
        memory_bytes=GIBIBYTE,
        executor=executor,
        command=("/bin/sh", "-c", script, "sh", *FAULTY),
    )
    try:
        await reader.start()
        assert await text_of(reader, GOOD) == "ok"
    finally:
        await reader.close()
