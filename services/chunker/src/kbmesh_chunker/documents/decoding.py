"""Bytes to text."""

import codecs
import re
from dataclasses import dataclass

from kbmesh_rpc.errors import DocumentUnreadable, Reason

from kbmesh_chunker.documents.source import Warning  # noqa: A004 - the contract's name for it

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Python also decodes things that are no charset of a document, some of them slowly: punycode, idna, unicode_escape.
_CHARSET = re.compile(
    r"utf-(?:8|8-sig|16|16-le|16-be|32|32-le|32-be)|ascii|latin-1|iso8859-\d+|cp\d+|windows-\d+|koi8-\w|mac-\w+|"
    r"gb2312|gbk|gb18030|hz|big5|big5hkscs|euc_\w+|shift_jis\w*|iso2022_\w+|johab|tis-620|ptcp154|kz1048|hp-roman8"
)
_ESCAPED = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_CONTROLS = bytes((*range(0x09), 0x0B, *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))
_CONTROL_SHARE = 0.01
# cp1252 leaves five bytes undefined; browsers read them as latin-1 does (WHATWG Encoding Standard, windows-1252).
_WESTERN = {
    0xDC00 + byte: bytes([byte]).decode("cp1252", "ignore") or bytes([byte]).decode("latin-1")
    for byte in range(0x80, 0x100)
}


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A text and what was not certain about it."""

    text: str
    encoding: str
    warnings: tuple[Warning, ...] = ()


def decode(data: bytes, *, charset: str, media_type: str) -> Decoded:
    """Decodes by byte-order mark, declared charset, UTF-8, and at last as Western European with a warning.

    Raises DocumentUnreadable where the bytes are not what they are declared to be, or are no text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _checked(_strict(data[len(mark) :], encoding, media_type), encoding, media_type)
    warnings: tuple[Warning, ...] = ()
    if charset:
        encoding = _known(charset)
        if encoding:
            return _checked(_strict(data, encoding, media_type), encoding, media_type)
        warnings = (_warning(f"the charset {charset[:40]!r} is not known; another was guessed", charset[:40]),)
    text = data.decode("utf-8", "surrogateescape")
    undecoded = len(_ESCAPED.findall(text)) if not text.isascii() else 0
    if not undecoded:
        return _checked(text, "utf-8", media_type, warnings)
    if undecoded < len(_BEYOND_ASCII.findall(text)):
        # UTF-8 with a few foreign bytes: the rest of it stays right.
        encoding, message = "utf-8", f"{undecoded} bytes are not UTF-8 and were read as windows-1252"
        text = text.translate(_WESTERN)
    else:
        encoding, message = "windows-1252", "the text is not UTF-8 and names no charset; it was read as windows-1252"
        text = data.decode("latin-1").translate({key - 0xDC00: value for key, value in _WESTERN.items()})
    return _checked(text, encoding, media_type, (*warnings, _warning(message, encoding)))


def _known(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return ""
    return name if _CHARSET.fullmatch(name) else ""


def _strict(data: bytes, encoding: str, media_type: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentUnreadable(media_type, f"byte {error.start} is not {encoding}") from error


def _checked(text: str, encoding: str, media_type: str, warnings: tuple[Warning, ...] = ()) -> Decoded:
    check_text(text, media_type)
    return Decoded(text=text, encoding=encoding, warnings=warnings)


def check_text(text: str, media_type: str) -> None:
    """Raises DocumentUnreadable where a text is full of control characters, as decoded binary files are."""
    if "\x00" in text:
        raise DocumentUnreadable(media_type, f"character {text.index(chr(0))} is NUL: this is no text")
    controls = count_controls(text)
    if controls > max(8, len(text) * _CONTROL_SHARE):
        raise DocumentUnreadable(media_type, f"{controls} control characters: this is no text")


def count_controls(text: str) -> int:
    """How many control characters a text has that no text is written with."""
    # A pattern would take ten times as long; no byte of these is part of another character in UTF-8.
    encoded = text.encode("utf-8", "surrogatepass")
    return len(encoded) - len(encoded.translate(None, _CONTROLS))


def _warning(message: str, encoding: str) -> Warning:
    return Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message, metadata={"encoding": encoding})


def decode_html(data: bytes, *, charset: str, media_type: str) -> Decoded:
    """For now as any text."""
    return decode(data, charset=charset, media_type=media_type)
