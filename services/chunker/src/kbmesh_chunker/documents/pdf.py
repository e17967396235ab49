"""PDF, by PDFium: text in reading order, with pages and headings."""

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import pypdfium2 as pdfium
import pypdfium2.raw as native
from kbmesh_rpc.errors import DocumentUnreadable, Reason

from kbmesh_chunker.documents.pdf_headings import Body, Bookmark, body_of, largest_line, mark_headings
from kbmesh_chunker.documents.pdf_layout import Line, lines_of
from kbmesh_chunker.documents.pdf_page import Page, PageReader
from kbmesh_chunker.documents.pdf_paragraphs import write_prose
from kbmesh_chunker.documents.pdf_running import pattern_of, running_lines
from kbmesh_chunker.documents.pdf_text import NO_CHARACTER
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

PDF = "application/pdf"

_MAX_BOOKMARKS = 10_000
_MAX_FAILED_IN_A_ROW = 1_000
_SCANNED = 0.5
"""A page of which images cover this much, and that has but a few words, is a picture of its text."""
_FEW_CHARACTERS = 20
_SHOWN_RANGES = 20
_SHOWN_TEXT = 200
_METADATA = ("Author", "Subject", "Keywords", "CreationDate", "ModDate")
_MAX_METADATA = 1_000
_NO_TITLE = re.compile(
    r"(?:untitled|title|document\d*|microsoft (?:word|powerpoint|excel).*"
    r"|.*\.(?:docx?|dvi|tex|indd|pptx?|xlsx?|pdf|qxd))?",
    re.IGNORECASE,
)


