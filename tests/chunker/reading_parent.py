"""A process with a worker, to be killed: `reading_parent.py PYTHON WORKER waiting|reading` prints the worker's pid."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.reading_process import ReadingProcesses
from kbmesh_chunker.documents.source import SourceDocument


async def main(command: list[str], state: str) -> None:
    """Runs until it is killed."""
    with ThreadPoolExecutor(1) as executor:
        reader = ReadingProcesses(
            limits=ReadingLimits(), processes=1, memory_bytes=2**30, executor=executor, command=command
        )
        await reader.start()
        (pid,) = reader.pids
        if state == "reading":
            call = asyncio.create_task(reader.read(SourceDocument(content=b"%PDF-hang"), deadline=None))
            while reader.pids:  # noqa: ASYNC110 - a port tells nobody what it is doing
                await asyncio.sleep(0.01)
            sys.stdout.write(f"{pid}\n")
            sys.stdout.flush()
            await call
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        await asyncio.sleep(1_000)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:-1], sys.argv[-1]))
