"""A worker whose reader of PDFs goes wrong as the document orders."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kbmesh_chunker.documents import reader, reading_worker
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import SourceDocument, SourceType, TextDocument
from kbmesh_rpc.errors import DocumentUnreadable


class _Hostile:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self._path),)


def read_faulty(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """Does what stands behind `%PDF-`."""
    assert isinstance(source.content, bytes)
    order, _, argument = source.content.removeprefix(b"%PDF-").decode().partition(" ")
    match order:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(1_000)
        case "eat":
            hoard = [bytearray(16 * 1024 * 1024) for _ in range(1_000)]
            return [hoard]  # type: ignore[list-item] # never reached: there is not so much memory
        case "unreadable":
            raise DocumentUnreadable(source.media_type, "it is damaged")
        case "recursion":
            return read_faulty(source, reading) if reading.depth else _deep(0)
        case "bug":
            raise ZeroDivisionError
        case "own":
            _say(pickle.dumps(_Hostile(argument)))
            time.sleep(1_000)
        case "babble":
            _say(b"\x80\x04babble")
            time.sleep(1_000)
        case "blank":
            order = " "
    text = order
    return [TextDocument(text=text, media_type=source.media_type, source_type=SourceType.FILE)]


def _deep(depth: int) -> Sequence[TextDocument]:
    return _deep(depth + 1)


def _say(data: bytes) -> None:
    """Answers in the place of the worker, as a document could that has taken it over."""
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, len(data).to_bytes(reading_worker.LENGTH_BYTES, "big") + data)
        except OSError:
            continue


if __name__ == "__main__":
    reader.BINARY_READERS = {"application/pdf": read_faulty}
    sys.argv[0] = reading_worker.__file__
    reading_worker.main()
