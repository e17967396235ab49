"""What is shown beside a fragment, by the kind of place it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import urlsplit

import regex

from kbmesh_retriever.catalog.port import Document


class DisplayKind(StrEnum):
    """The kind of a block."""

    GENERIC = "generic"
    """Title and whatever else is known."""
    SLACK = "slack"
    MAIL = "mail"
    WEB_PAGE = "web_page"
    PDF = "pdf"
    CODE = "code"
    TICKET = "ticket"


@dataclass(frozen=True, kw_only=True)
class DisplayField:
    """A labelled line to show with a result."""

    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Display:
    """A block."""

    kind: DisplayKind
    fields: tuple[DisplayField, ...]
    """The most telling first."""


_FIELDS: Mapping[DisplayKind, Sequence[tuple[str, tuple[str, ...]]]] = {
    DisplayKind.SLACK: (
        ("Channel", ("channel", "channel_name")),
        ("User", ("user", "user_name", "author", "users", "participants")),
        ("Time", ("timestamp", "ts", "start_time", "start_ts", "thread_ts", "date")),
        ("Thread", ("thread_ts",)),
    ),
    DisplayKind.MAIL: (
        ("From", ("from", "sender")),
        ("To", ("to",)),
        ("Subject", ("subject",)),
        ("Date", ("date", "sent_at")),
        ("Forwarded by", ("forwarded_by",)),
    ),
    DisplayKind.WEB_PAGE: (("Site", ("site", "site_name", "domain")),),
    DisplayKind.CODE: (
        ("Repository", ("repository", "repo")),
        ("Path", ("path", "file_path", "filename")),
        ("Cells", ("cells",)),
        ("Symbol", ("symbol", "qualified_name", "name", "symbols")),
        ("Part", ("part",)),
        ("Language", ("language",)),
    ),
    DisplayKind.TICKET: (
        ("Ticket", ("ticket", "key", "issue")),
        ("Status", ("status",)),
        ("Assignee", ("assignee",)),
        ("Reporter", ("reporter", "creator")),
        ("Participants", ("people", "participants", "watchers")),
    ),
}
"""For each kind its labels, and the metadata that may hold the value, the most telling first."""
_OWN_HEADER = ("from", "subject", "message_id", "forwarded_by")
"""What a mail says of itself on each of its fragments, one in a mailbox too."""
_TIMES = frozenset({"timestamp", "ts", "start_ts", "thread_ts"})
_TIMESTAMP = regex.compile(r"(\d{9,11})(?:\.\d+)?")
"""Seconds since 1970 as Slack writes them."""
_KINDS_BY_SOURCE: Mapping[str, DisplayKind] = {
    "slack": DisplayKind.SLACK,
    "email": DisplayKind.MAIL,
    "web_page": DisplayKind.WEB_PAGE,
    "code": DisplayKind.CODE,
    "ticket": DisplayKind.TICKET,
}
_KINDS_BY_TYPE: Mapping[str, DisplayKind] = {
    "application/pdf": DisplayKind.PDF,
    "message/rfc822": DisplayKind.MAIL,
    "application/mbox": DisplayKind.MAIL,
    "text/html": DisplayKind.WEB_PAGE,
    "application/xhtml+xml": DisplayKind.WEB_PAGE,
}
_NO_AUTHOR = frozenset({DisplayKind.SLACK, DisplayKind.MAIL})
"""Who wrote it is among the block's own fields."""
_TITLED = frozenset({DisplayKind.GENERIC, DisplayKind.WEB_PAGE, DisplayKind.PDF, DisplayKind.TICKET})


