"""Header fields of a mail to text: encoded words, parameters, addresses, dates.

RFC 5322, 2047 and 2231, and what mail programs write instead. Nothing here raises.
"""

import binascii
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_to_bytes

from kbmesh_chunker.documents.mail_charset import decode_mail_bytes

MAX_FIELD_CHARACTERS = 262_144
"""What is after so many characters of a field is not looked at. No mail server takes a longer one."""
_ENCODED_WORD = re.compile(r"=\?([^?\s]{1,80})\?([bBqQ])\?([^?]{0,4000}(?:\?(?!=)[^?]{0,4000}){0,8})\?=")
_BETWEEN_WORDS = re.compile(r"[ \t\r\n]+")
# What must not come out of a header: line ends and other controls, which could forge a line of a context, and marks
# that turn the direction of what follows.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_SPACES = re.compile(r"\s+")
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.){0,8192})"|([^;]*))', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTINUED = re.compile(r"([^*]+)\*(\d{1,4})(\*?)")
_ADDRESS_TOKEN = re.compile(
    r'(?P<quoted>"(?:[^"\\]|\\.){0,2000}")|(?P<word>=\?[^?\s]{1,80}\?[bBqQ]\?[^?]{0,4000}\?=)|'
    r"(?P<angle><[^<>]{0,2000}>)|(?P<comment>\((?:[^()\\]|\\.){0,2000}\))|(?P<mark>[,;:])|(?P<space>\s+)|"
    r'(?P<other>[^\s,;:<("=]+|.)',
    re.DOTALL,
)
# A link that a mail program wrote behind the address, which says it once more, or instead of it.
_LINK = re.compile(r"(@[^\s<>@,;]{1,255}>?)[ \t]?<mailto:[^<>]{0,2000}>", re.IGNORECASE)
_BRACKETED_LINK = re.compile(r"\[mailto:([^\[\]<>]{1,2000})\]", re.IGNORECASE)
_ISO_DATE = re.compile(
    r"(\d{4})[-/](\d\d?)[-/](\d\d?)"
    r"(?:[T ]+(\d\d?:\d\d(?::\d\d)?)(?:[.,]\d{1,9})?[ ]?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?"
)
_NEEDS_QUOTES = re.compile(r'[,;:<>@"()\[\]\\]')
_MESSAGE_ID = re.compile(r"<([^<>\s]{1,1000})>")


@dataclass(frozen=True, kw_only=True)
class Address:
    """A mailbox of a header field. At least one of the two is there."""

    name: str = ""
    address: str = ""

    def __str__(self) -> str:
        if not self.address:
            return self.name
        if not self.name:
            return self.address
        name = f'"{self.name}"' if _NEEDS_QUOTES.search(self.name) else self.name
        return f"{name} <{self.address}>"


@dataclass(frozen=True, kw_only=True)
class FieldValue:
    """A field such as Content-Type, taken apart."""

    value: str
    """In lower case, without parameters."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""


def raw_to_text(raw: bytes) -> str:
    """A header field's bytes: UTF-8 (RFC 6532), else Western European. Line ends stay."""
    return decode_mail_bytes(raw[:MAX_FIELD_CHARACTERS], "").text


def decode_words(value: str) -> str:
    """Text with its encoded words decoded, on one line (RFC 2047).

    Also where they are glued to other text, stand in quotes or were cut inside a character; white space between two of
    them is no part of the text.
    """
    pieces: list[str] = []
    run: list[tuple[str, bytes]] = []
    position = 0
    for found in _ENCODED_WORD.finditer(value):
        between = value[position : found.start()]
        if run and between and not _BETWEEN_WORDS.fullmatch(between):
            pieces.append(_decode_run(run))
            run = []
        if not run:
            pieces.append(between)
        run.append((found.group(1).partition("*")[0].lower(), _word_bytes(found.group(2), found.group(3))))
        position = found.end()
    pieces.append(_decode_run(run))
    pieces.append(value[position:])
    return clean("".join(pieces))


def clean(value: str) -> str:
    """A value on one line, without controls."""
    return _SPACES.sub(" ", _CONTROLS.sub(" ", value)).strip()


def _word_bytes(encoding: str, encoded: str) -> bytes:
    data = encoded.encode("utf-8", "replace")
    if encoding in "qQ":
        return binascii.a2b_qp(data, header=True)
    data = re.sub(rb"[^A-Za-z0-9+/]", b"", data)
    return binascii.a2b_base64(data[: len(data) - (len(data) % 4 == 1)] + b"=" * (-len(data) % 4))


def _decode_run(run: Sequence[tuple[str, bytes]]) -> str:
    """Encoded words one after the other; those of one charset may share a character."""
    joined: list[tuple[str, bytes]] = []
    for charset, data in run:
        if joined and joined[-1][0] == charset:
            joined[-1] = (charset, joined[-1][1] + data)
        else:
            joined.append((charset, data))
    return "".join(decode_mail_bytes(data, charset).text for charset, data in joined)


