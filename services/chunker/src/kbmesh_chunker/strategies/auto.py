"""AUTO: which strategy suits a document."""

from dataclasses import dataclass

from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.media_type import JSON, MAIL, MARKDOWN, PLAIN, is_code
from kbmesh_chunker.documents.source import SourceType, TextDocument


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A strategy and why it was chosen."""

    strategy: Strategy
    reason: str


def choose(document: TextDocument) -> Choice:
    """The strategy for a document, by media type and content."""
    media_type = document.media_type
    if media_type == MARKDOWN:
        return Choice(strategy=Strategy.DOCUMENT, reason=f"{media_type} has headings to follow")
    if is_code(media_type):
        return Choice(strategy=Strategy.FIXED, reason=f"{media_type} is source code, read as plain text")
    if media_type == JSON and document.source_type is SourceType.SLACK:
        return Choice(strategy=Strategy.FIXED, reason="a Slack export, read as plain text")
    if media_type in {MAIL, "application/mbox"}:
        return Choice(strategy=Strategy.SEMANTIC, reason=f"{media_type} is mail, read as plain text with paragraphs")
    if media_type in {PLAIN, "text/x-rst", "text/asciidoc"}:
        return Choice(strategy=Strategy.SEMANTIC, reason=f"{media_type} has paragraphs to gather")
    return Choice(strategy=Strategy.FIXED, reason=f"{media_type} has no structure that is followed")
