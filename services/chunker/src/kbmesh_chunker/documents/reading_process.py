"""Reading documents in processes of their own: a document that crashes its parser, hangs it or eats memory costs that
process alone."""

import asyncio
import contextlib
import functools
import os
import pickle
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, DocumentUnreadable, ShuttingDown
from kbmesh_rpc.logs import get_logger
from prometheus_client import Counter

from kbmesh_chunker.documents import reading_worker
from kbmesh_chunker.documents.reader import check_size, parsed_type, read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.reading_worker import (
    BEGUN,
    LENGTH_BYTES,
    OUT_OF_MEMORY,
    READY,
    Answer,
    Request,
    load_answer,
)
from kbmesh_chunker.documents.source import ExtractedDocument, SourceDocument

logger = get_logger(__name__)

DEATHS = Counter(
    "kbmesh_chunker_reading_deaths_total", "Processes that died of the document they read, or were ended over time."
)

# -P: the folder the chunker was started in is no place to import from.
WORKER_COMMAND = (sys.executable, "-P", "-m", reading_worker.__name__)
START_SECONDS = 60.0
_ANSWERING_SECONDS = 1.0
"""How much longer than its limit a worker may take to say itself that the limit was reached."""
_MORE_STARTS = 2
_LARGE = 256 * 1024


class ReadingFault(Exception):
    """A reader failed in a way nobody foresaw. Holds the traceback of the worker."""


class WorkerDied(Exception):
    """The process ended without an answer."""

    def __init__(self, code: int) -> None:
        """`code` is what it ended with, minus the number of the signal that ended it."""
        super().__init__(code)
        self.code = code


