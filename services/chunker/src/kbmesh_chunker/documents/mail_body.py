"""What a mail says and what is attached to it, found in the tree of its parts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kbmesh_rpc.errors import DocumentUnreadable, Reason

from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.documents.flowed_text import unflow
from kbmesh_chunker.documents.mail_alternatives import is_better, left_out_words
from kbmesh_chunker.documents.mail_charset import decode_mail_bytes, known_codec
from kbmesh_chunker.documents.mail_entity import (
    MAX_NESTING,
    Entity,
    Multipart,
    guess_boundary,
    split_multipart,
)
from kbmesh_chunker.documents.mail_header import FieldValue, clean, decode_words, parse_field
from kbmesh_chunker.documents.media_type import HTML, MAIL, binary_type, parse_media_type, type_by_name
from kbmesh_chunker.documents.reading import Reading
from kbmesh_chunker.documents.source import Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.documents.transfer_encoding import undo_transfer_encoding, uuencoded_blocks

_MESSAGES = {MAIL, "message/global", "message/partial", "message/news", "text/rfc822-headers", "text/rfc822"}
_STATUS = {"message/delivery-status", "message/disposition-notification", "message/global-delivery-status",
           "message/feedback-report", "message/external-body", "message/tracking-status"}  # fmt: skip
_ENRICHED_MARK = re.compile(r"<(<)|</?[A-Za-z0-9-]{1,60}>")
_MAX_NOTICE_BYTES = 1_000
_PAGES = {HTML, "application/xhtml+xml", "text/x-amp-html", "text/watch-html"}
_MARKED_UP = {"text/enriched", "text/richtext"}
_TEXT_KINDS = {"text/plain", "text", *_PAGES, *_MARKED_UP}
_NO_BODY = {"text/calendar", "text/x-vcalendar", "text/vcard", "text/x-vcard", "text/directory", "text/rtf"}
_TWINS = {"text/x-amp-html", "text/watch-html", "text/rtf", "application/rtf", *_MARKED_UP}
"""What few programs show of several texts that say the same."""
_UNREAD = {
    "application/ms-tnef", "application/vnd.ms-tnef", "application/pkcs7-mime", "application/x-pkcs7-mime",
}  # fmt: skip
_SIGNATURES = {
    "application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature",
    "application/pgp-encrypted",
}  # fmt: skip
_UNMISSED = {"script", "style"}
_NO_DOCUMENTS = ("image/", "audio/", "video/", "font/", "model/")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MAGIC_BYTES = 4096
_LINE_ENDS = re.compile(r"\r\n?")


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A document that a mail carries."""

    name: str
    """For people; made up where it has none."""
    media_type: str
    """Without parameters."""
    content: bytes | str
    """Text where its charset is known."""
    is_message: bool = False
    """Whether it is a mail that was forwarded."""
    unread: bool = False
    """Whether it is of a kind that is not read, and has no content here."""
    is_signature: bool = False
    """Whether it only proves who wrote the mail, so that nobody misses it."""


@dataclass(kw_only=True)
class MailContent:
    """What a mail, or a part of one, holds."""

    fragments: list[str] = field(default_factory=list)
    """Its texts, in order. Lines end with LF."""
    attachments: list[Attachment] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    plain: bool = True
    """Whether its texts are plain text and not made of another kind."""
    is_twin: bool = False
    """Whether it is of a kind that few programs show, so that others that say the same are better."""

    @property
    def text(self) -> str:
        """Its texts, one after the other."""
        texts = [fragment.strip("\n") for fragment in self.fragments if is_visible(fragment)]
        return "\n\n".join(texts)

    def extend(self, other: "MailContent") -> None:
        """Adds what a part holds."""
        self.fragments += other.fragments
        self.attachments += other.attachments
        self.warnings += other.warnings
        self.plain = self.plain and other.plain


