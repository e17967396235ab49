"""Where a fragment comes from, in the words of its kind of source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import regex

from kbmesh_retriever.catalog.port import Document

PREVIEW_CHARACTERS = 160

_LAST_WORD = regex.compile(r"\s\S*\Z")

_FIELDS_BY_SOURCE: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]] = {
    "slack": (
        ("Channel", ("channel", "channel_name")),
        ("User", ("user", "user_name", "author", "users", "participants")),
        ("Time", ("timestamp", "ts", "start_time", "start_ts", "thread_ts", "date")),
        ("Thread", ("thread_ts",)),
    ),
    "email": (
        ("From", ("from", "sender")),
        ("To", ("to",)),
        ("Subject", ("subject",)),
        ("Date", ("date", "sent_at")),
        ("Forwarded by", ("forwarded_by",)),
    ),
    "code": (
        ("Repository", ("repository", "repo")),
        ("Path", ("path", "file_path", "filename")),
        ("Symbol", ("symbol", "qualified_name", "name", "symbols")),
        ("Language", ("language",)),
    ),
    "ticket": (
        ("Ticket", ("ticket", "key", "issue")),
        ("Status", ("status",)),
    ),
    "web_page": (("Site", ("site", "domain")),),
}
"""For each kind of source its labels, and the metadata that may hold the value, the most telling first."""
_OWN_HEADER = ("from", "subject", "message_id", "forwarded_by")
"""What a mail says of itself on each of its fragments, one in a mailbox too."""
_OWN_TITLES = ("subject", "mail_subject")
_TIMES = frozenset({"timestamp", "ts", "start_ts", "thread_ts"})
_TIMESTAMP = regex.compile(r"(\d{9,11})(?:\.\d+)?")
"""Seconds since 1970 as Slack writes them."""


@dataclass(frozen=True, kw_only=True)
class DisplayField:
    """A labelled line to show with a result."""

    label: str
    value: str


def display_fields(
    document: Document, metadata: Mapping[str, str], *, heading_path: Sequence[str], pages: Sequence[int]
) -> tuple[DisplayField, ...]:
    """What to show beside a fragment, most telling first. What is not known is left out.

    A document may hold others: of an attachment, a mail of a mailbox or a channel of an export its own is shown.
    """
    kind = _kind_of(document, metadata)
    fields = _attached(metadata)
    is_part = bool(fields) or kind != document.source_type
    # A mail within another one has a header of its own; what it lacks, the one around it does not tell.
    own = is_part or (kind == "email" and any(metadata.get(name) for name in _OWN_HEADER))
    known = metadata if own else {**document.metadata, **metadata}
    fields += [
        DisplayField(label=label, value=value)
        for label, names in _FIELDS_BY_SOURCE.get(kind, ())
        if (value := next((_shown(name, known[name]) for name in names if known.get(name)), ""))
    ]
    if not own and kind == "email" and document.author and all(field.label != "From" for field in fields):
        fields.insert(0, DisplayField(label="From", value=document.author))
    if kind == "code" and (lines := _lines(known)):
        fields.append(DisplayField(label="Lines", value=lines))
    if kind not in {"slack", "email"}:
        if document.author and not is_part:
            fields.append(DisplayField(label="Author", value=document.author))
        if heading_path:
            fields.append(DisplayField(label="Section", value=" › ".join(filter(None, heading_path))))
    if pages:
        of = f" of {metadata['attachment']}" if metadata.get("attachment") else ""
        fields.append(DisplayField(label="Pages" if len(pages) > 1 else "Page", value=_page_range(pages) + of))
    return tuple(fields)


def label_of(
    document: Document,
    knowledge_base: str,
    metadata: Mapping[str, str],
    *,
    heading_path: Sequence[str],
    pages: Sequence[int],
) -> str:
    """Title, place and link of a fragment in one line."""
    below_title = heading_path[1:] if heading_path and heading_path[0] == document.title else heading_path
    place = [metadata["attachment"]] if metadata.get("attachment") else []
    place += [" › ".join(filter(None, below_title))] if any(below_title) else []
    if pages:
        place.append(f"{'pages' if len(pages) > 1 else 'page'} {_page_range(pages)}")
    label = ", ".join([title_of(document, metadata), *place]) + f" ({knowledge_base})"
    return _on_one_line(f"{label} {document.uri}")


def title_of(document: Document, metadata: Mapping[str, str]) -> str:
    """How a fragment's document is called: by its title, or as the part of it that the fragment is from."""
    if document.title:
        return document.title
    own = next((metadata[name] for name in _OWN_TITLES if metadata.get(name)), "")
    if not own and metadata.get("channel") and _kind_of(document, metadata) == "slack":
        own = f"#{metadata['channel'].removeprefix('#')}"
    return own or document.external_id


def _kind_of(document: Document, metadata: Mapping[str, str]) -> str:
    """The kind of source of a fragment, which may be from a document within another one."""
    if document.source_type in {"slack", "code", "ticket"}:
        return document.source_type
    is_slack = bool(metadata.get("start_ts") and metadata.get("message_count"))
    if is_slack:
        return "slack"
    if metadata.get("attachment"):
        return "code" if metadata.get("language") and metadata.get("start_line") else "file"
    if metadata.get("message_id") or metadata.get("forwarded_by") or (metadata.get("from") and metadata.get("section")):
        return "email"
    return document.source_type


def _attached(metadata: Mapping[str, str]) -> list[DisplayField]:
    """What came with a mail, and with which."""
    if not metadata.get("attachment"):
        return []
    fields = [DisplayField(label="Attachment", value=metadata["attachment"])]
    sender = f"from {metadata['mail_from']}" if metadata.get("mail_from") else ""
    mail = " ".join(part for part in (metadata.get("mail_subject", ""), sender) if part)
    if of := ", ".join(part for part in (mail, metadata.get("mail_date", "")) if part):
        fields.append(DisplayField(label="Of mail", value=of))
    return fields


def _shown(name: str, value: str) -> str:
    """A time of Slack's as a date and a time in UTC; else the value as it is."""
    found = _TIMESTAMP.fullmatch(value) if name in _TIMES else None
    return datetime.fromtimestamp(int(found[1]), UTC).strftime("%Y-%m-%d %H:%M") if found else value


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
