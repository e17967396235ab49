"""What is measured: kbmesh's chunker, and what a splitter of another library looks like here."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.media_type import type_by_name
from kbmesh_chunker.documents.reader import TEXT_READERS
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument

from benchmarks.corpus import CorpusFile, Kind

KBMESH = "kbmesh"
JOBS: dict[Strategy, tuple[Kind, ...]] = {
    Strategy.FIXED: (Kind.PROSE, Kind.MARKDOWN, Kind.CODE),
    Strategy.SEMANTIC: (Kind.PROSE, Kind.MARKDOWN),
    Strategy.DOCUMENT: (Kind.MARKDOWN,),
    Strategy.CODE: (Kind.CODE,),
}
"""The files that each strategy is measured on."""
_MEDIA_TYPES = {Strategy.DOCUMENT: "text/markdown"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes in characters, the same for all."""

    size: int = 1500
    overlap: int = 0
    minimum: int = 500
    """Of kbmesh alone: the others know none. A last chunk that is shorter joins the one before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A chunk of a splitter."""

    start: int | None
    """Where it says that its chunk begins; None where it does not say."""
    end: int | None
    text: str
    context: str = ""
    """What it gives along with the text: headings, the header of a table."""


@dataclass(frozen=True, kw_only=True)
class Splitter:
    """A way to cut a file."""

    name: str
    settings: str
    """How it is configured, for the reader."""
    split: Callable[[CorpusFile], Any]
    """What is timed: text to the library's own chunks."""
    cuts: Callable[[Any], Sequence[Cut]]
    """The library's own chunks as ours; not timed."""
    other_job: str = ""
    """Why it does not do the same job as the strategy, so that it is shown and not compared with. Empty where it
    does."""


class KbmeshSplitter:
    """kbmesh's chunker in process: from a text to chunks with spans in code points and bytes, and their SHA-256."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._chunker = Chunker(limits=ReadingLimits(), counter=None, executor=self._executor)

    def close(self) -> None:
        """Ends its thread."""
        self._executor.shutdown()

    def splitter(self, strategy: Strategy, sizes: Sizes) -> Splitter:
        """The splitter of a strategy. Raises FeatureUnsupported where the chunker has none of that name."""
        request = ConfigRequest(strategy=strategy, size=sizes.size, overlap=sizes.overlap, minimum=sizes.minimum)
        self._chunker.check(request)
        media_type = _MEDIA_TYPES.get(strategy, "")

        def split(file: CorpusFile) -> ChunkedDocument:
            # All cut the text as it stands: what has a reader of its own is plain text here.
            read = type_by_name(file.name) in TEXT_READERS or file.name.endswith(".json")
            kind = media_type or ("text/plain" if read else "")
            source = SourceDocument(content=file.text, media_type=kind, filename="" if kind else file.name)
            return self._chunker.chunk_here(source, request)

        def cuts(chunked: ChunkedDocument) -> list[Cut]:
            return [
                Cut(start=chunk.piece.start, end=chunk.piece.end, text=chunk.text, context=chunk.piece.context)
                for chunk in chunked.chunks
            ]

        settings = f"size={sizes.size}, overlap={sizes.overlap}, minimum={sizes.minimum}"
        return Splitter(name=KBMESH, settings=settings, split=split, cuts=cuts)