@dataclass(kw_only=True)
class BodyReader:
    """Reads the tree of one mail."""

    reading: Reading
    is_decoded: bool
    """Whether the mail came as text, so that 8-bit text in it is UTF-8 whatever it says."""
    _parts: int = 0

    def read(self, entity: Entity, depth: int = 0) -> MailContent:
        """Raises DocumentUnreadable where it has too many parts."""
        self.reading.checkpoint()
        declared = entity.content_type
        kind = declared.value
        if kind.startswith("multipart/"):
            return self._read_multipart(entity, declared, depth)
        return self._read_leaf(entity, declared, depth)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > self.reading.limits.max_parts:
            raise DocumentUnreadable(MAIL, f"a mail has more than {self.reading.limits.max_parts} parts")

    def _read_multipart(self, entity: Entity, declared: FieldValue, depth: int) -> MailContent:
        if depth >= MAX_NESTING:
            content = self._read_text(entity, FieldValue(value="text/plain"))
            content.warnings.append(_warning(f"parts are nested more than {MAX_NESTING} deep; kept as they stand"))
            return content
        found = _split(entity)
        self._count(len(found.places))
        if not found.places:
            rest = found.unshown if found.found else entity.body
            if not rest.strip():
                return MailContent()
            # No part anywhere: it is one text, whatever it says.
            content = self._read_text(entity, FieldValue(value="text/plain"))
            content.warnings.append(_warning(f"a {declared.value} has no parts; it was read as text"))
            return content
        default_type = MAIL if declared.value == "multipart/digest" else "text/plain"
        parts = list(found.parts(default_type))
        children = [self.read(part, depth + 1) for part in parts]
        if declared.value == "multipart/alternative":
            for part, child in zip(parts, children, strict=True):
                attached = parse_field(part.first("content-disposition")).value == "attachment"
                child.is_twin = part.content_type.value in _TWINS and not attached
            content = _alternative(children)
        else:
            content = _together(children)
        if declared.value == "multipart/encrypted":
            message = "the mail is encrypted; its text cannot be read"
            content.warnings.append(_warning(message, Reason.UNSUPPORTED_MEDIA_TYPE))
        content.warnings += _unshown(found)
        return content

    def _read_leaf(self, entity: Entity, declared: FieldValue, depth: int) -> MailContent:
        kind = declared.value
        disposition = parse_field(entity.first("content-disposition"))
        filename = _filename(disposition, declared)
        if kind in _MESSAGES:
            return self._attached_message(entity, kind, filename)
        if kind in _STATUS:
            return self._read_text(entity, FieldValue(value="text/plain"))
        attached = disposition.value == "attachment" or (bool(filename) and depth > 0)
        inline = kind in _TEXT_KINDS or (kind.startswith("text/") and kind not in _NO_BODY)
        if inline and not attached:
            return self._read_text(entity, declared)
        return self._attached(entity, declared, filename)

    def _read_text(self, entity: Entity, declared: FieldValue) -> MailContent:
        charset = declared.parameters.get("charset", "")
        decoded = undo_transfer_encoding(entity.body, entity.first("content-transfer-encoding"), is_text=True)
        if self.is_decoded and decoded.identity:
            charset = "utf-8"
        found = decode_mail_bytes(decoded.data, charset)
        text = _LINE_ENDS.sub("\n", found.text)
        warnings = [
            _warning(f"text of the mail: {problem}", charset=charset)
            for problem in (decoded.problem, found.problem)
            if problem
        ]
        tail = _LINE_ENDS.sub("\n", decode_mail_bytes(decoded.tail, "").text) if decoded.tail else ""
        content = MailContent(warnings=warnings)
        kind = declared.value
        if kind in _PAGES:
            self._add_html(text, content)
        elif kind in _MARKED_UP:
            content.plain = False
            content.fragments.append(_ENRICHED_MARK.sub(r"\1", text))
        else:
            if declared.parameters.get("format", "").lower() == "flowed":
                text = unflow(text, delete_space=declared.parameters.get("delsp", "").lower() == "yes")
            content.fragments.append(_without_files(text, content))
        if tail:
            content.fragments.append(tail)
        self.reading.spend_text(sum(len(fragment.encode("utf-8", "replace")) for fragment in content.fragments))
        return content

    def _add_html(self, html: str, content: MailContent) -> None:
        # Loads a parser that a mail without HTML does not need.
        from kbmesh_chunker.documents.html import html_to_markdown, left_out_warning

        content.plain = False
        try:
            found = html_to_markdown(html, self.reading)
        except DocumentUnreadable as error:
            self.reading.checkpoint()
            content.fragments.append(html)
            content.warnings.append(
                _warning(f"the mail's HTML could not be read and was kept as it stands: {error.message}")
            )
            return
        content.fragments.append(_LINE_ENDS.sub("\n", found.text.replace("\u00a0", " ")))
        if set(found.left_out) - _UNMISSED:
            content.warnings += left_out_warning(found)

    def _attached_message(self, entity: Entity, kind: str, filename: str) -> MailContent:
        decoded = undo_transfer_encoding(entity.body, entity.first("content-transfer-encoding"), is_text=True)
        data = decoded.data + decoded.tail
        content: bytes | str = data
        if self.is_decoded and decoded.identity:
            content = data.decode("utf-8", "replace")
        name = filename or clean(decode_words(entity.first("content-description"))) or "forwarded mail"
        attachment = Attachment(name=name, media_type=MAIL, content=content, is_message=True)
        return MailContent(attachments=[attachment] if data.strip() else [])

    def _attached(self, entity: Entity, declared: FieldValue, filename: str) -> MailContent:
        kind = declared.value
        name = filename or clean(decode_words(entity.first("content-description"))) or f"unnamed {kind}"
        if kind in _UNREAD | _SIGNATURES or kind.startswith(_NO_DOCUMENTS) or name.lower() == "winmail.dat":
            is_signature = kind in _SIGNATURES
            unread = Attachment(name=name, media_type=kind, content=b"", unread=True, is_signature=is_signature)
            return MailContent(attachments=[unread])
        is_text = kind.startswith("text/")
        decoded = undo_transfer_encoding(entity.body, entity.first("content-transfer-encoding"), is_text=is_text)
        data = decoded.data + decoded.tail
        warnings = [_warning(f"{name}: {decoded.problem}", part=name)] if decoded.problem else []
        content: bytes | str = data
        if is_text:
            charset = declared.parameters.get("charset", "")
            if self.is_decoded and decoded.identity:
                content = data.decode("utf-8", "replace")
            elif known_codec(charset) or kind not in {HTML, "text/xml"}:
                found = decode_mail_bytes(data, charset)
                content = found.text
                if found.problem:
                    warnings.append(_warning(f"{name}: {found.problem}", part=name))
        if not data.strip() and not filename:
            return MailContent(warnings=warnings)
        attachment = _as_document(Attachment(name=name, media_type=kind, content=content))
        return MailContent(attachments=[attachment], warnings=warnings)


