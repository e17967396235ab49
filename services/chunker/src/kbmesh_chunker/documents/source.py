"""Documents before and after reading."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kbmesh_rpc.errors import Reason


class Grammar(StrEnum):
    """How a text is written. It decides which strategies suit it."""

    PLAIN = "plain"
    MARKDOWN = "markdown"
    MAIL = "mail"
    SLACK = "slack"
    CODE = "code"


class SourceType(StrEnum):
    """The kind of place a document comes from. A value is the contract's name without its prefix, in lower case."""

    GENERIC = "generic"
    FILE = "file"
    WEB_PAGE = "web_page"
    EMAIL = "email"
    SLACK = "slack"
    CODE = "code"
    TICKET = "ticket"


@dataclass(frozen=True, kw_only=True)
class SourceDocument:
    """A document as it came."""

    content: str | bytes
    """Text that needs no decoding, or the file as it is."""
    media_type: str = ""
    """MIME type, with or without parameters. Empty where the caller knows none."""
    filename: str = ""
    """A hint for detection; never opened."""
    source_type: SourceType | None = None
    """None where it is to be found out."""
    grammar: Grammar | None = None
    """What a text is to be read as whose type says nothing, as a transcript that was pasted. None where the caller
    wishes nothing."""
    language: str = ""
    """Of source code, such as "python". Empty where it is to be found out."""


@dataclass(frozen=True, kw_only=True)
class Warning:  # noqa: A001 - the contract's name for it
    """Something that went less than well and did not stop the work."""

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class MailSectionKind(StrEnum):
    """What a section of a mail is."""

    BODY = "body"
    QUOTE = "quote"
    SIGNATURE = "signature"


@dataclass(frozen=True, kw_only=True, slots=True)
class MailSection:
    """A stretch of a mail's text that is of one kind."""

    kind: MailSectionKind
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MailLayout:
    """How the text of a mail is built."""

    sections: tuple[MailSection, ...]
    """In order, end to start, from the first to the last character of the text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlackMessage:
    """A message within the text of a channel."""

    start: int
    end: int
    timestamp: str
    """Slack's `ts`, such as "1452763320.000002"; as it was pasted in a transcript. Empty where none is known."""
    thread: str
    """Timestamp of the message that opens its thread; its own where it opens one or stands alone."""
    author: str
    bot: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SlackLayout:
    """How the text of a channel is built: its messages in order, those of a thread together after the one that
    opens it."""

    channel: str
    """Name without `#`. Empty where none is known."""
    messages: tuple[SlackMessage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """A heading within a text."""

    start: int
    end: int
    """Behind it and the white space that follows, at most where the next heading starts."""
    level: int
    """1 to 6."""
    title: str
    """As it reads, in one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadingLayout:
    """How a text is built whose headings are no markup, as that of a PDF: in it `#` is a character like others."""

    headings: tuple[Heading, ...] = ()
    """In order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where stretches of a text come from: page or line numbers of the source, from 1."""

    starts: tuple[int, ...]
    """Where each stretch begins in the text, ascending."""
    numbers: tuple[int, ...]
    """The number of each, as many as `starts`."""

    def within(self, start: int, end: int) -> tuple[int, ...]:
        """The numbers of the stretches that text[start:end] touches, each once, ascending."""
        first = max(0, bisect_right(self.starts, start) - 1)
        return tuple(sorted(set(self.numbers[first : bisect_left(self.starts, end)])))


@dataclass(frozen=True, kw_only=True)
class TextDocument:
    """A document of one kind that has been read."""

    text: str
    """What spans refer to."""
    media_type: str
    """Without parameters."""
    source_type: SourceType
    grammar: Grammar = Grammar.PLAIN
    filename: str = ""
    title: str = ""
    """Empty where the document names none."""
    body_start: int = 0
    """Where the text begins that is not front matter."""
    language: str = ""
    """Of source code, such as "python"."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the document says about itself, such as front matter."""
    chunk_metadata: Mapping[str, str] = field(default_factory=dict)
    """What each of its chunks carries, such as the sender and subject of a mail."""
    context: tuple[str, ...] = ()
    """Lines without which its chunks cannot be understood, such as the header of a mail."""
    layout: MailLayout | SlackLayout | HeadingLayout | None = None
    pages: Places | None = None
    source_lines: Places | None = None
    """Lines of the source file, where the text is not that file as it stands."""
    warnings: tuple[Warning, ...] = ()
    abreast: bool = False
    """Whether it stands beside the other documents of its file, as a mail of a mailbox does, and not around them, as a
    mail does around its attachments."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A document within the text of an extracted one."""

    offset: int
    """Where its text begins in the whole text."""
    document: TextDocument


SEPARATOR = "\n\n"
"""Stands between the texts of two parts, and belongs to neither."""


@dataclass(frozen=True, kw_only=True)
class ExtractedDocument:
    """What was made of a source document: one text, and the documents of one kind of which it is made."""

    text: str
    parts: tuple[Part, ...]
    """At least one, in order. A plain document is its own only part; a mail with attachments has several."""

    @property
    def main(self) -> TextDocument:
        """The first part."""
        return self.parts[0].document

    @property
    def media_type(self) -> str:
        return self.main.media_type

    @property
    def source_type(self) -> SourceType:
        return self.main.source_type

    @property
    def title(self) -> str:
        """Empty where no part speaks for the others."""
        return "" if self._is_collection else self.main.title

    @property
    def metadata(self) -> Mapping[str, str]:
        """Empty where no part speaks for the others."""
        return {} if self._is_collection else self.main.metadata

    @property
    def _is_collection(self) -> bool:
        return sum(part.document.abreast for part in self.parts) > 1

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Those of all parts."""
        return tuple(warning for part in self.parts for warning in part.document.warnings)


def join_parts(documents: Sequence[TextDocument]) -> ExtractedDocument:
    """Puts documents one after the other. There is at least one."""
    if len(documents) == 1:
        return ExtractedDocument(text=documents[0].text, parts=(Part(offset=0, document=documents[0]),))
    parts = []
    offset = 0
    for document in documents:
        parts.append(Part(offset=offset, document=document))
        offset += len(document.text) + len(SEPARATOR)
    return ExtractedDocument(text=SEPARATOR.join(document.text for document in documents), parts=tuple(parts))
