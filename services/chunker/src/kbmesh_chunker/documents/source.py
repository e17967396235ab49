"""Documents before and after reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kbmesh_rpc.errors import Reason


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


@dataclass(frozen=True, kw_only=True)
class Warning:  # noqa: A001 - the contract's name for it
    """Something that went less than well and did not stop the work."""

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TextDocument:
    """A document that has been read."""

    text: str
    """What spans refer to."""
    media_type: str
    """Without parameters."""
    source_type: SourceType
    filename: str = ""
    title: str = ""
    """Empty where the document names none."""
    body_start: int = 0
    """Where the text begins that is not front matter."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the document says about itself, such as front matter."""
    warnings: tuple[Warning, ...] = ()
