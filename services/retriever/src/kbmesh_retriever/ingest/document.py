"""A document on its way in, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from kbmesh_rpc.errors import DocumentTooLarge, InvalidField, KbmeshError, RequestTooLarge
from kbmesh_rpc.metadata import is_principal

from kbmesh_retriever.mesh.port import Warned

MAX_EXTERNAL_ID_CHARACTERS = 1024
MAX_EXTERNAL_ID_BYTES = 2048
"""In UTF-8: an index of PostgreSQL takes little more."""
MAX_METADATA_ENTRIES = 64
MAX_METADATA_BYTES = 16_384
"""Names and values of one document together, in UTF-8: they are written with each of its chunks."""
MAX_PRINCIPALS = 1000
MAX_PRINCIPAL_CHARACTERS = 256
MAX_TAGS = 100
MAX_TAG_CHARACTERS = 128
_MAX_TEXT_CHARACTERS = 4096
_MAX_NAME_CHARACTERS = 255


@dataclass(frozen=True, kw_only=True)
class IncomingDocument:
    """What the caller sent. Empty where the caller said nothing."""

    external_id: str
    content: str | bytes | None = field(repr=False)
    media_type: str = ""
    filename: str = ""
    source_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    title: str = ""
    uri: str = ""
    author: str = ""
    created_at: datetime | None = None
    principals: tuple[str, ...] = ()
    """Who may read it, each once. Empty: everybody of the tenant."""
    tags: tuple[str, ...] = ()
    """Words to filter by, each once."""
    allow_shrink: bool = False
    """Whether it is meant that nothing or little is left of it."""
    refused: KbmeshError | None = None
    """What could not even be read of the message. It fails this document alone."""

    def checked_content(self, *, max_bytes: int) -> str | bytes:
        """The content, perhaps empty, once the document is known to be acceptable. Raises InvalidField, RequestTooLarge
        or DocumentTooLarge."""
        if self.refused is not None:
            raise self.refused
        if said := wrong_external_id(self.external_id):
            raise InvalidField("document.external_id", said)
        if len(self.metadata) > MAX_METADATA_ENTRIES:
            raise InvalidField("document.document.metadata", f"has more than {MAX_METADATA_ENTRIES} entries")
        metadata_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in self.metadata.items())
        if metadata_bytes > MAX_METADATA_BYTES:
            raise RequestTooLarge(field="document.document.metadata", limit=MAX_METADATA_BYTES, actual=metadata_bytes)
        for said in wrong_principals(self.principals):
            raise InvalidField("document.principals", said)
        for said in _wrong_words(self.tags, most=MAX_TAGS, longest=MAX_TAG_CHARACTERS):
            raise InvalidField("document.tags", said)
        texts = {"title": self.title, "uri": self.uri, "author": self.author}
        names = {"document.media_type": self.media_type, "document.filename": self.filename}
        for name, text in (texts | names).items():
            limit = _MAX_NAME_CHARACTERS if name == "document.media_type" else _MAX_TEXT_CHARACTERS
            if len(text) > limit:
                raise InvalidField(f"document.{name}", f"has more than {limit} characters")
            if "\0" in text:
                raise InvalidField(f"document.{name}", "holds a NUL character")
        if self.content is None:
            raise InvalidField("document.document", "has neither text nor data")
        size = len(self.content.encode()) if isinstance(self.content, str) else len(self.content)
        if size > max_bytes:
            raise DocumentTooLarge(limit=max_bytes, actual=size)
        return self.content


def wrong_external_id(external_id: str) -> str:
    """What is wrong with a document's name. Empty where nothing is."""
    if not 1 <= len(external_id) <= MAX_EXTERNAL_ID_CHARACTERS:
        return f"must have 1 to {MAX_EXTERNAL_ID_CHARACTERS} characters"
    if len(external_id.encode()) > MAX_EXTERNAL_ID_BYTES:
        return f"has more than {MAX_EXTERNAL_ID_BYTES} bytes of UTF-8"
    return "holds a NUL character" if "\0" in external_id else ""


def wrong_principals(principals: Sequence[str]) -> list[str]:
    """What is wrong with names of who may read something."""
    wrong = _wrong_words(principals, most=MAX_PRINCIPALS, longest=MAX_PRINCIPAL_CHARACTERS)
    if not wrong and not all(is_principal(principal) for principal in principals):
        # No caller could ever come under such a name: what is for it alone would be lost to everybody.
        wrong.append("must be visible ASCII characters without commas, as those of who asks")
    return wrong


def _wrong_words(words: Sequence[str], *, most: int, longest: int) -> list[str]:
    wrong: list[str] = []
    if len(words) > most:
        wrong.append(f"are {len(words)}, the limit is {most}")
    # A blank name would match nobody, or whoever comes with a blank one.
    if any(not 1 <= len(word) <= longest or not word.strip() for word in words):
        wrong.append(f"must have 1 to {longest} characters each, and not only blank ones")
    if any("\0" in word for word in words):
        wrong.append("hold a NUL character")
    return wrong


Outcome = Literal["new", "changed", "unchanged", "failed"]


@dataclass(frozen=True, kw_only=True)
class IngestResult:
    """What became of a document. A failed one is as it was before."""

    external_id: str
    document_id: str = ""
    """Empty where it failed and was never there."""
    outcome: Outcome
    error: KbmeshError | None = None
    chunks: int = 0
    """Chunks that can be found now."""
    embedded: int = 0
    tokens: int = 0
    truncated: int = 0
    """Chunks whose end the model could not read."""
    warnings: tuple[Warned, ...] = ()
    content_sha256: bytes = b""
    """Of what was sent. Empty where there was no content, or it was not looked at."""
