"""The process in which documents are read. `python -m kbmesh_chunker.documents.reading_worker` reads what its standard
input asks for until that closes."""

import argparse
import os
import pickle
import signal
import sys
import threading
import traceback
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import count
from queue import SimpleQueue
from typing import IO, Any

from kbmesh_rpc import errors
from kbmesh_rpc.errors import DocumentUnreadable, KbmeshError

from kbmesh_chunker.documents import source as values
from kbmesh_chunker.documents.reader import preload, read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, SourceDocument

READY = b"ready"
BEGUN = b"begun"
OUT_OF_MEMORY = 12
"""The exit code of a worker that has no memory left, as errno calls it."""
LENGTH_BYTES = 8
_OVERTIME_SECONDS = 5
_PR_SET_PDEATHSIG = 1
_DOCUMENTS_OF_A_LIFE = 1_000
"""A worker that has read so many is replaced: what libraries forget to free must not add up."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A document to read."""

    source: SourceDocument
    limits: ReadingLimits


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of it: one of the three."""

    document: ExtractedDocument | None = None
    error: KbmeshError | None = None
    fault: str = ""
    """The traceback of an error that is none of kbmesh's."""
    retire: bool = False
    """Whether the worker is to be replaced, as it is old or holds much memory."""


class _AnswerUnpickler(pickle.Unpickler):
    """Makes nothing but answers: whoever takes a worker over by a hostile document gets no further."""

    def find_class(self, module: str, name: str) -> Any:
        known = _ANSWER_NAMES.get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of an answer")
        return known


_ANSWER_NAMES: dict[tuple[str, str], Any] = {
    **{
        (values.__name__, name): value
        for name, value in vars(values).items()
        if isinstance(value, type) and value.__module__ == values.__name__
    },
    **{(errors.__name__, name): getattr(errors, name) for name in ("Reason", "FieldViolation", "rebuild")},
    # The name that this module has where it is imported; where it runs it is __main__.
    **{(module, "Answer"): Answer for module in (__name__, "__main__")},
}


def load_answer(data: bytes) -> Answer:
    """An answer of a worker. Raises UnpicklingError where it is none."""
    answer = _AnswerUnpickler(BytesIO(data)).load()
    if not isinstance(answer, Answer):
        raise pickle.UnpicklingError("a worker gave no answer")
    return answer


def main() -> None:
    """Reads documents one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    arguments = parser.parse_args()
    _die_with(arguments.parent)
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        # A Ctrl-C in the terminal reaches the whole group; the parent ends its workers once it has drained.
        signal.signal(signal_number, signal.SIG_IGN)
    preload()
    _limit_memory(arguments.memory_bytes)
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    _send(answers, READY)
    for number in count(1):
        request = requests.get()
        _send(answers, BEGUN)
        try:
            answer = _answer(request)
            worn = number >= _DOCUMENTS_OF_A_LIFE or _mapped_bytes() > arguments.memory_bytes // 2
            data = pickle.dumps(replace(answer, retire=worn), protocol=pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            # What is left of this process is not to be trusted.
            os._exit(OUT_OF_MEMORY)
        _send(answers, data)


def _answer(data: bytes) -> Answer:
    request: Request = pickle.loads(data)  # noqa: S301 - from the process that started this one
    # Ends a reading that nobody can end any more, as the parent was killed. It ends the process, whatever it is in.
    signal.setitimer(signal.ITIMER_REAL, request.limits.max_seconds + _OVERTIME_SECONDS)
    try:
        return Answer(document=read(request.source, limits=request.limits))
    except KbmeshError as error:
        return Answer(error=error)
    except RecursionError:
        return Answer(error=DocumentUnreadable(request.source.media_type, "it is nested too deep"))
    except MemoryError:
        raise
    except Exception:  # whatever it is, it belongs to this document
        return Answer(fault=traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _listen(stream: IO[bytes], requests: "SimpleQueue[bytes]") -> None:
    """Takes requests in, and ends the process when nobody can ask any more, even in the middle of a document."""
    while True:
        length = stream.read(LENGTH_BYTES)
        data = stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH_BYTES else b""
        if not data:
            os._exit(0)
        requests.put(data)


def _send(stream: IO[bytes], data: bytes) -> None:
    try:
        stream.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        stream.write(data)
        stream.flush()
    except OSError:
        os._exit(0)


def _limit_memory(size_bytes: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        # macOS has the name and refuses the limit. Time is limited there, and the size of documents.
        return


def _mapped_bytes() -> int:
    """What this process has mapped; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as pages:
            return int(pages.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def _die_with(parent: int) -> None:
    """Has Linux kill this process when its parent dies. Elsewhere it ends when its input closes."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    main()
