"""HTML, read as Markdown."""

from dataclasses import dataclass

from lxml import html as parser

from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import Places


@dataclass(frozen=True, kw_only=True)
class HtmlText:
    """A page as Markdown."""

    text: str
    title: str = ""
    """Empty where the page names none."""
    source_lines: Places | None = None
    left_out: tuple[str, ...] = ()
    """What was left out of the text, such as `navigation` or `script`, each once."""


def html_to_markdown(html: str, reading: Reading) -> HtmlText:
    """Reads a page, or a stretch of one such as the body of a mail. Never fails on malformed markup."""
    reading.checkpoint()
    page = parser.document_fromstring(html or "<p></p>")
    for element in list(page.iter("script", "style", "template")):
        element.drop_tree()
    return HtmlText(text=" ".join(page.text_content().split()))
