"""What mails do to bytes so that they pass through old relays, undone: base64, quoted-printable, uuencode.

RFC 2045. Nothing here raises: what is broken is decoded as far as it can be, and the result says so.
"""

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/=\s]|[A-Za-z0-9+/=][ \t]+[A-Za-z0-9+/=]")
_FOREIGN = re.compile(rb"[^A-Za-z0-9+/=]+")
# Relays pad lines; the blanks are no text (RFC 2045, 6.7, rule 3).
_PADDED_SOFT_BREAK = re.compile(rb"=[ \t]+(?=[\r\n]|\Z)")
_BEGIN = re.compile(r"^begin(?:-base64)? (?:0?[0-7]{3}) (\S[^\r\n]{0,200})(?:\r\n|\r|\n)", re.MULTILINE)
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, kw_only=True)
class TransferDecoded:
    """Bytes and what was wrong with them."""

    data: bytes
    tail: bytes = b""
    """Plain text that a list or a gateway put behind encoded text."""
    problem: str = ""
    """For a person; empty where nothing was."""
    identity: bool = False
    """Whether they stand in the mail as they are."""


def undo_transfer_encoding(data: bytes, encoding: str, *, is_text: bool) -> TransferDecoded:
    """Undoes a Content-Transfer-Encoding. An encoding that is not known is taken for none."""
    name = re.sub(r"[^a-z0-9]", "", encoding.partition(";")[0].partition("(")[0].lower())
    if name == "base64":
        return _from_base64(data, is_text=is_text)
    if name == "quotedprintable":
        return TransferDecoded(data=binascii.a2b_qp(_PADDED_SOFT_BREAK.sub(b"=", data)))
    if name in {"uuencode", "xuuencode", "uue", "xuue"}:
        for block in uuencoded_blocks(data.decode("latin-1")):
            return TransferDecoded(data=block.data)
        return TransferDecoded(data=data, problem="it is not uuencoded, as it says", identity=True)
    known = name in {"", "7bit", "8bit", "binary", "8bits", "7bits"}
    problem = "" if known else f"the transfer encoding {encoding[:40]!r} is not known"
    return TransferDecoded(data=data, problem=problem, identity=True)


def _from_base64(data: bytes, *, is_text: bool) -> TransferDecoded:
    foreign = _NOT_BASE64.search(data)
    if foreign is None:
        decoded, cut = decode_base64(data)
        return TransferDecoded(data=decoded, problem="its base64 breaks off" if cut else "")
    if is_text:
        line = max(data.rfind(b"\n", 0, foreign.start() + 1), data.rfind(b"\r", 0, foreign.start() + 1)) + 1
        if not data[:line].strip():
            return TransferDecoded(data=data, problem="it is not base64, as it says", identity=True)
        decoded, _ = decode_base64(data[:line])
        return TransferDecoded(data=decoded, tail=data[line:], problem="not all of it is base64, as it says")
    decoded, _ = decode_base64(data)
    return TransferDecoded(data=decoded, problem="not all of it is base64, as it says")


def decode_base64(data: bytes) -> tuple[bytes, bool]:
    """Decodes what there is, also several texts one after the other; and whether it breaks off."""
    data = _FOREIGN.sub(b"", data)
    bare = data.rstrip(b"=")
    if b"=" not in bare:
        decoded, cut = _decode_run(bare)
        return decoded, cut or (len(bare) % 4 > 0 and len(data) % 4 > 0)
    runs = [_decode_run(run) for run in data.split(b"=") if run]
    return b"".join(decoded for decoded, _ in runs), any(cut for _, cut in runs)


def _decode_run(data: bytes) -> tuple[bytes, bool]:
    """Decodes a text without its padding; and whether it breaks off within a byte."""
    cut = len(data) % 4 == 1
    if cut:
        data = data[:-1]
    return binascii.a2b_base64(data + b"=" * (-len(data) % 4)), cut


@dataclass(frozen=True, kw_only=True)
class UuencodedBlock:
    """A file that stands uuencoded in a text."""

    start: int
    end: int
    filename: str
    data: bytes


def uuencoded_blocks(text: str) -> Iterator[UuencodedBlock]:
    """The files that stand in a text between `begin 644 name` and `end`. What only looks like one is no file."""
    position = 0
    while (begin := _BEGIN.search(text, position)) is not None:
        position = begin.end()
        decoded = _decode_uu_lines(text, position)
        if decoded is not None:
            data, position = decoded
            yield UuencodedBlock(start=begin.start(), end=position, filename=begin.group(1).strip(), data=data)


def _decode_uu_lines(text: str, position: int) -> tuple[bytes, int] | None:
    data = bytearray()
    ended = False
    while position < len(text):
        found = _LINE.match(text, position)
        if found is None:
            return None
        line, position = found.group(1), found.end()
        if line.strip() == "end" and (ended or data):
            return bytes(data), position
        if ended:
            return None
        decoded = _decode_uu_line(line)
        if decoded is None:
            return None
        ended = not decoded
        data += decoded
    return None


def _decode_uu_line(line: str) -> bytes | None:
    line = line.rstrip("\r\n")
    if not line or line in {"`", " "}:
        return b""
    count = (ord(line[0]) - 32) & 63
    needed = -(-count * 8 // 6)
    # Trailing blanks stand for zeros, and relays cut them off.
    if not line.isascii() or not 32 <= ord(line[0]) <= 96 or not 0 < count <= 45 or len(line) - 1 > needed + 4:
        return None
    try:
        return binascii.a2b_uu(line[: 1 + needed].ljust(1 + needed))
    except (binascii.Error, ValueError):
        return None