def display_of(
    document: Document, metadata: Mapping[str, str], *, heading_path: Sequence[str], pages: Sequence[int]
) -> Display:
    """The block of a fragment. What is not known is left out.

    A document may hold others: of an attachment, a mail of a mailbox or a channel of an export its own is shown.
    """
    kind = kind_of(document, metadata)
    fields = _attached(metadata)
    is_part = bool(fields) or kind is not _kind_of_document(document)
    # A mail within another one has a header of its own; what it lacks, the one around it does not tell.
    own = is_part or (kind is DisplayKind.MAIL and any(metadata.get(name) for name in _OWN_HEADER))
    known = metadata if own else {**document.metadata, **metadata}
    found = [
        DisplayField(label=label, value=value)
        for label, names in _FIELDS.get(kind, ())
        if (value := next((_shown(name, known[name]) for name in names if known.get(name)), ""))
    ]
    if kind is DisplayKind.CODE:
        found = _of_code(document, known, found, is_part=is_part)
    if kind is DisplayKind.WEB_PAGE and not is_part and "Site" not in _labels(found) and (site := _host(document.uri)):
        found.insert(0, DisplayField(label="Site", value=site))
    if kind is DisplayKind.MAIL and not own and document.author and "From" not in _labels(found):
        found.insert(0, DisplayField(label="From", value=document.author))
    fields += found
    if kind in _TITLED and not is_part and document.title:
        fields.append(DisplayField(label="Title", value=document.title))
    if kind not in _NO_AUTHOR:
        if document.author and not is_part:
            fields.append(DisplayField(label="Author", value=document.author))
        # Of code the headings are the symbols around it, which its own symbol names already.
        if any(heading_path) and not (kind is DisplayKind.CODE and "Symbol" in _labels(found)):
            fields.append(DisplayField(label="Section", value=" › ".join(filter(None, heading_path))))
    if pages:
        of = f" of {metadata['attachment']}" if metadata.get("attachment") else ""
        fields.append(DisplayField(label="Pages" if len(pages) > 1 else "Page", value=page_range(pages) + of))
    return Display(kind=kind, fields=tuple(fields))


def kind_of(document: Document, metadata: Mapping[str, str]) -> DisplayKind:
    """The kind of a fragment, which may be from a document within another one."""
    of_document = _kind_of_document(document)
    if of_document in {DisplayKind.SLACK, DisplayKind.CODE, DisplayKind.TICKET}:
        return of_document
    if metadata.get("start_ts") and metadata.get("message_count"):
        return DisplayKind.SLACK
    # Each chunk of source code tells its lines, also in a notebook and in what came with a mail.
    is_code = bool(metadata.get("language") and metadata.get("start_line"))
    if name := metadata.get("attachment"):
        if is_code:
            return DisplayKind.CODE
        return DisplayKind.PDF if name.lower().endswith(".pdf") else DisplayKind.GENERIC
    if metadata.get("message_id") or metadata.get("forwarded_by") or (metadata.get("from") and metadata.get("section")):
        return DisplayKind.MAIL
    return DisplayKind.CODE if is_code else of_document


def page_range(pages: Sequence[int]) -> str:
    """Pages as a reader is told of them: 3, or 3–5."""
    first, last = min(pages), max(pages)
    return str(first) if first == last else f"{first}–{last}"


def _kind_of_document(document: Document) -> DisplayKind:
    by_source = _KINDS_BY_SOURCE.get(document.source_type)
    return by_source or _KINDS_BY_TYPE.get(document.media_type.partition(";")[0].strip(), DisplayKind.GENERIC)


def _of_code(
    document: Document, known: Mapping[str, str], found: list[DisplayField], *, is_part: bool
) -> list[DisplayField]:
    """Repository, path, lines and symbol, in this order."""
    labels = _labels(found)
    if "Path" not in labels and not is_part:
        # What callers name a file by, where nothing else tells where it is.
        found.insert(
            labels.index("Repository") + 1 if "Repository" in labels else 0, _field("Path", document.external_id)
        )
    if lines := _lines(known):
        after = next(
            (place for place, one in enumerate(found) if one.label not in {"Repository", "Path", "Cells"}), None
        )
        found.insert(len(found) if after is None else after, _field("Lines", lines))
    return found


def _field(label: str, value: str) -> DisplayField:
    return DisplayField(label=label, value=value)


def _labels(fields: Sequence[DisplayField]) -> list[str]:
    return [field.label for field in fields]


def _host(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        return parts.hostname or "" if parts.scheme in {"http", "https"} else ""
    except ValueError:
        return ""


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


def _lines(metadata: Mapping[str, str]) -> str:
    first = metadata.get("start_line") or metadata.get("line_start") or metadata.get("first_line")
    last = metadata.get("end_line") or metadata.get("line_end") or metadata.get("last_line")
    return metadata.get("lines") or "–".join(dict.fromkeys(number for number in (first, last) if number))
