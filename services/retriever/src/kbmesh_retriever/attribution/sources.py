"""Where a fragment comes from, in the words of its kind of source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from kbmesh_retriever.catalog.port import Document

PREVIEW_CHARACTERS = 160

_LAST_WORD = regex.compile(r"\s\S*\Z")

_FIELDS_BY_SOURCE: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]] = {
    "slack": (
        ("Channel", ("channel", "channel_name")),
        ("User", ("user", "user_name", "author", "users", "participants")),
        ("Time", ("timestamp", "ts", "start_time", "thread_ts", "date")),
    ),
    "email": (
        ("From", ("from", "sender")),
        ("To", ("to",)),
        ("Subject", ("subject",)),
        ("Date", ("date", "sent_at")),
    ),
    "code": (
        ("Repository", ("repository", "repo")),
        ("Path", ("path", "file_path", "filename")),
        ("Symbol", ("symbol", "qualified_name", "name")),
        ("Language", ("language",)),
    ),
    "ticket": (
        ("Ticket", ("ticket", "key", "issue")),
        ("Status", ("status",)),
    ),
    "web_page": (("Site", ("site", "domain")),),
}
"""For each kind of source its labels, and the metadata that may hold the value, the most telling first."""


@dataclass(frozen=True, kw_only=True)
class DisplayField:
    """A labelled line to show with a result."""

    label: str
    value: str


def display_fields(
    document: Document, metadata: Mapping[str, str], *, heading_path: Sequence[str], pages: Sequence[int]
) -> tuple[DisplayField, ...]:
    """What to show beside a fragment, most telling first. What is not known is left out."""
    known = {**document.metadata, **metadata}
    fields = [
        DisplayField(label=label, value=value)
        for label, names in _FIELDS_BY_SOURCE.get(document.source_type, ())
        if (value := next((known[name] for name in names if known.get(name)), ""))
    ]
    if document.source_type == "email" and document.author and all(field.label != "From" for field in fields):
        fields.insert(0, DisplayField(label="From", value=document.author))
    if document.source_type == "code" and (lines := _lines(known)):
        fields.append(DisplayField(label="Lines", value=lines))
    if document.source_type not in {"slack", "email"}:
        if document.author:
            fields.append(DisplayField(label="Author", value=document.author))
        if heading_path:
            fields.append(DisplayField(label="Section", value=" › ".join(heading_path)))
    if pages:
        fields.append(DisplayField(label="Pages" if len(pages) > 1 else "Page", value=_page_range(pages)))
    return tuple(fields)


def label_of(document: Document, knowledge_base: str, *, heading_path: Sequence[str], pages: Sequence[int]) -> str:
    """Title, place and link of a fragment in one line."""
    below_title = heading_path[1:] if heading_path and heading_path[0] == document.title else heading_path
    place = [" › ".join(below_title)] if below_title else []
    if pages:
        place.append(f"{'pages' if len(pages) > 1 else 'page'} {_page_range(pages)}")
    label = ", ".join([document.title or document.external_id, *place]) + f" ({knowledge_base})"
    return _on_one_line(f"{label} {document.uri}")


def preview_of(text: str) -> str:
    """The first words of a text on one line, with an ellipsis where there are more."""
    line = _on_one_line(text)
    if len(line) <= PREVIEW_CHARACTERS:
        return line
    cut = line[:PREVIEW_CHARACTERS]
    # A cut inside a word goes back to its start, a cut inside a word as long as the line stays.
    shorter = _LAST_WORD.sub("", cut) if line[PREVIEW_CHARACTERS] != " " else cut
    return shorter.rstrip() + "…"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _lines(metadata: Mapping[str, str]) -> str:
    first = metadata.get("start_line") or metadata.get("line_start") or metadata.get("first_line")
    last = metadata.get("end_line") or metadata.get("line_end") or metadata.get("last_line")
    return metadata.get("lines") or "–".join(dict.fromkeys(number for number in (first, last) if number))


def _page_range(pages: Sequence[int]) -> str:
    first, last = min(pages), max(pages)
    return str(first) if first == last else f"{first}–{last}"
