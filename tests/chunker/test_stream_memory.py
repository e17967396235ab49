"""A long text passes through the chunker's process in memory that stays flat."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh_rpc.channel import open_channel

MEBIBYTE = 1024 * 1024
MOST_MEBIBYTES = 300
TELLS_MEMORY = Path("/proc/self/status").exists()
KINDS = {
    "lines": b"Some words of a long file, and then some more. They go on.\nAnother line.\n\n",
    "one line": b"Some words of a long file, and then some more. They go on. ",
    "one word": b"abcdefghij",
    "blanks": b" ",
    "blank lines": b"\n",
    "marks": "e\u0301\u0301".encode(),
    "four bytes": "👩‍👩‍👧".encode(),
}


def requests(kind: str, strategy: pb.Strategy.ValueType, mebibytes: int) -> Iterator[pb.ChunkStreamRequest]:
    document = pb.Document(media_type="text/plain")
    yield pb.ChunkStreamRequest(
        header=pb.ChunkStreamHeader(document=document, config=pb.ChunkingConfig(strategy=strategy, size=6_000))
    )
    unit = KINDS[kind]
    yield pb.ChunkStreamRequest(part=b"The first words. ")
    part = pb.ChunkStreamRequest(part=(unit * (MEBIBYTE // len(unit) + 1)))
    for _ in range(mebibytes):
        yield part
    yield pb.ChunkStreamRequest(part=b"The last words.")


async def peak_mebibytes(pid: int) -> int:
    """The most memory that a process had resident so far."""
    status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024


@pytest.fixture
async def server(free_port: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A chunker in a process of its own, and its address."""
    if not TELLS_MEMORY:
        pytest.skip("memory is read from /proc")
    environment = {
        "KBMESH_HOST": "127.0.0.1",
        "KBMESH_PORT": str(free_port),
        "KBMESH_METRICS_PORT": "0",
        "KBMESH_READING_PROCESSES": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kbmesh_chunker", env=environment, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    drained = asyncio.create_task(_drain(process))
    try:
        yield process, f"127.0.0.1:{free_port}"
    finally:
        process.terminate()
        await process.wait()
        await drained


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.readline():
        pass


async def _stream(address: str, kind: str, strategy: pb.Strategy.ValueType, mebibytes: int) -> None:
    async with open_channel(address, max_message_bytes=8 * MEBIBYTE) as channel:
        stub: chunker_pb2_grpc.ChunkerServiceAsyncStub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        answers = stub.ChunkStream(requests(kind, strategy, mebibytes), timeout=3_000, wait_for_ready=True)
        count = 0
        first = last = ""
        async for answer in answers:
            if answer.HasField("summary"):
                assert answer.summary.total == count
                assert answer.summary.text_characters > mebibytes * MEBIBYTE // 8
                break
            first, last, count = first or answer.chunk.text, answer.chunk.text, count + 1
        assert first.startswith("The first words.")
        assert last.endswith("The last words.")


@pytest.mark.parametrize("kind", ["lines", "blanks"])
async def test_24_mib(server: tuple[asyncio.subprocess.Process, str], kind: str) -> None:
    process, address = server
    await _stream(address, kind, pb.STRATEGY_SEMANTIC, 24)
    assert await peak_mebibytes(process.pid) < MOST_MEBIBYTES


@pytest.mark.soak
@pytest.mark.parametrize("strategy", [pb.STRATEGY_FIXED, pb.STRATEGY_SEMANTIC])
@pytest.mark.parametrize("kind", KINDS)
async def test_200_mib(
    server: tuple[asyncio.subprocess.Process, str], kind: str, strategy: pb.Strategy.ValueType
) -> None:
    process, address = server
    await _stream(address, kind, strategy, 200)
    assert await peak_mebibytes(process.pid) < MOST_MEBIBYTES
