"""A document as it came, to the text that is cut. Which type of document is read by what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Protocol

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DocumentEmpty, DocumentTooLarge, KbmeshError, Reason, UnsupportedMediaType, rebuild, shown

from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.documents.archive import ZIP
from kbmesh_chunker.documents.decoding import check_text, decode
from kbmesh_chunker.documents.delimited import header_row
from kbmesh_chunker.documents.front_matter import read_front_matter
from kbmesh_chunker.documents.html import XHTML, read_html
from kbmesh_chunker.documents.mail import is_mail_file, read_mail, read_pasted_mail
from kbmesh_chunker.documents.mailbox import read_mailbox
from kbmesh_chunker.documents.markdown import first_heading
from kbmesh_chunker.documents.media_type import (
    DOCX,
    HTML,
    JSON,
    JSON_LINES,
    MAIL,
    MARKDOWN,
    MBOX,
    NOTEBOOK,
    PLAIN,
    binary_type,
    is_code,
    is_slack_export,
    is_text_type,
    parse_media_type,
    settled_type,
    source_type_of,
    type_by_content,
)
from kbmesh_chunker.documents.notebook import read_notebook
from kbmesh_chunker.documents.reading import Reading, ReadingLimits
from kbmesh_chunker.documents.slack import read_slack_archive, read_slack_json, read_slack_text
from kbmesh_chunker.documents.source import (
    ExtractedDocument,
    Grammar,
    SlackLayout,
    SourceDocument,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
    join_parts,
)

_MAGIC_BYTES = 4096
_HEAD = 65_536
_MARK = "\ufeff"
"""A byte-order mark, of a text whose bytes somebody decoded without a thought of it."""
_OFFICE_PART = b"[Content_Types].xml"
_PARSERS = ("kbmesh_chunker.documents.pdf", "kbmesh_chunker.documents.docx")
"""Modules that pull in libraries, which readers import only when they are needed."""

Reader = Callable[[SourceDocument, Reading], Sequence[TextDocument]]
"""Reads a document of one type, which `source.media_type` names without parameters unless a charset was declared. Gives
the documents of which it is made, at least one. Raises a KbmeshError."""


def _read_pdf(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    from kbmesh_chunker.documents.pdf import read_pdf

    return read_pdf(source, reading)


def _read_docx(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    from kbmesh_chunker.documents.docx import read_docx

    return read_docx(source, reading)


def _read_zip(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """A Word file whose first bytes do not show that it is one, or an export of Slack."""
    office = isinstance(source.content, bytes) and _OFFICE_PART in source.content
    return _read_docx(source, reading) if office else read_slack_archive(source, reading)


BINARY_READERS: Mapping[str, Reader] = {"application/pdf": _read_pdf, DOCX: _read_docx, ZIP: _read_zip}
"""By media type; `source.content` is bytes."""
TEXT_READERS: Mapping[str, Reader] = {
    MAIL: read_mail,
    MBOX: read_mailbox,
    HTML: read_html,
    XHTML: read_html,
    NOTEBOOK: read_notebook,
}
"""By media type, those of types that are text with a structure of their own: mail, HTML. `source.content` is str where
the caller sent text, and bytes where a file was sent: such types say themselves how they are encoded."""
GRAMMAR_READERS: Mapping[Grammar, Reader] = {Grammar.MAIL: read_pasted_mail, Grammar.SLACK: read_slack_text}
"""By the grammar that the caller wishes a plain text to be read by. Such a reader gives nothing where the text is not
written so, and it stays what it is."""


class DocumentReader(Protocol):
    """Where documents are read: here, or in a process that may be ended."""

    async def read(self, source: SourceDocument, *, deadline: Deadline | None) -> ExtractedDocument:
        """Raises what `read` raises, and DeadlineExceeded."""

    async def close(self) -> None:
        """Frees what it holds."""


def check_size(actual: int, limit: int) -> None:
    """Raises DocumentTooLarge. Sizes are in bytes."""
    if actual > limit:
        raise DocumentTooLarge(limit=limit, actual=actual)


def read(source: SourceDocument, *, limits: ReadingLimits) -> ExtractedDocument:
    """Reads a document. Raises DocumentTooLarge, DocumentEmpty, DocumentUnreadable or UnsupportedMediaType."""
    documents = read_documents(source, Reading.begin(read_documents, limits))
    kept = [document for document in documents if is_visible(document.text)]
    # What was read and holds nothing is no error: it takes the place of what it held before.
    kept = kept or [document for document in documents if _was_emptied(document)][:1]
    if not kept:
        raise DocumentEmpty
    blank = [document for document in documents if not is_visible(document.text) and document is not kept[0]]
    left_out = [warning for document in blank for warning in document.warnings]
    if left_out:
        kept[0] = replace(kept[0], warnings=(*kept[0].warnings, *left_out))
    return join_parts(kept)


def _was_emptied(document: TextDocument) -> bool:
    return isinstance(document.layout, SlackLayout) and not document.layout.messages


def parsed_type(source: SourceDocument) -> str:
    """The media type of a document whose reader does more than decode it: such documents are read where they can do no
    harm. Empty for others."""
    content = source.content
    binary = binary_type(content[:_MAGIC_BYTES]) if isinstance(content, bytes) else ""
    head = _head(content)
    media_type = settled_type(parse_media_type(source.media_type).media_type, source.filename, head)
    if binary or media_type in BINARY_READERS:
        return binary or media_type
    if is_slack_export(head, source.filename):
        return JSON
    media_type = media_type or type_by_content(head)
    if media_type in TEXT_READERS:
        return media_type
    if source.grammar is Grammar.SLACK:
        return media_type
    return MAIL if source.grammar is Grammar.MAIL else ""


def _head(content: str | bytes) -> str:
    """The first characters. Those of bytes are right where they are ASCII, in any encoding."""
    head = content[:_HEAD]
    if isinstance(head, str):
        return head
    # The NULs are those of UTF-16.
    return head.decode("latin-1").replace("\0", "").removeprefix("\xef\xbb\xbf")


def _unsupported(media_type: str, named: str) -> KbmeshError:
    """UnsupportedMediaType. It tells of a file whose content is of another type than its name or its sender says."""
    error = UnsupportedMediaType(media_type)
    if named in {"", media_type}:
        return error
    message = f"{error.message}, which the content is; its name or media type says {shown(named)}"
    return rebuild(error.reason, message, error.metadata, (), None)


def preload() -> None:
    """Imports what readers import only when they are needed, so that the first document need not wait for it."""
    for module in _PARSERS:
        import_module(module)


def read_documents(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The documents of which a document is made; one, unless it holds others."""
    declared = parse_media_type(source.media_type)
    media_type = settled_type(declared.media_type, source.filename, _head(source.content))
    if not source.content:
        raise DocumentEmpty
    if declared.media_type not in {"", media_type}:
        # Readers ask what was declared; that the type was wrong does not make the charset so.
        charset = f"; charset={declared.charset}" if declared.charset else ""
        source = replace(source, media_type=media_type + charset)
    if isinstance(source.content, bytes):
        check_size(len(source.content), reading.limits.max_document_bytes)
        binary = binary_type(source.content[:_MAGIC_BYTES])
        if not binary and media_type in BINARY_READERS:
            binary = media_type
        if binary in BINARY_READERS:
            return BINARY_READERS[binary](replace(source, media_type=binary), reading)
        if binary or (media_type and not is_text_type(media_type)):
            raise _unsupported(binary or media_type, media_type)
        reader = TEXT_READERS.get(media_type)
        if reader is not None:
            return reader(source, reading)
        wishes_mail = source.grammar is Grammar.MAIL and not is_code(media_type)
        if wishes_mail and is_mail_file(source.content, charset=declared.charset):
            # It says itself how it is encoded, also where it was sent as plain text.
            return read_mail(source, reading)
        decoded = decode(source.content, charset=declared.charset, media_type=media_type or "application/octet-stream")
        text, warnings = decoded.text, decoded.warnings
    else:
        if media_type and not is_text_type(media_type):
            raise UnsupportedMediaType(media_type)
        text, warnings = source.content.removeprefix(_MARK), ()
        if text is not source.content:
            source = replace(source, content=text)
        # A code point is one to four bytes, so most texts need no encoding to be seen to be small enough.
        if len(text) * 4 > reading.limits.max_document_bytes:
            check_size(len(text.encode("utf-8", "surrogatepass")), reading.limits.max_document_bytes)
        check_text(text, media_type or "text/plain")
    if not is_visible(text):
        raise DocumentEmpty
    media_type = media_type or type_by_content(text)
    reader = TEXT_READERS.get(media_type)
    if reader is None and media_type in {JSON, JSON_LINES} and is_slack_export(text, source.filename):
        reader = read_slack_json
    elif reader is None and source.grammar is not None and not is_code(media_type):
        reader = GRAMMAR_READERS.get(source.grammar)
    # Such types say themselves how they are encoded; what was decoded here is a guess.
    content = source.content if media_type in TEXT_READERS else text
    warnings = () if content is not text else warnings
    documents = reader(replace(source, content=content, media_type=media_type), reading) if reader is not None else ()
    if documents:
        first = documents[0]
        return (replace(first, warnings=(*warnings, *first.warnings)), *documents[1:])
    reading.spend_text(len(text))
    document = TextDocument(
        text=text,
        media_type=media_type,
        source_type=source.source_type or source_type_of(media_type, source.filename, text),
        grammar=_grammar(media_type, source.grammar),
        filename=source.filename,
        language=source.language,
        context=tuple(row for row in (header_row(text, media_type),) if row),
        warnings=warnings,
    )
    return (_with_front_matter(document) if media_type == MARKDOWN else document,)


def _grammar(media_type: str, wished: Grammar | None) -> Grammar:
    if media_type == MARKDOWN:
        return Grammar.MARKDOWN
    if is_code(media_type) or (wished is Grammar.CODE and media_type == PLAIN):
        return Grammar.CODE
    return Grammar.PLAIN


def _with_front_matter(document: TextDocument) -> TextDocument:
    front = read_front_matter(document.text)
    warnings = document.warnings
    if front.broken:
        message = "the front matter cannot be read as a whole: each of its lines was read alone"
        warnings = (*warnings, Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message))
    return replace(
        document,
        title=front.metadata.get("title", "") or first_heading(document.text, front.end),
        body_start=front.end,
        metadata=front.metadata,
        warnings=warnings,
    )
