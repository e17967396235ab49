"""How a document is cut, and the pieces it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbmesh_client.enums import ChunkingStrategy, SizeUnit, SourceType


@dataclass(frozen=True, kw_only=True)
class SemanticOptions:
    """Options of SEMANTIC."""

    paragraph_blank_lines: int | None = None
    """Blank lines that end a paragraph. 1 by default."""


@dataclass(frozen=True, kw_only=True)
class DocumentOptions:
    """Options of DOCUMENT."""

    max_heading_level: int | None = None
    """Headings deeper than this open no section of their own. 6 by default."""


@dataclass(frozen=True, kw_only=True)
class EmailOptions:
    """Options of EMAIL."""

    whole_below: int | None = None
    """Mails below this many characters stay whole. 2000 by default."""
    exclude_quotes: bool = False
    """Leaves quoted text and signatures out of what is embedded."""


@dataclass(frozen=True, kw_only=True)
class SlackOptions:
    """Options of SLACK."""

    whole_below: int | None = None
    """Threads below this many characters stay whole. 1500 by default."""
    exclude_bots: bool = False
    """Leaves out messages of bots and workflows."""


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """Options of CODE."""

    language: str = ""
    """Name of the language, such as "python". Found from the filename when empty."""


@dataclass(frozen=True, kw_only=True)
class SimilarityOptions:
    """Options of SIMILARITY."""

    threshold: float | None = None
    """Cosine similarity below which two neighbouring groups of sentences are cut apart. 0.5 by default."""
    percentile: float | None = None
    """In place of a threshold: cuts where the similarity is among the lowest so many percent of the document's, 0 to
    100."""
    buffer: int | None = None
    """Further sentences on each side whose vectors are averaged with that of the sentence beside a place. 1 by
    default."""

    def __post_init__(self) -> None:
        if self.threshold is not None and self.percentile is not None:
            raise ValueError("threshold and percentile exclude each other")


@dataclass(frozen=True, kw_only=True)
class PropositionOptions:
    """Options of PROPOSITION."""

    model: str = ""
    """Name of the language model. The server's own by default."""


StrategyOptions = (
    SemanticOptions
    | DocumentOptions
    | EmailOptions
    | SlackOptions
    | CodeOptions
    | SimilarityOptions
    | PropositionOptions
)
"""Options of one strategy."""


@dataclass(frozen=True, kw_only=True)
class ChunkingConfig:
    """How to cut. What is left out takes the strategy's default."""

    strategy: ChunkingStrategy | str = ChunkingStrategy.AUTO
    """The way to cut."""
    size: int | None = None
    """Size a chunk should have at most. 1500 characters by default."""
    overlap: int | None = None
    """How much of the end of a chunk is repeated at the start of the next. 150 by default."""
    minimum: int | None = None
    """A piece below this size is merged with its neighbour. 500 by default."""
    unit: SizeUnit | str = SizeUnit.CHARACTERS
    """What the sizes count."""
    embedding_model: str = ""
    """The model whose token limit no chunk with its context may exceed. No limit when empty."""
    allow_truncation: bool = False
    """Lets chunks exceed the model's limit."""
    options: StrategyOptions | None = None
    """Options of the strategy."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A range of the document's text: `document_text[start:end]` is the chunk's text."""

    start: int
    """First code point."""
    end: int
    """One past the last code point."""
    start_byte: int
    """First byte of the UTF-8 text."""
    end_byte: int
    """One past the last byte of the UTF-8 text."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a document."""

    index: int
    """Place in the document, from 0."""
    total: int | None
    """How many chunks the document has."""
    type: str
    """What kind of piece it is, such as "section" or "complete_email"."""
    text: str
    """The exact slice of the document's text."""
    context: str
    """What the piece needs to be understood. Not part of the text."""
    embedded_text: str | None
    """What is embedded, where that is not context, a blank line and text."""
    span: Span
    """Where the text stands in the document."""
    heading_path: tuple[str, ...]
    """Headings above the piece, outermost first."""
    pages: tuple[int, ...]
    """Pages the piece stands on, from 1."""
    token_count: int | None
    """Tokens of what is embedded. None where no model was named."""
    sha256: bytes
    """SHA-256 of the text, 32 bytes."""
    metadata: Mapping[str, str]
    """The document's metadata, and what the strategy found."""
    oversize: bool
    """True where the piece is over the size because it cannot be cut."""
    embedding_excluded: bool = False
    """True where nothing of the piece is to be embedded, as the caller asked. It is found by its words alone."""


@dataclass(frozen=True, kw_only=True)
class DocumentWarning:
    """Something that went less than well and did not stop the work."""

    reason: str
    """Why, for a machine: the name of an ErrorReason without its prefix."""
    message: str
    """Why, for a person."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Where, such as {"page": "3"}."""


@dataclass(frozen=True, kw_only=True)
class DocumentPart:
    """A document within a document: a mail of a mailbox, an attachment, a channel of a Slack export."""

    span: Span
    """Where it stands in the extracted text."""
    media_type: str
    """Its media type."""
    filename: str
    """Its name, where it has one."""
    title: str
    """Its title, where it has one."""
    strategy: ChunkingStrategy
    """The strategy that cut it."""
    chunks: int
    """How many chunks it gave."""


@dataclass(frozen=True, kw_only=True)
class ChunkedDocument:
    """A document's chunks and what became of it."""

    chunks: tuple[Chunk, ...]
    """The chunks, in the document's order."""
    strategy: ChunkingStrategy
    """Strategy that was used; never AUTO."""
    strategy_reason: str
    """Why AUTO chose it. Empty where the caller chose."""
    media_type: str
    """Media type that was used."""
    source_type: SourceType
    """Kind of source that was used."""
    title: str
    """Title found in the document. Empty where there is none."""
    text_sha256: bytes
    """SHA-256 of the extracted text, 32 bytes."""
    text_characters: int
    """Code points of the extracted text."""
    warnings: tuple[DocumentWarning, ...]
    """What went less than well."""
    chunking_fingerprint: str
    """Fingerprint of the chunker's settings and version."""
    metadata: Mapping[str, str]
    """Metadata found in the document."""
    text: str | None
    """The extracted text that spans refer to, where it was asked for."""
    parts: tuple[DocumentPart, ...] = ()
    """The documents it is made of, in order. Empty where it is one."""
