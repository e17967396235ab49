"""A process for test_drain.py, test_warm_up.py and test_tls.py: a chunker whose calls wait for a file to appear, or
start a process."""

import asyncio
import os
from pathlib import Path

from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.server import run
from kbmesh_rpc.settings import ServerSettings, load_settings
from rpc.chunker_application import ChunkerApplication, Context

GATE = Path(os.environ["TEST_GATE"])


async def appears(name: str) -> None:
    while not (GATE / name).exists():  # noqa: ASYNC110 - it is the test, another process, that makes the file
        await asyncio.sleep(0.01)


async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
    get_logger(__name__).info("begun", loop=type(asyncio.get_running_loop()).__module__)
    if "TEST_SPAWNS" in os.environ:
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()
        return chunker_pb2.ChunkResponse()
    await appears("answer")
    return chunker_pb2.ChunkResponse()


class SlowApplication(ChunkerApplication):
    async def warm_up(self) -> None:
        if "TEST_MODEL" in os.environ:
            (GATE / os.environ["TEST_MODEL"]).read_bytes()
        await appears("warm")

    async def close(self) -> None:
        (GATE / "closed").touch()


async def make(_settings: ServerSettings) -> SlowApplication:
    return SlowApplication(chunk=chunk)


if __name__ == "__main__":
    run(make, load_settings(ServerSettings, service="slow"))
