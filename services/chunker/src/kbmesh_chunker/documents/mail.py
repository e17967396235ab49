"""Mails: one document for what a mail says, and one for each document that it carries (RFC 5322).

The text is the body alone, with line ends as LF; a text that was pasted without a header stays as it is. The header is
context of every chunk. Where a mail says nothing, its header is the text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbmesh_rpc.errors import DocumentEmpty, Reason

from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.documents.mail_body import Attachment, BodyReader, MailContent
from kbmesh_chunker.documents.mail_entity import Entity, parse_mail
from kbmesh_chunker.documents.mail_header import (
    Address,
    clean,
    decode_words,
    message_ids,
    parse_addresses,
    parse_date,
)
from kbmesh_chunker.documents.mail_quotes import find_sections
from kbmesh_chunker.documents.media_type import MAIL
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import (
    Grammar,
    MailLayout,
    SourceDocument,
    SourceType,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)

MAX_LINE_CHARACTERS = 1_000
"""A line of the context, and a value that every chunk carries, at most."""
_HEADER_SIGN = re.compile(
    rb"[\xef\xbb\xbf \t\r\n]*(?:From [^\r\n:]{0,200}\d:\d\d[^\r\n]{0,100}\r?\n)?"
    rb"(?:From|To|Subject|Date|Sent|Cc|Received|Return-Path|Message-ID|MIME-Version|Content-Type|Delivered-To|Reply-To|"
    rb"Sender|X-[a-z-]{1,80})[ \t]*:",
    re.IGNORECASE,
)
_NAMES_CHARSET = re.compile(rb"charset\*?\s{0,8}=", re.IGNORECASE)


def read_mail(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """Reads message/rfc822. Raises DocumentEmpty, and DocumentUnreadable where it has too many parts."""
    data, is_decoded = mail_bytes(source.content)
    entity = parse_mail(data)
    reading.checkpoint()
    content = BodyReader(reading=reading, is_decoded=is_decoded).read(entity)
    return _documents(source, MailHeader.of(entity), content, reading)


def read_pasted_mail(source: SourceDocument, reading: Reading) -> Sequence[TextDocument]:
    """Reads a text that is to be cut as a mail, whether it has a header or not."""
    data, _ = mail_bytes(source.content)
    text = source.content if isinstance(source.content, str) else data.decode("utf-8", "replace")
    if _begins_with_header(data):
        return read_mail(source, reading)
    reading.spend_text(len(data))
    return (
        TextDocument(
            text=text,
            media_type=source.media_type,
            source_type=SourceType.EMAIL,
            grammar=Grammar.MAIL,
            filename=source.filename,
            layout=MailLayout(sections=find_sections(text)),
        ),
    )


def is_mail_file(content: bytes, *, charset: str) -> bool:
    """Whether a file that may be a mail is one, and is to be decoded as it says itself.

    Where it names no charset, the one that the file was sent with counts.
    """
    data, is_decoded = mail_bytes(content)
    return _begins_with_header(data) and (is_decoded or not charset or _NAMES_CHARSET.search(data) is not None)


def _begins_with_header(data: bytes) -> bool:
    return _HEADER_SIGN.match(data) is not None and len(parse_mail(data).header) > 1


def mail_bytes(content: str | bytes) -> tuple[bytes, bool]:
    """A mail as bytes, and whether it was decoded before it came."""
    if isinstance(content, str):
        return _with_line_ends(content.encode("utf-8", "replace")), True
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _with_line_ends(content.decode("utf-16", "replace").encode("utf-8", "replace")), True
    return _with_line_ends(content), False


def _with_line_ends(data: bytes) -> bytes:
    """A mail whose line ends were converted twice has a CR too many in each."""
    end = data.find(b"\n")
    return data.replace(b"\r\r\n", b"\r\n") if data[max(0, end - 2) : end] == b"\r\r" else data


@dataclass(frozen=True, kw_only=True)
class MailHeader:
    """What the header of a mail says, decoded. What it does not say is empty."""

    sender: str = ""
    to: str = ""
    cc: str = ""
    bcc: str = ""
    reply_to: str = ""
    date: str = ""
    """As it is written."""
    date_iso: str = ""
    """ISO 8601 with its offset; empty where the date is none."""
    subject: str = ""
    message_id: str = ""
    in_reply_to: str = ""
    thread: str = ""
    """The id of the mail that opened the thread; its own where it opens one."""
    all_lines: tuple[str, ...] = ()
    """Every field on a line."""

    @classmethod
    def of(cls, entity: Entity) -> "MailHeader":
        """Reads the header of a mail."""
        date = entity.first("date") or entity.first("sent") or entity.first("resent-date")
        ids = message_ids(entity.first("message-id"))
        replied = message_ids(entity.first("in-reply-to"))
        references = message_ids(entity.first("references"))
        return cls(
            sender=_addresses(entity.all("from") or entity.all("sender")),
            to=_addresses(entity.all("to")),
            cc=_addresses(entity.all("cc")),
            bcc=_addresses(entity.all("bcc")),
            reply_to=_addresses(entity.all("reply-to")),
            date=clean(decode_words(date)),
            date_iso=parse_date(date),
            subject=decode_words(entity.first("subject")),
            message_id=ids[0] if ids else "",
            in_reply_to=replied[0] if replied else "",
            thread=next(iter((*references, *replied, *ids)), ""),
            all_lines=tuple(f"{name.title()}: {decode_words(value)}" for name, value in entity.header),
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines without which a piece of the mail cannot be understood."""
        return tuple(f"{name}: {_bounded(value)}" for name, value in self._fields)

    @property
    def whole_lines(self) -> tuple[str, ...]:
        """The same lines, however long they are."""
        return tuple(f"{name}: {value}" for name, value in self._fields)

    @property
    def _fields(self) -> tuple[tuple[str, str], ...]:
        fields = (
            ("From", self.sender),
            ("To", self.to),
            ("Cc", self.cc),
            ("Date", self.date),
            ("Subject", self.subject),
        )
        return tuple((name, value) for name, value in fields if value)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What is known, by name."""
        known = {
            "from": self.sender,
            "to": self.to,
            "cc": self.cc,
            "bcc": self.bcc,
            "reply_to": self.reply_to,
            "date": self.date_iso,
            "subject": self.subject,
            "message_id": self.message_id,
            "in_reply_to": self.in_reply_to,
            "thread": self.thread,
        }
        return {name: value for name, value in known.items() if value}


def _documents(
    source: SourceDocument, header: MailHeader, content: MailContent, reading: Reading
) -> Sequence[TextDocument]:
    attached, warnings = _read_attachments(content.attachments, header, reading)
    names = ", ".join(dict.fromkeys(attachment.name for attachment in content.attachments if not attachment.is_message))
    text, context = content.text, header.lines
    sections = find_sections(text)
    if not is_visible(text):
        repeated = [line for line in header.all_lines if line.startswith("Subject:")][1:]
        lines = [*(header.whole_lines or header.all_lines), *repeated, *([f"Attachments: {names}"] if names else [])]
        text, context = "\n".join(lines), ()
        sections = find_sections(text, quotes=False)
    if not is_visible(text) and not attached:
        raise DocumentEmpty
    metadata = {**header.metadata, **({"attachments": names} if names else {})}
    mail = TextDocument(
        text=text,
        media_type=MAIL,
        source_type=SourceType.EMAIL,
        grammar=Grammar.MAIL,
        filename=source.filename,
        title=header.subject,
        metadata=metadata,
        chunk_metadata={name: _bounded(value) for name, value in metadata.items()},
        context=context,
        layout=MailLayout(sections=sections),
        warnings=(*content.warnings, *warnings),
    )
    return (mail, *attached)


def _read_attachments(
    attachments: Iterable[Attachment], header: MailHeader, reading: Reading
) -> tuple[list[TextDocument], list[Warning]]:
    documents: list[TextDocument] = []
    warnings: list[Warning] = []
    unread: list[str] = []
    for attachment in attachments:
        if attachment.unread:
            unread += [] if attachment.is_signature else [attachment.name]
            continue
        inner = SourceDocument(content=attachment.content, media_type=attachment.media_type, filename=attachment.name)
        found, problems = reading.inner(inner, name=attachment.name)
        warnings += problems
        documents += [_of_mail(document, attachment, header) for document in found]
    if unread:
        names = ", ".join(unread)
        warnings.append(
            Warning(
                reason=Reason.UNSUPPORTED_MEDIA_TYPE,
                message=f"attachments that hold no text that can be read: {_bounded(names)}",
                metadata={"attachments": _bounded(names)},
            )
        )
    return documents, warnings


def _of_mail(document: TextDocument, attachment: Attachment, header: MailHeader) -> TextDocument:
    """A document that came with a mail, which says so."""
    if attachment.is_message:
        by = {"forwarded_by": _bounded(header.sender), "forwarded_subject": _bounded(header.subject)}
        # What it does not say of itself is not what the mail around it says of itself.
        unknown = dict.fromkeys([*header.metadata, "attachments"], "")
        return replace(document, chunk_metadata={**unknown, **_filled(by), **document.chunk_metadata})
    about = {
        "attachment": attachment.name,
        "mail_from": _bounded(header.sender),
        "mail_subject": _bounded(header.subject),
        "mail_date": header.date_iso,
        "mail_message_id": _bounded(header.message_id),
    }
    of = f' of the mail "{_bounded(header.subject)}"' if header.subject else " of a mail"
    sender = f" from {_bounded(header.sender)}" if header.sender else ""
    date = f", {header.date_iso[:10]}" if header.date_iso else ""
    return replace(
        document,
        chunk_metadata={**_filled(about), **document.chunk_metadata},
        context=(f"Attachment {attachment.name}{of}{sender}{date}", *document.context),
    )


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _addresses(values: Sequence[str]) -> str:
    addresses: list[Address] = [address for value in values for address in parse_addresses(value)]
    return ", ".join(map(str, addresses))


def _bounded(value: str) -> str:
    return value if len(value) <= MAX_LINE_CHARACTERS else value[: MAX_LINE_CHARACTERS - 1] + "…"
