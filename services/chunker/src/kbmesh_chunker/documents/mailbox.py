"""Mailboxes: many mails in one file (RFC 4155, mboxo, mboxrd, mboxcl)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable

from kbmesh_chunker.documents.mail import mail_bytes, read_mail
from kbmesh_chunker.documents.media_type import MAIL
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    SourceDocument,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

# A postmark has an address, or what stands for one, and a date with a time; lists put blanks into the address.
_POSTMARK = re.compile(
    rb"From (?:[^\r\n]{0,300}?\d{1,2}:\d\d[^\r\n]{0,100}|[^\s@]{1,200}@[^\s@]{1,200}[ \t]*|-[ \t]*)(?:\r\n|\n)"
)
# What no author writes by chance: the whole date that a mail program puts there (RFC 4155, appendix A).
_DATED_POSTMARK = re.compile(
    rb"From [^\r\n]{0,300}?\b(?:mon|tue|wed|thu|fri|sat|sun),? +"
    rb"(?:[a-z]{3} +\d{1,2}|\d{1,2} +[a-z]{3}),?(?: +\d{4})? +\d{1,2}:\d\d[^\r\n]{0,100}(?:\r\n|\n)",
    re.IGNORECASE,
)
_ANY_FIELD = re.compile(rb"[^\r\n]*(?:\r\n|\n)(?:[ \t][^\r\n]*(?:\r\n|\n)){0,100}[!-9;-~]{1,100}[ \t]*:")
_FIELD = re.compile(
    rb"(?:>?From (?![ \t]*:)[^\r\n]*(?:\r\n|\n))?"
    rb"(?:from|to|cc|subject|date|message-id|received|return-path|reply-to|sender|mime-version|content-[a-z-]+|"
    rb"delivered-to|status|x-[!-9;-~]{1,80}|list-[a-z-]+|in-reply-to|references|resent-[a-z-]+|dkim-signature|"
    rb"authentication-results|envelope-to|delivery-date|path|newsgroups|organization|user-agent|importance|"
    rb"arc-[a-z-]+|received-spf|domainkey-signature|thread-topic|thread-index|precedence|errors-to|lines|"
    rb"approved|xref|bcc|comments|keywords)[ \t]*:",
    re.IGNORECASE,
)
_HEADER_END = re.compile(rb"\r?\n[ \t]*\r?\n")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,12})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_MAX_HEADER_BYTES = 262_144


def read_mailbox(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """Reads application/mbox; each mail is read alone. Raises DocumentUnreadable where it holds too many mails or none
    that can be read."""
    data, is_decoded = mail_bytes(source.content)
    starts = list(_message_starts(data))
    if not starts:
        return read_mail(replace(source, media_type=MAIL), reading)
    documents: list[TextDocument] = []
    warnings: list[Warning] = []
    places = list(zip(starts, [*starts[1:], len(data)], strict=True))
    if data[: starts[0]].strip():
        places.insert(0, (0, starts[0]))
    for number, (start, end) in enumerate(places, start=1):
        message = _ESCAPED.sub(rb"\1", data[_after_postmark(data, start, end) : end])
        if not message.strip():
            continue
        content: bytes | str = message.decode("utf-8", "replace") if is_decoded else message
        inner = SourceDocument(content=content, media_type=MAIL)
        found, problems = reading.inner(inner, name=f"message {number}")
        documents += (replace(document, abreast=index == 0) for index, document in enumerate(found))
        warnings += problems
    if not documents:
        if not warnings:
            raise DocumentEmpty
        raise DocumentUnreadable("application/mbox", f"none of its {len(places)} mails could be read")
    first = documents[0]
    documents[0] = replace(first, warnings=(*warnings, *first.warnings))
    return documents


def _message_starts(data: bytes) -> Iterator[int]:
    """Where the postmarks of the mails begin."""
    position = 0
    while (start := _next_postmark(data, position)) is not None:
        yield start
        position = _by_length(data, start) or start + 5


def _next_postmark(data: bytes, position: int) -> int | None:
    while (position := data.find(b"From ", position)) >= 0:
        if _is_postmark(data, position):
            return position
        position += 5
    return None


def _is_postmark(data: bytes, position: int) -> bool:
    """Whether a mail begins here: after a blank line, with a postmark, and a field below it.

    Some programs write no blank line: then the postmark has a whole date, and two fields or more below it.
    """
    before = data[max(0, position - 4) : position]
    parted = before.endswith((b"\n\n", b"\n\r\n")) or (position <= 3 and not before.strip(b"\r\n\xef\xbb\xbf"))
    if not parted and not before.endswith(b"\n"):
        return False
    postmark = (_POSTMARK if parted else _DATED_POSTMARK).match(data, position)
    field = _FIELD.match(data, postmark.end()) if postmark is not None else None
    return field is not None and (parted or _ANY_FIELD.match(data, field.end()) is not None)


def _by_length(data: bytes, start: int) -> int | None:
    """Where the mail ends by its Content-Length, if another begins there."""
    header_end = _HEADER_END.search(data, start, start + _MAX_HEADER_BYTES)
    if header_end is None:
        return None
    length = _LENGTH.search(data, start, header_end.start() + 1)
    if length is None:
        return None
    end = header_end.end() + int(length.group(1))
    for place in range(end, min(end + 3, len(data))):
        if _is_postmark(data, place):
            return place
    return end if end == len(data) else None


def _after_postmark(data: bytes, start: int, end: int) -> int:
    postmark = _POSTMARK.match(data, start, end)
    return postmark.end() if postmark else start
