"""What reading a document may cost, and how a document within a document is read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.errors import DocumentTooLarge, DocumentUnreadable, KbmeshError, Reason

from kbmesh_chunker.documents.source import SourceDocument, TextDocument, Warning  # noqa: A004 - the contract's name

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ReadingLimits:
    """Bounds against documents that are small and unpack to much."""

    max_document_bytes: int = 16 * MEBIBYTE
    """A file, and a document within it, at most."""
    max_text_bytes: int = 32 * MEBIBYTE
    """Text that is taken out of one file, at most, in bytes of UTF-8; and what an archive may unpack to."""
    max_depth: int = 8
    """Documents within documents."""
    max_parts: int = 10_000
    """Documents that one file may hold, entries of an archive and attachments included."""
    max_pages: int = 10_000
    """Pages of one document. Those after them are not read, with a warning."""
    max_seconds: float = 60
    """For all of a file."""


@dataclass(kw_only=True)
class _Spent:
    """What was used up so far, counted over all documents within one file."""

    deadline: float
    text_bytes: int = 0
    parts: int = 0


Read = Callable[[SourceDocument, "Reading"], Sequence[TextDocument]]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One reading of one file, with all that is in it."""

    read: Read
    """Reads a document of any type."""
    limits: ReadingLimits
    depth: int = 0
    """How many documents stand around this one."""
    _spent: _Spent = field(repr=False)

    @classmethod
    def begin(cls, read: Read, limits: ReadingLimits) -> "Reading":
        """The reading of a file that is within no other."""
        return cls(read=read, limits=limits, _spent=_Spent(deadline=time.monotonic() + limits.max_seconds))

    def checkpoint(self) -> None:
        """To be called now and then. Raises DocumentUnreadable where reading takes too long."""
        if time.monotonic() > self._spent.deadline:
            raise DocumentUnreadable("", f"reading it took longer than {self.limits.max_seconds:g} s")

    def spend_text(self, size_bytes: int) -> None:
        """Takes text, or bytes that were unpacked, into account. Raises DocumentTooLarge."""
        self._spent.text_bytes += size_bytes
        if self._spent.text_bytes > self.limits.max_text_bytes:
            raise DocumentTooLarge(limit=self.limits.max_text_bytes, actual=self._spent.text_bytes)

    def spend_part(self) -> None:
        """Takes a document within the file into account. Raises DocumentUnreadable where there are too many."""
        self._spent.parts += 1
        if self._spent.parts > self.limits.max_parts:
            raise DocumentUnreadable("", f"it holds more than {self.limits.max_parts} documents")

    def inner(self, source: SourceDocument, *, name: str) -> tuple[Sequence[TextDocument], tuple[Warning, ...]]:
        """Reads a document within this one, which fails alone: it then gives nothing and a warning that names it.

        Raises only what ends the reading as a whole: too much text, too many documents, too long a time.
        """
        self.checkpoint()
        self.spend_part()
        if self.depth + 1 > self.limits.max_depth:
            message = f"{name} is more than {self.limits.max_depth} documents deep and was not read"
            return (), (Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message, metadata={"part": name}),)
        try:
            return self.read(source, replace(self, depth=self.depth + 1)), ()
        except KbmeshError as error:
            self.checkpoint()
            self.spend_text(0)
            self._spent.parts -= 1
            self.spend_part()
            message = f"{name} was not read: {error.message}"
            return (), (Warning(reason=error.reason, message=message, metadata={**error.metadata, "part": name}),)
