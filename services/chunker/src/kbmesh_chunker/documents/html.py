"""HTML, read as Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.errors import Reason

from kbmesh_chunker.documents.decoding import decode_html
from kbmesh_chunker.documents.html_page import Page, PageOptions
from kbmesh_chunker.documents.media_type import HTML, parse_media_type
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    Grammar,
    Places,
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

XHTML = "application/xhtml+xml"
FURNITURE = frozenset({"navigation", "page header", "page footer", "search form", "cookie notice"})
"""What belongs to a site and not to a page."""

_MAIN = re.compile(r"<(?:main|article)[\s>]|\srole\s*=\s*[\"']?(?:main|article)\b", re.IGNORECASE)
_XML = re.compile(
    r"\s*<\?xml\s|\s*(?:<!--(?:(?!-->).){0,2000}-->\s*){0,3}<!doctype[^>]{0,200}\bxhtml\b", re.IGNORECASE | re.DOTALL
)
_LINE_END = re.compile(r"\r\n?")
_KEPT_SHARE = 0.25
_METADATA = {
    "description": ("description", "og:description", "twitter:description", "dc.description", "dcterms.description"),
    "author": ("author", "article:author", "dc.creator", "dcterms.creator", "citation_author"),
    "date": (
        "article:published_time", "date", "datepublished", "dc.date", "dcterms.date", "dcterms.created", "pubdate",
        "citation_publication_date", "article:modified_time", "last-modified",
    ),
    "site": ("og:site_name", "application-name"),
    "keywords": ("keywords",),
}  # fmt: skip
_MAX_VALUE = 1_000


@dataclass(frozen=True, kw_only=True)
class HtmlText:
    """A page as Markdown."""

    text: str
    title: str = ""
    """Empty where the page names none."""
    source_lines: Places | None = None
    left_out: tuple[str, ...] = ()
    """What was left out of the text, such as `navigation` or `script`, each once, the largest first."""
    left_out_characters: int = 0
    """How many characters that was."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Language, canonical address, description, author and date, where the page names them."""


def html_to_markdown(html: str, reading: Reading, *, filename: str = "", media_type: str = HTML) -> HtmlText:
    """Reads a page, or a stretch of one such as the body of a mail. Malformed markup is read as browsers do.

    Raises DocumentTooLarge and DocumentUnreadable where it takes too much.
    """
    source = _LINE_END.sub("\n", html) if "\r" in html else html
    options = PageOptions(
        main=_MAIN.search(source) is not None,
        xml=media_type == XHTML or _XML.match(source) is not None,
        filename=filename.replace("\\", "/").rpartition("/")[2],
    )
    page = Page(source, reading, options)
    page.read()
    text, places = page.writer.finish()
    furniture = sum(count for what, count in page.left_out.items() if what in FURNITURE)
    if furniture and len(text) < furniture * _KEPT_SHARE:
        # What looks like the site's own is all that there is.
        page = Page(source, reading, replace(options, keep_all=True))
        page.read()
        text, places = page.writer.finish()
    return HtmlText(
        text=text,
        title=(page.title or page.metas.get("og:title", "") or page.writer.first_heading)[:_MAX_VALUE],
        source_lines=places,
        left_out=tuple(what for what, _ in page.left_out.most_common()),
        left_out_characters=page.left_out.total(),
        metadata=_metadata(page),
    )


def read_html(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """A page as one document. Raises what `html_to_markdown` raises, and DocumentUnreadable where it is no text."""
    declared = parse_media_type(source.media_type)
    media_type = declared.media_type or HTML
    warnings: tuple[Warning, ...] = ()
    if isinstance(source.content, bytes):
        decoded = decode_html(source.content, charset=declared.charset, media_type=media_type)
        html, warnings = decoded.text, decoded.warnings
    else:
        html = source.content
    page = html_to_markdown(html, reading, filename=source.filename, media_type=media_type)
    document = TextDocument(
        text=page.text,
        media_type=media_type,
        source_type=source.source_type or SourceType.WEB_PAGE,
        grammar=Grammar.MARKDOWN,
        filename=source.filename,
        title=page.title,
        metadata=page.metadata,
        source_lines=page.source_lines,
        warnings=(*warnings, *left_out_warning(page)),
    )
    return (document,)


def left_out_warning(page: HtmlText) -> tuple[Warning, ...]:
    """Names what was left out of a page, where anything was."""
    if not page.left_out:
        return ()
    what = ", ".join(page.left_out)
    return (
        Warning(
            reason=Reason.CONTENT_LEFT_OUT,
            message=f"left out of the text: {what}; {page.left_out_characters} characters",
            metadata={"left_out": what, "characters": str(page.left_out_characters)},
        ),
    )


def _metadata(page: Page) -> dict[str, str]:
    found = {"lang": page.language, "canonical_url": page.canonical or page.metas.get("og:url", "")}
    for key, names in _METADATA.items():
        found[key] = next((page.metas[name] for name in names if page.metas.get(name)), "")
    return {key: value[:_MAX_VALUE] for key, value in found.items() if value}