def _as_document(attachment: Attachment) -> Attachment:
    """An attachment that does not say what it is, as what it is: by its name, its first bytes, or as plain text."""
    content = attachment.content
    if isinstance(content, str) or parse_media_type(attachment.media_type).media_type:
        return attachment
    if type_by_name(attachment.name) or binary_type(content[:_MAGIC_BYTES]):
        return attachment
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return replace(attachment, content=b"", unread=True)
    if _CONTROL.search(text):
        return replace(attachment, content=b"", unread=True)
    return replace(attachment, content=text)


def _split(entity: Entity) -> Multipart:
    """The parts of a multipart. Tries the boundaries of all its headers, then looks for one in the body."""
    split = Multipart(entity=entity, places=(), unshown=b"", found=False)
    for declared in entity.content_types:
        boundary = declared.parameters.get("boundary", "")
        found = split_multipart(entity, boundary) if boundary else split
        if found.places:
            return found
        split = found if found.found else split
    guessed = guess_boundary(entity)
    return split_multipart(entity, guessed) if guessed else split


def _together(children: Sequence[MailContent]) -> MailContent:
    content = MailContent()
    for child in children:
        content.extend(child)
    return content


def _alternative(children: Sequence[MailContent]) -> MailContent:
    """One text of several that say the same, and what is attached to any of them."""
    told = [child for child in children if is_visible(child.text)]
    plain = next((child for child in told if child.plain and not child.is_twin), None)
    rich = next((child for child in reversed(told) if not child.plain and not child.is_twin), None)
    chosen = plain or rich or next(iter(told), None)
    if plain is not None and rich is not None and is_better(rich.text, plain.text):
        chosen = rich
    content = MailContent(plain=chosen.plain if chosen is not None else True)
    for child in children:
        if child is chosen:
            content.fragments += child.fragments
            content.warnings += child.warnings
        elif chosen is not None and not child.is_twin:
            content.warnings += left_out_words(child.text, chosen.text)
        content.attachments += [
            attachment
            for attachment in child.attachments
            if chosen is None or not child.is_twin or attachment.media_type not in _TWINS
        ]
    return content


def _without_files(text: str, content: MailContent) -> str:
    """The text without the files that stand uuencoded in it, which become attachments."""
    if "\nend" not in text:
        return text
    kept, position = [], 0
    for block in uuencoded_blocks(text):
        kept.append(text[position : block.start])
        position = block.end
        content.attachments.append(
            _as_document(
                Attachment(name=decode_words(block.filename), media_type="application/octet-stream", content=block.data)
            )
        )
    kept.append(text[position:])
    return "".join(kept)


def _unshown(found: Multipart) -> list[Warning]:
    """A warning where a text stands outside the parts, unless it only says that this is MIME."""
    lost = found.unshown.strip()
    if not lost or (b"MIME" in lost.upper() and len(lost) < _MAX_NOTICE_BYTES):
        return []
    message = f"{len(lost)} bytes before and after the parts of the mail, which no program shows, were not taken"
    return [_warning(message)]


def _filename(disposition: FieldValue, declared: FieldValue) -> str:
    name = disposition.parameters.get("filename", "") or declared.parameters.get("name", "")
    return clean(name.replace("\\", "/").rpartition("/")[2])[:255]


def _warning(message: str, reason: Reason = Reason.DOCUMENT_UNREADABLE, **metadata: str) -> Warning:
    return Warning(reason=reason, message=message, metadata={key: value for key, value in metadata.items() if value})
