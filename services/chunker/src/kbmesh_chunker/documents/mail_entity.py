"""The structure of a mail: entities, each with a header and a body, some of which hold others (RFC 2045, 2046).

Entities are places in the bytes of the file, so nothing is copied, and a part that is a mail or a document of its own
can be read again as it stands. The standard library's parser keeps every line as an object and recurses as deep as a
mail is nested; its modern policy raises on broken headers and on charsets that it does not know. Here every byte is
looked at once for each level of nesting, which is bounded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kbmesh_chunker.documents.mail_header import FieldValue, parse_field, raw_to_text

MAX_NESTING = 32
"""Multiparts within multiparts. What is deeper is kept as text."""
_FIELD = re.compile(rb"([!-9;-~]{1,100})[ \t]*:")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\r|\n))+")
_BLANK_LINE = re.compile(rb"[ \t]*(?:\r\n|\r|\n)")
_POSTMARK = re.compile(rb">?From (?![ \t]*:)[^\r\n]*(?:\r\n|\r|\n)")
_COMMON = """
    from to cc bcc subject date message-id received return-path reply-to sender in-reply-to references mime-version
    content-type content-transfer-encoding content-disposition content-id content-description content-language
    delivered-to delivery-date list-id list-unsubscribe user-agent importance priority status envelope-to sent
    organization authentication-results dkim-signature thread-topic thread-index resent-from resent-to resent-date
"""
_MAX_UNKNOWN_FIELDS = 20
_MAX_CONTENT_TYPES = 8
_KNOWN = frozenset(name.encode() for name in _COMMON.split())
_DELIMITER = re.compile(
    rb"^--([^\r\n]{1,200}?)[ \t]*(?:\r\n|\r|\n)(?=content-[a-z-]+[ \t]*:)", re.IGNORECASE | re.MULTILINE
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A mail or a part of one. Positions are bytes of `data`."""

    data: bytes = field(repr=False)
    header: tuple[tuple[str, str], ...]
    """Fields in order, names in lower case; values may have several lines and encoded words."""
    header_start: int
    body_start: int
    end: int
    default_type: str = "text/plain"

    @property
    def body(self) -> bytes:
        """As it stands, before its transfer encoding is undone."""
        return self.data[self.body_start : self.end]

    def first(self, name: str) -> str:
        """The first field of a name that is not blank; empty where there is none."""
        return next((value for field_name, value in self.header if field_name == name and value.strip()), "")

    def all(self, name: str) -> list[str]:
        """All fields of a name."""
        return [value for field_name, value in self.header if field_name == name]

    @property
    def content_types(self) -> list[FieldValue]:
        """Every Content-Type that can be read, in order. There should be one; gateways add more."""
        fields = [parse_field(value) for value in self.all("content-type")[:_MAX_CONTENT_TYPES]]
        return [found for found in fields if _TOKEN.fullmatch(found.value)]

    @property
    def content_type(self) -> FieldValue:
        """The first Content-Type, a multipart before others, or the default."""
        found = self.content_types
        multipart = [value for value in found if value.value.startswith("multipart/")]
        return (multipart or found or [FieldValue(value=self.default_type)])[0]


def parse_entity(data: bytes, start: int = 0, end: int | None = None, *, default_type: str = "text/plain") -> Entity:
    """Reads the header of the entity that stands in data[start:end]."""
    end = len(data) if end is None else end
    fields: list[tuple[str, bytearray]] = []
    if not _begins_header(data, start, end):
        blank = _BLANK_LINE.match(data, start, end)
        body = blank.end() if blank else start
        return Entity(data=data, header=(), header_start=start, body_start=body, end=end, default_type=default_type)
    position = body = start
    while position < end:
        line_end = _line_end(data, position, end)
        line = data[position:line_end].rstrip(b"\r\n")
        if not line.strip():
            # A line of blanks within the header is a fold that lost its text.
            if line and fields and _FIELD.match(data, line_end, end) and _is_known(data, line_end, end):
                position = body = line_end
                continue
            body = line_end
            break
        found = _FIELD.match(line)
        if found is not None:
            fields.append((found.group(1).decode("ascii").lower(), bytearray(line[found.end() :])))
        elif fields and (line[:1] in b" \t" or _is_known(data, line_end, end)):
            # A line that is no field, between fields: a fold without its blank.
            fields[-1][1].extend(b"\n" + line)
        else:
            body = position
            break
        position = body = line_end
    header = tuple((name, raw_to_text(bytes(value))) for name, value in fields)
    return Entity(data=data, header=header, header_start=start, body_start=body, end=end, default_type=default_type)