class Worker:
    """A process that reads one document at a time."""

    def __init__(
        self, process: asyncio.subprocess.Process, requests: asyncio.StreamWriter, answers: asyncio.StreamReader
    ):
        self._process = process
        self._requests = requests
        self._answers = answers

    @classmethod
    async def start(cls, command: Sequence[str], *, memory_bytes: int) -> "Worker":
        """A worker that is ready. Raises DependencyUnavailable."""
        arguments = ("--parent", str(os.getpid()), "--memory-bytes", str(memory_bytes))
        try:
            process = await asyncio.create_subprocess_exec(*command, *arguments, stdin=PIPE, stdout=PIPE)
        except OSError as error:
            raise DependencyUnavailable("reading process", f"it cannot be started: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        worker = cls(process, process.stdin, process.stdout)
        try:
            async with asyncio.timeout(START_SECONDS):
                ready = await worker._receive()
        except (WorkerDied, TimeoutError) as error:
            worker.kill()
            await worker.ended()
            raise DependencyUnavailable("reading process", "it did not get ready") from error
        except BaseException:
            worker.kill()
            await worker.ended()
            raise
        if ready != READY:
            worker.kill()
            await worker.ended()
            raise DependencyUnavailable("reading process", "it says something else than that it is ready")
        return worker

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def take(self, request: Request) -> bool:
        """Gives it a document. Whether it has begun to read: not where it had died before."""
        data = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            self._requests.write(len(data).to_bytes(LENGTH_BYTES, "big"))
            self._requests.write(data)
            await self._requests.drain()
            return await self._receive() == BEGUN
        except (ConnectionError, RuntimeError, WorkerDied):
            return False

    async def answer(self) -> Answer:
        """What became of the document. Raises WorkerDied, and UnpicklingError or the like where the answer is none."""
        data = await self._receive()
        return await asyncio.to_thread(load_answer, data) if len(data) > _LARGE else load_answer(data)

    async def _receive(self) -> bytes:
        try:
            length = await self._answers.readexactly(LENGTH_BYTES)
            return await self._answers.readexactly(int.from_bytes(length, "big"))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.kill()
            raise WorkerDied(await self.ended()) from error

    def kill(self) -> None:
        """Ends it, whatever it is doing."""
        self._requests.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Waits until it has ended and gives its exit code, minus the number of the signal that ended it."""
        return await self._process.wait()


@dataclass
class _Place:
    """Where a worker works; empty where it must be started first."""

    worker: Worker | None = None


class ReadingProcesses:
    """Reads documents that need a parser in processes, and others in the threads of this one. A DocumentReader."""

    def __init__(
        self,
        *,
        limits: ReadingLimits,
        processes: int,
        memory_bytes: int,
        executor: Executor,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """`processes` documents are read at once; others wait. `memory_bytes` bounds what each process may map."""
        self._limits = limits
        self._memory_bytes = memory_bytes
        self._executor = executor
        self._command = command
        self._places = [_Place() for _ in range(processes)]
        self._idle: asyncio.Queue[_Place] = asyncio.Queue()
        for place in self._places:
            self._idle.put_nowait(place)
        self._dying: set[Worker] = set()
        self._renewals: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> Sequence[int]:
        """Of the processes that wait for a document."""
        return [place.worker.pid for place in self._places if place.worker is not None]

    async def start(self) -> None:
        """Starts all processes, so that no document waits for that. Raises DependencyUnavailable where one does not
        start, whatever is tried."""
        for last in [*[False] * _MORE_STARTS, True]:
            results = await asyncio.gather(*(self._fill(place) for place in self._places), return_exceptions=True)
            failures = [result for result in results if isinstance(result, BaseException)]
            if not failures:
                return
            if last or not isinstance(failures[0], DependencyUnavailable):
                raise failures[0]
            # Somebody may have ended it; that is no reason to serve nobody.
            logger.warning("a reading process did not start", error=failures[0].message)

    async def read(self, source: SourceDocument, *, deadline: Deadline | None) -> ExtractedDocument:
        """Raises what `read` raises and DeadlineExceeded; DocumentUnreadable where a process died of the document."""
        media_type = parsed_type(source)
        if not media_type:
            call = functools.partial(read, source, limits=self._limits)
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        if isinstance(source.content, bytes):
            check_size(len(source.content), self._limits.max_document_bytes)
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining()):
                answer = await self._answer(Request(source=source, limits=self._limits), media_type)
        except TimeoutError as error:
            raise DeadlineExceeded(stage="reading") from error
        if answer.error is not None:
            raise answer.error
        if answer.document is None:
            raise ReadingFault(answer.fault)
        return answer.document

    async def _answer(self, request: Request, media_type: str) -> Answer:
        place = await self._idle.get()
        try:
            if self._closed:
                raise ShuttingDown
            return await self._ask(place, request, media_type)
        finally:
            self._give_back(place)

    async def _ask(self, place: _Place, request: Request, media_type: str) -> Answer:
        seconds = request.limits.max_seconds
        try:
            async with asyncio.timeout(seconds + _ANSWERING_SECONDS) as limit:
                return await self._at_work(place, request)
        except TimeoutError as error:
            if not limit.expired():
                raise
            DEATHS.inc()
            raise DocumentUnreadable(media_type, f"reading it took longer than {seconds:g} s") from error
        except WorkerDied as error:
            DEATHS.inc()
            logger.warning("a reading process died", exit_code=error.code, media_type=media_type)
            message = "the process that read it died of it"
            if error.code == OUT_OF_MEMORY:
                message = f"reading it takes more than {self._memory_bytes} bytes of memory"
            raise DocumentUnreadable(media_type, message) from error
        except (pickle.UnpicklingError, AttributeError, EOFError, IndexError, TypeError, ValueError) as error:
            logger.error("a reading process gave no answer that can be read", media_type=media_type)
            raise DocumentUnreadable(media_type, "the process that read it gave no answer") from error

    async def _at_work(self, place: _Place, request: Request) -> Answer:
        """The worker of a place is in it only while it waits. One that was broken off in its work is ended."""
        worker = await self._fill(place)
        place.worker = None
        try:
            if not await worker.take(request):
                # It had died before; of what, this document does not know.
                self._end(worker)
                worker = await Worker.start(self._command, memory_bytes=self._memory_bytes)
                if not await worker.take(request):
                    raise WorkerDied(await worker.ended())
            answer = await worker.answer()
            if not answer.retire:
                place.worker = worker
        finally:
            if place.worker is None:
                self._end(worker)
        return answer

    def _end(self, worker: Worker) -> None:
        worker.kill()
        self._dying.add(worker)

    async def _bury(self) -> None:
        """Waits for those that were killed: the system keeps them until somebody does."""
        for worker in list(self._dying):
            await worker.ended()
            self._dying.discard(worker)

    async def _fill(self, place: _Place) -> Worker:
        if place.worker is None:
            place.worker = await Worker.start(self._command, memory_bytes=self._memory_bytes)
        return place.worker

    def _give_back(self, place: _Place) -> None:
        """Lets the next document in; a process that is gone is replaced first."""
        if place.worker is not None or self._closed:
            self._idle.put_nowait(place)
            return
        task = asyncio.create_task(self._renew(place))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, place: _Place) -> None:
        try:
            await self._bury()
            await self._fill(place)
        except DependencyUnavailable as error:
            # Whoever comes next tries again, and is told.
            logger.error("a reading process was not replaced", error=error.message)
        finally:
            self._idle.put_nowait(place)

    async def close(self) -> None:
        """Ends all processes. Whoever waits for one is told that the server is shutting down."""
        self._closed = True
        renewals = list(self._renewals)
        for task in renewals:
            task.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)
        for place in self._places:
            if place.worker is not None:
                self._end(place.worker)
                place.worker = None
        await self._bury()
