"""Documents on their way out of an ingestion: those that cannot go, need not, or have to go again."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from kbmesh.retriever.v1 import ingestion_pb2

from kbmesh_client.documents import IngestDocument, IngestResult
from kbmesh_client.jobs import DoneDocuments
from kbmesh_client.wire.documents import document_request


class OutgoingDocuments:
    """Keeps what was sent until its result has come, and the results of what was not sent until somebody asks.

    An ingestion may need several streams, one after another: what has no result yet goes again over the next. The
    sender of a stream that broke off may still be waiting for the caller's next document; what it gets then goes over
    the next stream too. Sender and receiver run in two threads (or tasks). A deque's append and popleft need no lock;
    only one sender at a time reads documents.
    """

    def __init__(self, *, max_document_bytes: int, done: DoneDocuments) -> None:
        self._max_document_bytes = max_document_bytes
        self._done = done
        self._unsent: deque[IngestResult] = deque()
        self._kept_error: Exception | None = None
        self._ended = False
        self._stream = 0
        self._sending_stream = 0
        self._again: deque[ingestion_pb2.IngestRequest] = deque()
        self._awaiting: dict[str, deque[ingestion_pb2.IngestRequest]] = {}
        self._thread_turn = threading.Lock()
        self._task_turn = asyncio.Lock()
        self._reading: asyncio.Future[IngestDocument | None] | None = None
        self._mutex = threading.Lock()

    def begin_stream(self) -> int:
        """The number of a new stream. Whoever still sends for an older one sends nothing more."""
        self._stream += 1
        return self._stream

    def messages(self, documents: Iterator[IngestDocument], stream: int) -> Iterator[ingestion_pb2.IngestRequest]:
        """The messages of a stream: first what an older one has no result for."""
        while True:
            with self._thread_turn:
                message = self._sent_before(stream)
                while message is None and self._reads(stream):
                    with self._keeping_errors():
                        message = self._prepare(next(documents, None))
            if message is None or stream != self._stream:
                return
            yield message

    async def messages_async(
        self, documents: AsyncIterator[IngestDocument], stream: int
    ) -> AsyncIterator[ingestion_pb2.IngestRequest]:
        """As `messages`."""
        while True:
            async with self._task_turn:
                message = self._sent_before(stream)
                while message is None and self._reads(stream):
                    with self._keeping_errors():
                        message = self._prepare(await self._next(documents))
            if message is None or stream != self._stream:
                return
            yield message

    async def stop_reading(self) -> None:
        """Waits no longer for the caller's next document."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def answered(self, external_id: str) -> None:
        """The result of a document has come."""
        with self._mutex:
            sent = self._awaiting.get(external_id)
            if sent is not None:
                sent.popleft()
                if not sent:
                    del self._awaiting[external_id]

    def take_unsent(self) -> Iterator[IngestResult]:
        """Gives the results of documents that were not sent, each once."""
        while self._unsent:
            yield self._unsent.popleft()

    def raise_kept_error(self) -> None:
        """Raises what the caller's documents raised, if they did."""
        if self._kept_error is not None:
            raise self._kept_error

    async def _next(self, documents: AsyncIterator[IngestDocument]) -> IngestDocument | None:
        """The next document. gRPC cancels the sender of a stream that broke off: the document must not go with it."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(anext(documents, None))
        reading = self._reading
        await asyncio.wait([reading])
        self._reading = None
        return reading.result()

    def _reads(self, stream: int) -> bool:
        return stream == self._stream and not self._ended

    def _sent_before(self, stream: int) -> ingestion_pb2.IngestRequest | None:
        """The next message that a stream before this one was given in vain."""
        if stream == self._stream and stream != self._sending_stream:
            self._sending_stream = stream
            with self._mutex:
                self._again = deque(message for sent in self._awaiting.values() for message in sent)
        if stream != self._stream or not self._again:
            return None
        return self._again.popleft()

    def _prepare(self, document: IngestDocument | None) -> ingestion_pb2.IngestRequest | None:
        """The message to send. None at the end of the documents, and for one that is not sent: its result is kept."""
        if document is None:
            self._ended = True
            return None
        message = document_request(document, max_document_bytes=self._max_document_bytes)
        if isinstance(message, IngestResult):
            self._unsent.append(message)
            return None
        done = self._done.take(document)
        if done is not None:
            self._unsent.append(done)
            return None
        with self._mutex:
            self._awaiting.setdefault(document.external_id, deque()).append(message)
        return message

    @contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        """Ends the documents in good order where the caller's raise; gRPC would swallow the error."""
        try:
            yield
        except Exception as error:  # the caller's own; raised again by raise_kept_error
            self._kept_error = error
            self._ended = True
