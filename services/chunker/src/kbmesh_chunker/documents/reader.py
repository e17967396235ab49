"""A document as it came, to the text that is cut."""

from kbmesh_rpc.errors import DocumentEmpty, DocumentTooLarge, Reason, UnsupportedMediaType

from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.documents.decoding import check_text, decode
from kbmesh_chunker.documents.front_matter import read_front_matter
from kbmesh_chunker.documents.markdown import first_heading
from kbmesh_chunker.documents.media_type import (
    HTML,
    MARKDOWN,
    binary_type,
    is_text_type,
    parse_media_type,
    source_type_of,
    type_by_content,
    type_by_name,
)
from kbmesh_chunker.documents.source import SourceDocument, TextDocument, Warning  # noqa: A004 - the contract's name

_MAGIC_BYTES = 4096


def check_size(actual: int, limit: int) -> None:
    """Raises DocumentTooLarge. Sizes are in bytes."""
    if actual > limit:
        raise DocumentTooLarge(limit=limit, actual=actual)


def read(source: SourceDocument, *, max_bytes: int) -> TextDocument:
    """Reads a document. Raises DocumentTooLarge, DocumentEmpty, DocumentUnreadable or UnsupportedMediaType."""
    declared = parse_media_type(source.media_type)
    media_type = declared.media_type or type_by_name(source.filename)
    if media_type and not is_text_type(media_type):
        raise UnsupportedMediaType(media_type)
    warnings: tuple[Warning, ...] = ()
    if isinstance(source.content, bytes):
        check_size(len(source.content), max_bytes)
        binary = binary_type(source.content[:_MAGIC_BYTES])
        if binary:
            raise UnsupportedMediaType(binary)
        decoded = decode(source.content, charset=declared.charset, media_type=media_type or "application/octet-stream")
        text, warnings = decoded.text, decoded.warnings
    else:
        text = source.content
        # A code point is one to four bytes, so most texts need no encoding to be seen to be small enough.
        if len(text) * 4 > max_bytes:
            check_size(len(text.encode("utf-8")), max_bytes)
        check_text(text, media_type or "text/plain")
    if not is_visible(text):
        raise DocumentEmpty
    media_type = media_type or type_by_content(text)
    if media_type in {HTML, "application/xhtml+xml"}:
        warnings = (*warnings, _unread_markup())
    source_type = source.source_type or source_type_of(media_type, source.filename, text)
    document = TextDocument(
        text=text, media_type=media_type, source_type=source_type, filename=source.filename, warnings=warnings
    )
    return _with_front_matter(document) if media_type == MARKDOWN else document


def _with_front_matter(document: TextDocument) -> TextDocument:
    front = read_front_matter(document.text)
    warnings = document.warnings
    if front.broken:
        message = "the front matter is not YAML that can be read; it was kept as text"
        warnings = (*warnings, Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message))
    return TextDocument(
        text=document.text,
        media_type=document.media_type,
        source_type=document.source_type,
        filename=document.filename,
        title=front.metadata.get("title", "") or first_heading(document.text, front.end),
        body_start=front.end,
        metadata=front.metadata,
        warnings=warnings,
    )


def _unread_markup() -> Warning:
    return Warning(
        reason=Reason.FEATURE_UNSUPPORTED,
        message="HTML is cut as it is written; its markup is not taken out",
        metadata={"feature": "html"},
    )
