"""What a strategy is. A new one is a module with a class like this and a line in the registry."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeVar

from kbmesh_rpc.deadline import Deadline

from kbmesh_chunker.breaks import NO_BREAKS, Breaks
from kbmesh_chunker.config import Options, Sizes, SizeUnit, Strategy
from kbmesh_chunker.context import Context, Room, fit_lines
from kbmesh_chunker.cutter import Cutter, Limits, TokenCap
from kbmesh_chunker.documents.source import Grammar, TextDocument, Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.language_model import LanguageModel
from kbmesh_chunker.measure import BoundedTokenMeasure, Measure, TokenMeasure
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.sentence_embedder import SentenceEmbedder

T = TypeVar("T")

ANY_GRAMMAR = frozenset(Grammar)


class Aside(Protocol):
    """Runs work that takes the processor for long outside the event loop."""

    def __call__(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        """Gives what `function` gives, or raises what it raises."""


@dataclass(frozen=True, kw_only=True)
class Models:
    """What strategies may ask. None where this server has none: what needs it is then refused beforehand."""

    embedder: SentenceEmbedder | None = None
    language_model: LanguageModel | None = None


NO_MODELS = Models()


def untold(_name: str, _value: str) -> None:
    """For work of which nobody asks what it was made with."""


@dataclass(kw_only=True, slots=True)
class Work:
    """A document to cut, with all that it takes."""

    document: TextDocument
    limits: Limits
    unit: SizeUnit
    options: Options
    """The strategy's options, every one set."""
    measure: Measure
    cap: TokenCap | None
    """None where no model limits the chunks."""
    checkpoint: Callable[[], None]
    """To be called now and then; raises when the caller has gone or the deadline has passed."""
    aside: Aside
    warn: Callable[[Warning], None]
    """Adds a warning to the summary of the document."""
    models: Models = NO_MODELS
    embedding_model: str = ""
    """The model that the caller named; empty where it named none."""
    deadline: Deadline | None = None
    made_with: Callable[[str, str], None] = untold
    """Tells what else the pieces depend on, by name and value, such as a model's fingerprint: documents that were cut
    with another one have another fingerprint of their own."""

    @property
    def room(self) -> Room:
        """What a chunk with its context may have at most."""
        characters = self.limits.size if self.unit is SizeUnit.CHARACTERS else inf
        by_size = self.limits.size if self.unit is SizeUnit.TOKENS else inf
        return Room(characters=characters, tokens=min(by_size, self.cap.tokens if self.cap is not None else inf))

    def context(self, *lines: str) -> Context:
        """The context of the document, and `lines` below it, within what a context may take."""
        return fit_lines((*self.document.context, *lines), self.room)

    @property
    def tokens(self) -> TokenMeasure | None:
        """The tokens of the document's text, where they were counted."""
        if self.cap is not None:
            return self.cap.measure
        return self.measure.tokens if isinstance(self.measure, BoundedTokenMeasure) else None

    def cutter(self, breaks: Breaks = NO_BREAKS) -> Cutter:
        """Cuts the document's text by these limits."""
        return Cutter(
            text=self.document.text,
            limits=self.limits,
            measure=self.measure,
            breaks=breaks,
            cap=self.cap,
            checkpoint=self.checkpoint,
        )


class StrategyPort(Protocol):
    """A way to cut documents."""

    strategy: Strategy
    description: str
    """What it does, in a sentence."""
    sizes: Sizes
    """Its default sizes, in characters."""
    needs_embedder: bool
    grammars: frozenset[Grammar]
    """What it can cut."""

    def options(self, given: Options, path: str) -> Options:
        """Every option, those left out at their defaults. Raises InvalidField, naming the field below `path`."""

    async def cut(self, work: Work) -> Sequence[Piece]:
        """Pieces in the document's order. Every character that is not white space is in one; ends strictly rise."""