def read_pdf(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """The text of a PDF, and the documents that are attached to it.

    Raises DocumentUnreadable where it is damaged, needs a password or has no text layer."""
    if not isinstance(source.content, bytes):
        raise DocumentUnreadable(PDF, "it is a text, not a file")
    document = _open(source.content)
    try:
        pages, warnings = _read_pages(document, reading)
        main = _text_document(document, pages, source, reading)
        attached, more = _attachments(document, reading)
        return (replace(main, warnings=(*warnings, *main.warnings, *more)), *attached)
    finally:
        document.close()


def _open(content: bytes) -> pdfium.PdfDocument:
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if error.err_code == native.FPDF_ERR_PASSWORD:
            raise DocumentUnreadable(PDF, "it is encrypted and needs a password") from error
        raise DocumentUnreadable(PDF, "it is damaged, or no PDF") from error
    if len(document) < 1:
        document.close()
        raise DocumentUnreadable(PDF, "it has no pages")
    return document


def _read_pages(document: pdfium.PdfDocument, reading: Reading) -> tuple[list[Page], list[Warning]]:
    """The pages that can be read. Raises DocumentUnreadable where none has text."""
    reader = PageReader(document)
    count, limit = len(document), reading.limits.max_pages
    pages: list[Page] = []
    broken: list[int] = []
    for index in range(min(count, limit)):
        reading.checkpoint()
        try:
            page = reader.read(index)
        except pdfium.PdfiumError:
            broken.append(index + 1)
            if len(broken) >= _MAX_FAILED_IN_A_ROW and not pages:
                break
            continue
        reading.spend_text(sum(len(fragment.text.encode()) + 1 for fragment in page.fragments))
        pages.append(page)
    if not pages:
        raise DocumentUnreadable(PDF, "none of its pages can be read")
    scanned = [page.number for page in pages if _is_picture(page)]
    if not any(page.fragments for page in pages):
        raise DocumentUnreadable(PDF, "it has no text layer: its pages are pictures, which must be recognised first")
    warnings = []
    if scanned:
        warnings.append(
            _about_pages(
                scanned,
                "has no text layer: what it shows is not in the text",
                "have no text layer: what they show is not in the text",
            )
        )
    if broken:
        warnings.append(_about_pages(broken, "is damaged and was not read", "are damaged and were not read"))
    if count > limit:
        message = f"only the first {limit} of {count} pages were read"
        metadata = {"page": f"{limit + 1}-{count}", "limit": str(limit)}
        warnings.append(Warning(reason=Reason.DOCUMENT_TOO_LARGE, message=message, metadata=metadata))
    return pages, warnings


def _is_picture(page: Page) -> bool:
    characters = sum(len(fragment.text) for fragment in page.fragments)
    return (not characters and page.drawn) or (characters < _FEW_CHARACTERS and page.images >= _SCANNED)


def _about_pages(numbers: Sequence[int], one: str, several: str) -> Warning:
    ranges = list(_ranges(numbers))
    shown = ", ".join(ranges[:_SHOWN_RANGES]) + (", …" if len(ranges) > _SHOWN_RANGES else "")
    return Warning(
        reason=Reason.DOCUMENT_UNREADABLE,
        message=f"page {shown} {one}" if len(numbers) == 1 else f"pages {shown} {several}",
        metadata={"page": shown, "pages": str(len(numbers))},
    )


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    """3, 5-7, ..."""
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            first, last = numbers[start], numbers[index - 1]
            yield str(first) if first == last else f"{first}-{last}"
            start = index


def _text_document(
    document: pdfium.PdfDocument, pages: Sequence[Page], source: SourceDocument, reading: Reading
) -> TextDocument:
    lines = []
    for page in pages:
        reading.checkpoint()
        lines.append(lines_of(page))
    body = body_of(lines)
    mark_headings(lines, list(_bookmarks(document, pages)), body)
    running = running_lines(lines, [page.height for page in pages], body.size)
    kept = [line for of_page in lines for line in of_page if id(line) not in running]
    if not kept:
        kept, running = [line for of_page in lines for line in of_page], set()
    text, places, layout = write_prose(kept, body.size)
    metadata = _metadata(document)
    return TextDocument(
        text=text,
        media_type=PDF,
        source_type=source.source_type or SourceType.FILE,
        filename=source.filename,
        title=_title(metadata.pop("title", ""), source.filename) or _first_title(lines, body),
        metadata={**metadata, "pages": str(len(document))},
        layout=layout,
        pages=places,
        warnings=tuple(_warnings(text, [line for of_page in lines for line in of_page if id(line) in running])),
    )


def _warnings(text: str, running: Sequence[Line]) -> Iterator[Warning]:
    if running:
        texts: dict[str, str] = {}
        for line in running:
            texts.setdefault(pattern_of(line.text), " ".join(line.text.split()))
        shown = " | ".join(text for pattern, text in texts.items() if any(map(str.isalpha, pattern)))
        yield Warning(
            reason=Reason.CONTENT_LEFT_OUT,
            message=f"{len(running)} running heads, feet and page numbers were left out of the text",
            metadata={"count": str(len(running)), "left_out": shown[:_SHOWN_TEXT]},
        )
    unknown = text.count(NO_CHARACTER)
    if unknown:
        yield Warning(
            reason=Reason.DOCUMENT_UNREADABLE,
            message=f"the fonts do not say which characters {unknown} of their signs are",
            metadata={"characters": str(unknown)},
        )


def _bookmarks(document: pdfium.PdfDocument, pages: Sequence[Page]) -> Iterator[Bookmark]:
    heights = {page.number: page.height for page in pages}
    for number, entry in enumerate(document.get_toc(max_depth=6)):
        if number >= _MAX_BOOKMARKS:
            return
        destination = entry.get_dest()
        index = destination.get_index() if destination is not None else None
        if index is None or index + 1 not in heights:
            continue
        kind, view = destination.get_view()
        top = view[1] if kind == native.PDFDEST_VIEW_XYZ and len(view) > 1 else None
        yield Bookmark(title=entry.get_title(), level=entry.level + 1, page=index + 1, top=top)


def _metadata(document: pdfium.PdfDocument) -> dict[str, str]:
    found = document.get_metadata_dict()
    kept = {key.lower(): " ".join(found.get(key, "").split())[:_MAX_METADATA] for key in ("Title", *_METADATA)}
    return {key: value for key, value in kept.items() if value}


def _title(title: str, filename: str) -> str:
    stem = PurePosixPath(filename.replace("\\", "/")).name
    return "" if _NO_TITLE.fullmatch(title) or title == stem else title


def _first_title(pages: Sequence[Sequence[Line]], body: Body) -> str:
    first = next((lines for lines in pages if lines), ())
    return largest_line(first, body)


def _attachments(document: pdfium.PdfDocument, reading: Reading) -> tuple[list[TextDocument], list[Warning]]:
    """The documents that are attached, those that can be read."""
    documents: list[TextDocument] = []
    warnings: list[Warning] = []
    for index in range(document.count_attachments()):
        reading.checkpoint()
        try:
            attachment = document.get_attachment(index)
            name = attachment.get_name() or f"attachment {index + 1}"
            size = ctypes.c_ulong()
            native.FPDFAttachment_GetFile(attachment.raw, None, 0, size)
            reading.spend_text(size.value)
            content = bytes(attachment.get_data())
        except pdfium.PdfiumError:
            message = f"attachment {index + 1} cannot be read"
            warnings.append(Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message))
            continue
        read, about = reading.inner(SourceDocument(content=content, filename=name), name=name)
        documents.extend(read)
        warnings.extend(about)
    return documents, warnings
