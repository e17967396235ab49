"""AUTO: which strategy suits a document."""

from dataclasses import dataclass

from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.delimited import CSV, TSV
from kbmesh_chunker.documents.media_type import PLAIN
from kbmesh_chunker.documents.source import Grammar, HeadingLayout, TextDocument

_BY_GRAMMAR = {
    Grammar.MARKDOWN: (Strategy.DOCUMENT, "has headings to follow"),
    Grammar.MAIL: (Strategy.EMAIL, "is mail"),
    Grammar.SLACK: (Strategy.SLACK, "holds messages of Slack"),
    Grammar.CODE: (Strategy.CODE, "is source code"),
}

_PROSE = {PLAIN, "text/x-rst", "text/asciidoc"}
_RECORDS = {CSV, TSV}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A strategy and why it was chosen."""

    strategy: Strategy
    reason: str


def choose(document: TextDocument) -> Choice:
    """The strategy for a document, by media type and content."""
    media_type = document.media_type
    if document.grammar in _BY_GRAMMAR:
        strategy, reason = _BY_GRAMMAR[document.grammar]
        return Choice(strategy=strategy, reason=f"{media_type} {reason}")
    if isinstance(document.layout, HeadingLayout) and document.layout.headings:
        return Choice(strategy=Strategy.DOCUMENT, reason=f"{media_type} has headings to follow")
    if media_type in _RECORDS:
        return Choice(strategy=Strategy.FIXED, reason=f"{media_type} is cut between its rows")
    if media_type in _PROSE or document.pages is not None or document.context:
        return Choice(strategy=Strategy.SEMANTIC, reason=f"{media_type} has paragraphs to gather")
    return Choice(strategy=Strategy.FIXED, reason=f"{media_type} has no structure that is followed")
