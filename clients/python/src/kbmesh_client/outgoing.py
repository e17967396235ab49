"""Documents on their way out of an ingestion, and those that cannot go or need not."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from kbmesh.retriever.v1 import ingestion_pb2

from kbmesh_client.documents import IngestDocument, IngestResult
from kbmesh_client.jobs import DoneDocuments
from kbmesh_client.wire.documents import document_request


class OutgoingDocuments:
    """Keeps the results of the sending side until the receiving side asks for them.

    The two sides run in two threads (or tasks); a deque's append and popleft need no lock.
    """

    def __init__(self, *, max_document_bytes: int, done: DoneDocuments) -> None:
        self._max_document_bytes = max_document_bytes
        self._done = done
        self._unsent: deque[IngestResult] = deque()
        self._kept_error: Exception | None = None

    def prepare(self, document: IngestDocument) -> ingestion_pb2.IngestRequest | None:
        """Gives the message to send, or keeps the result of a document that is not sent."""
        message = document_request(document, max_document_bytes=self._max_document_bytes)
        if isinstance(message, IngestResult):
            self._unsent.append(message)
            return None
        done = self._done.take(document)
        if done is not None:
            self._unsent.append(done)
            return None
        return message

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Ends the stream in good order where the caller's documents raise; gRPC would swallow the error."""
        try:
            yield
        except Exception as error:  # the caller's own; raised again by raise_kept_error
            self._kept_error = error

    def take_unsent(self) -> Iterator[IngestResult]:
        """Gives the results of documents that were not sent, each once."""
        while self._unsent:
            yield self._unsent.popleft()

    def raise_kept_error(self) -> None:
        """Raises what the caller's documents raised, if they did."""
        if self._kept_error is not None:
            raise self._kept_error