def parse_mail(data: bytes) -> Entity:
    """Reads the header of a whole mail; blank lines and a postmark before it are passed over."""
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    blank = _BLANK_LINES.match(data, start)
    first = blank.end() if blank else start
    postmark = _POSTMARK.match(data, first)
    after = postmark.end() if postmark else first
    if _begins_header(data, after, len(data)):
        return parse_entity(data, after)
    return Entity(data=data, header=(), header_start=start, body_start=start, end=len(data))


@dataclass(frozen=True, kw_only=True)
class Multipart:
    """What stands between the delimiters of a boundary, and outside them."""

    entity: Entity
    places: tuple[tuple[int, int], ...]
    """Where its parts stand. Those after the closing delimiter count too."""
    unshown: bytes
    """What stands before the first part and after the last, where no program shows it."""
    found: bool
    """Whether the boundary occurs at all."""

    def parts(self, default_type: str) -> Iterator[Entity]:
        """The parts, in order."""
        for start, end in self.places:
            yield parse_entity(self.entity.data, start, end, default_type=default_type)


def split_multipart(entity: Entity, boundary: str) -> Multipart:
    """Splits the body of an entity at the delimiters of a boundary."""
    delimiters = list(_delimiters(entity, boundary.rstrip().encode("utf-8", "replace")))
    if not delimiters:
        return Multipart(entity=entity, places=(), unshown=b"", found=False)
    places = []
    for delimiter, following in zip(delimiters, (*delimiters[1:], None), strict=True):
        if not delimiter.closes:
            places.append((delimiter.end, max(delimiter.end, following.start) if following else entity.end))
    after = entity.data[delimiters[-1].end : entity.end] if delimiters[-1].closes else b""
    before = entity.data[entity.body_start : delimiters[0].start]
    return Multipart(entity=entity, places=tuple(places), unshown=before + after, found=True)


def guess_boundary(entity: Entity) -> str:
    """The boundary that the body of a multipart uses, where its header does not say; empty where there is none."""
    found = _DELIMITER.search(entity.data, entity.body_start, entity.end)
    return found.group(1).decode("ascii", "replace") if found else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Delimiter:
    start: int
    """Where the line end before it begins, which belongs to it."""
    end: int
    closes: bool


def _delimiters(entity: Entity, boundary: bytes) -> Iterator[_Delimiter]:
    data, end, mark = entity.data, entity.end, b"--" + boundary
    position = data.find(mark, entity.body_start, end) if boundary else -1
    while position >= 0:
        after = position + len(mark)
        line_start = position == entity.body_start or data[position - 1] in b"\r\n"
        if line_start and (found := _REST.match(data, after, end)) is not None:
            start = position
            if start > entity.body_start and data[start - 1] == 0x0A:
                start -= 1
            if start > entity.body_start and data[start - 1] == 0x0D:
                start -= 1
            yield _Delimiter(start=start, end=found.end(), closes=bool(found.group(1)))
            after = max(after, found.end())
            position = data.find(mark, after, end)
        else:
            position = data.find(mark, position + 1, end)


_REST = re.compile(rb"(--)?[ \t]*(?:\r\n|\r|\n|\Z)")


def _line_end(data: bytes, position: int, end: int) -> int:
    found = _LINE.match(data, position, end)
    return found.end() if found else end


def _begins_header(data: bytes, position: int, end: int) -> bool:
    """Whether lines of a header follow, with a field that mails have among the first."""
    for _ in range(_MAX_UNKNOWN_FIELDS):
        if _is_known(data, position, end):
            return True
        line_end = _line_end(data, position, end)
        if not data[position:line_end].strip() or (
            data[position : position + 1] not in {b" ", b"\t"} and not _FIELD.match(data, position, line_end)
        ):
            return False
        position = line_end
    return False


def _is_known(data: bytes, position: int, end: int) -> bool:
    found = _FIELD.match(data, position, end)
    return found is not None and ((name := found.group(1).lower()) in _KNOWN or name.startswith((b"x-", b"list-")))
