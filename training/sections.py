"""Sections of a manual in HTML, each with the headings it stands under."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree, html

_HEADINGS = {f"h{level}": level for level in range(1, 5)}
_BLOCKS = frozenset({"p", "pre", "li", "dd", "dt", "td", "th", "blockquote"})
_UNREAD = frozenset({"script", "style", "nav", "footer", "header", "button", "form", "svg"})
_MARGINS = re.compile(
    r"toc|sidebar|navheader|navfooter|related|footer|breadcrumb|quickview|menu|topsection|menubar|column2",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"^(?:chapter |appendix |section )?(?:[A-Z]\.)?[0-9]+(?:\.[0-9]+)*\.?\s+", re.IGNORECASE)
_SPACE = re.compile(r"\s+")

LEAST_CHARACTERS = 200
"""Of a section's text; a shorter one answers nothing."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """What stands between two headings."""

    headings: tuple[str, ...]
    """From the page's title to its own, each without numbering."""
    text: str
    """Paragraphs, separated by line breaks, without the headings."""

    @property
    def asked(self) -> str:
        """Its heading as someone would search for it: a short one with the one above."""
        own = self.headings[-1]
        if len(own.split()) >= 3 or len(self.headings) < 2:
            return own
        return f"{self.headings[-2]} {own}"


def sections_of(page: bytes) -> list[Section]:
    """In order; those with less than LEAST_CHARACTERS are left out. What is no HTML has none."""
    try:
        root = html.fromstring(page, parser=html.HTMLParser(encoding=_encoding(page)))
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return []
    found: list[Section] = []
    headings: list[tuple[int, str]] = []
    paragraphs: list[str] = []

    def close() -> None:
        text = "\n".join(paragraphs)
        if headings and len(text) >= LEAST_CHARACTERS:
            found.append(Section(headings=tuple(title for _, title in headings), text=text))
        paragraphs.clear()

    for element in _read(root):
        words = _words(element)
        if not words:
            continue
        level = _HEADINGS.get(str(element.tag))
        if level is None:
            paragraphs.append(words)
            continue
        close()
        while headings and headings[-1][0] >= level:
            headings.pop()
        title = _NUMBERING.sub("", words.replace("¶", "").replace("#", " ")).strip()
        headings.append((level, title))
    close()
    return [section for section in found if all(section.headings)]


def _encoding(page: bytes) -> str | None:
    """UTF-8 where it is that; else what the page says of itself."""
    try:
        page.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8"


def _read(element: html.HtmlElement) -> Iterator[html.HtmlElement]:
    """Headings and the innermost blocks, without what stands in the margins."""
    if not isinstance(element.tag, str) or element.tag in _UNREAD:
        return
    marks = f"{element.get('class', '')} {element.get('id', '')} {element.get('role', '')}"
    if element.tag not in {"body", "html"} and _MARGINS.search(marks):
        return
    if element.tag in _HEADINGS or (
        element.tag in _BLOCKS
        and not any(child.tag in _BLOCKS or child.tag in _HEADINGS for child in element.iter() if child is not element)
    ):
        yield element
    else:
        for child in element:
            yield from _read(child)


def _words(element: html.HtmlElement) -> str:
    return _SPACE.sub(" ", element.text_content()).strip()