def parse_field(value: str) -> FieldValue:
    """Takes `text/plain; charset=utf-8` apart, with continued and encoded parameters (RFC 2231)."""
    head = value.partition(";")[0]
    plain: dict[str, str] = {}
    continued: dict[str, dict[int, tuple[str, bool]]] = {}
    for found in _PARAMETER.finditer(value):
        name, quoted, bare = found.group(1).lower(), found.group(2), found.group(3)
        content = _ESCAPE.sub(r"\1", quoted) if quoted is not None else bare.strip().strip('"')
        section = _CONTINUED.fullmatch(name)
        if section is not None:
            sections = continued.setdefault(section.group(1), {})
            sections.setdefault(int(section.group(2)), (content, bool(section.group(3))))
        elif name.endswith("*"):
            continued.setdefault(name[:-1], {}).setdefault(0, (content, True))
        else:
            plain.setdefault(name, decode_words(content) if "=?" in content else content)
    for name, sections in continued.items():
        # The encoded form is the better one where a field has both.
        plain[name] = _join_sections([sections[number] for number in sorted(sections)])
    return FieldValue(value=clean(head).lower(), parameters=plain)


def _join_sections(sections: Sequence[tuple[str, bool]]) -> str:
    charset = ""
    data = b""
    for number, (content, encoded) in enumerate(sections):
        if number == 0 and encoded and content.count("'") >= 2:
            charset, _, content = content.split("'", 2)
        data += unquote_to_bytes(content) if encoded else content.encode("utf-8", "replace")
    return decode_mail_bytes(data, charset or "utf-8").text


def parse_addresses(value: str) -> list[Address]:
    """The mailboxes of a field such as From. Taken apart before encoded words are decoded, for these hide commas."""
    value = _BRACKETED_LINK.sub(r"<\1>", value) if "[mailto:" in value else _LINK.sub(r"\1", value)
    return [address for parts in _mailboxes(value) if (address := _address(parts)) is not None]


def _mailboxes(value: str) -> Iterator[list[tuple[str, str]]]:
    parts: list[tuple[str, str]] = []
    group: list[tuple[str, str]] = []
    for found in _ADDRESS_TOKEN.finditer(value):
        kind, written = str(found.lastgroup), found.group()
        if kind == "mark" and written in ",;":
            told = any(held != "space" for held, _ in parts)
            if told or written == ";":
                # A group without members is told by its name.
                yield parts if told else group
                group = []
            parts = []
        elif kind == "mark" and not any(held == "angle" or "@" in text for held, text in parts):
            # The name of a group (RFC 5322, 3.4).
            group = parts
            parts = []
        else:
            parts.append((kind, written))
    yield parts if any(held != "space" for held, _ in parts) else group


def _address(parts: Sequence[tuple[str, str]]) -> Address | None:
    angles = [text[1:-1].removeprefix("mailto:") for kind, text in reversed(parts) if kind == "angle"]
    angle = next((text for text in angles if "@" in text), angles[0] if angles else None)
    comment = next((text[1:-1] for kind, text in parts if kind == "comment"), "")
    words = "".join(
        _ESCAPE.sub(r"\1", text[1:-1]) if kind == "quoted" else text
        for kind, text in parts
        if kind not in {"angle", "comment"}
    )
    if angle is None:
        bare = clean(words)
        if "@" in bare and " " not in bare:
            return Address(name=decode_words(comment), address=bare)
        name = decode_words(words) or decode_words(comment)
        return Address(name=name) if name else None
    address, name = clean(angle).replace(" ", ""), decode_words(words) or decode_words(comment)
    if name.strip("'\" ").lower() == address.lower():
        name = ""
    return (
        Address(name=name.strip("'") if name[:1] == name[-1:] == "'" else name, address=address)
        if (name or address)
        else None
    )


def parse_date(value: str) -> str:
    """A date as ISO 8601 with its offset; empty where it is none that is known. `-0000` is UTC (RFC 5322, 3.3).

    A date without a time stays one.
    """
    value = clean(value)[:200]
    iso = _ISO_DATE.fullmatch(value.upper())
    try:
        if iso is not None:
            year, month, day, time, offset = iso.groups()
            written = f"{year}-{int(month):02}-{int(day):02}"
            if time is None:
                return datetime.date.fromisoformat(written).isoformat()
            zone = "+00:00" if offset in {None, "Z", "UTC", "GMT"} else offset
            hour, minutes = time.split(":", 1)
            return datetime.datetime.fromisoformat(f"{written}T{int(hour):02}:{minutes}{zone}").isoformat()
        date = parsedate_to_datetime(value)
        return date.isoformat() if date.tzinfo is not None else f"{date.isoformat()}+00:00"
    except (ValueError, TypeError, IndexError, OverflowError, AttributeError):
        return ""


def message_ids(value: str) -> list[str]:
    """The ids of a field such as References, without their brackets."""
    found = _MESSAGE_ID.findall(value)
    return found or [word.strip("<>") for word in clean(value).split()[:1] if "@" in word]
