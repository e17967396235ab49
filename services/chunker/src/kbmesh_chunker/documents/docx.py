"""Word files (.docx), read as Markdown."""

from collections.abc import Sequence
from dataclasses import replace

from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable, Reason

from kbmesh_chunker.documents.docx_body import Body
from kbmesh_chunker.documents.docx_package import Package, local, open_package
from kbmesh_chunker.documents.media_type import DOCX
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    Grammar,
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

_PROPERTIES = {
    "title": "title", "subject": "subject", "creator": "author", "keywords": "keywords", "description": "description",
    "category": "category", "created": "created", "modified": "modified", "lastModifiedBy": "last_modified_by",
    "language": "lang",
}  # fmt: skip
_MAX_VALUE = 1_000


def read_docx(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """A Word file as one document. Pages are known where Word has stored where it broke them.

    Raises DocumentUnreadable where it is damaged, DocumentEmpty where it holds no text, DocumentTooLarge where it
    unpacks to too much, and UnsupportedMediaType where it is no Word file.
    """
    if not isinstance(source.content, bytes):
        raise DocumentUnreadable(DOCX, "it is a text, not a Word file")
    package = open_package(source.content, reading)
    body = Body(package, reading)
    body.read()
    text, pages = body.writer.finish()
    if not text:
        raise DocumentEmpty
    metadata = _properties(package) | body.metadata
    document = TextDocument(
        text=text,
        media_type=DOCX,
        source_type=source.source_type or SourceType.FILE,
        grammar=Grammar.MARKDOWN,
        filename=source.filename,
        title=metadata.get("title", "") or body.title or body.writer.first_heading,
        metadata=metadata,
        pages=pages if body.page > 1 else None,
        warnings=tuple(_warnings(package, body)),
    )
    return (replace(document, title=document.title[:_MAX_VALUE]),)


def _properties(package: Package) -> dict[str, str]:
    """What the file says about itself (ECMA-376, part 2, core properties)."""
    at = next((ref.target for ref in package.references("").values() if ref.kind == "core-properties"), "")
    root = package.optional(at)
    found: dict[str, str] = {}
    for element in root if root is not None else ():
        name = _PROPERTIES.get(local(element))
        value = " ".join("".join(element.itertext()).split())
        if name and value:
            found[name] = value[:_MAX_VALUE]
    return found


def _warnings(package: Package, body: Body) -> list[Warning]:
    warnings = []
    if body.left_out:
        what = ", ".join(name for name, _ in body.left_out.most_common())
        characters = body.left_out.total()
        warnings.append(
            Warning(
                reason=Reason.CONTENT_LEFT_OUT,
                message=f"left out of the text: {what}; {characters} characters",
                metadata={"left_out": what, "characters": str(characters)},
            )
        )
    if package.broken:
        what = ", ".join(sorted(set(package.broken)))
        warnings.append(
            Warning(
                reason=Reason.DOCUMENT_UNREADABLE,
                message=f"parts of the file could not be read: {what}",
                metadata={"part": what},
            )
        )
    return warnings
