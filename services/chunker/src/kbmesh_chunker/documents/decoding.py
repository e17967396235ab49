"""Bytes to text."""

import codecs
import re
from dataclasses import dataclass

from kbmesh_rpc.errors import DocumentUnreadable, Reason

from kbmesh_chunker.documents.charset_guess import guess, guess_wide
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
# What browsers take the names of charsets for, where that differs (WHATWG Encoding Standard, names and labels).
_WEB = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "latin-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874",
    "tis-620": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932",
    "big5": "big5hkscs", "utf-16": "utf-16-le",
}  # fmt: skip
_WEB_LABELS = {
    "iso-8859-8-i": "iso-8859-8", "iso-8859-8-e": "iso-8859-8", "iso-8859-6-i": "iso-8859-6", "x-sjis": "cp932",
    "windows-31j": "cp932", "x-gbk": "gb18030", "x-x-big5": "big5hkscs", "x-euc-jp": "euc_jp", "dos-874": "cp874",
    "windows-949": "cp949", "x-cp1251": "cp1251", "x-cp1252": "cp1252", "x-mac-roman": "mac-roman", "koi8": "koi8-r",
    "unicode-1-1-utf-8": "utf-8",
}  # fmt: skip
_HEAD = 65_536
_META_CHARSET = re.compile(
    rb"<meta\b[^>]{0,500}?\bcharset\s{0,20}=\s{0,20}[\"']?\s{0,20}([\w:.-]{1,40})", re.IGNORECASE
)
_XML_ENCODING = re.compile(
    rb"\s{0,100}<\?xml\b[^>]{0,200}?\bencoding\s{0,20}=\s{0,20}[\"']([\w:.-]{1,40})", re.IGNORECASE
)
_ESCAPED = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_LONGEST_CHARACTER = 4
# Texts are written with the others: line ends of slides (VT), pages (FF), the overstrikes of manual pages (BS), the
# separators of records (SOH, FS, GS, RS, US), the colours of terminals (ESC), what a terminal recorded (DEL).
_CONTROLS = bytes((*range(0x02, 0x08), *range(0x0E, 0x1B)))
MAX_CONTROL_SHARE = 0.05
"""A text of which more are such control characters is none; a few are let pass in any."""
MAX_CONTROLS = 8
# cp1252 leaves five bytes undefined; browsers read them as latin-1 does (WHATWG Encoding Standard, windows-1252).
WESTERN = {
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
    """Decodes by byte-order mark, declared charset, UTF-8, and at last by a guess, with a warning.

    Raises DocumentUnreadable where the bytes are not what they are declared to be, or are no text.
    """
    certain = certain_encoding(data, charset)
    if certain is not None:
        encoding, mark = certain
        return _checked(_strict(data[mark:], encoding, media_type), encoding, media_type)
    warnings: tuple[Warning, ...] = ()
    if charset:
        warnings = (_warning(f"the charset {charset[:40]!r} is not known; another was guessed", charset[:40]),)
    return _guessed(data, media_type, warnings)


def decode_html(data: bytes, *, charset: str, media_type: str) -> Decoded:
    """Decodes a page by byte-order mark, the charset it was sent with, what it says of itself, or a guess.

    Names of charsets mean what they mean to browsers (WHATWG Encoding Standard). A page that is not in the charset
    that it names is read in another, with a warning. Raises DocumentUnreadable where it is no text.
    """
    if any(data.startswith(mark) for mark, _ in _MARKS):
        return decode(data, charset="", media_type=media_type)
    warnings: tuple[Warning, ...] = ()
    tried = ""
    for name in (charset, _named_in(data[:_HEAD])):
        encoding = web_encoding(name)
        if not encoding or encoding == tried:
            continue
        tried = encoding
        if encoding in {"cp1252", "latin-1"} and not data.isascii() and _is_utf8(data):
            # No Western text is valid UTF-8 by chance.
            encoding = "utf-8"
            warnings = (_warning(f"the page says that it is {name[:40]!r}, and is UTF-8", encoding),)
        try:
            text = _western(data) if encoding == "cp1252" else data.decode(encoding)
        except UnicodeDecodeError as error:
            message = f"the page says that it is {name[:40]!r}, but byte {error.start} is not"
            warnings = (*warnings, _warning(message, encoding))
            continue
        return _checked(text, encoding, media_type, warnings)
    return _guessed(data, media_type, warnings)


def web_encoding(label: str) -> str:
    """Python's name of the charset that browsers take a label for. Empty where it is none."""
    label = label.strip().lower()
    known = _known(_WEB_LABELS.get(label, label)) if label else ""
    return _WEB.get(known, known)


def _named_in(head: bytes) -> str:
    """The charset that a page names in its head. UTF-16 cannot be named so: the name would not be readable."""
    found = _META_CHARSET.search(head) or _XML_ENCODING.match(head)
    name = found.group(1).decode("ascii", "ignore") if found else ""
    return "utf-8" if name.lower().startswith("utf-16") else name


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _western(data: bytes) -> str:
    return data.decode("latin-1").translate({key - 0xDC00: value for key, value in WESTERN.items()})


def _guessed(data: bytes, media_type: str, warnings: tuple[Warning, ...]) -> Decoded:
    wide = guess_wide(data) if b"\x00" in data[:_HEAD] else ""
    if not wide and not (b"\x1b$" in data[:_HEAD] and data.isascii()):
        text = data.decode("utf-8", "surrogateescape")
        undecoded = len(_ESCAPED.findall(text)) if not text.isascii() else 0
        if not undecoded:
            return _checked(text, "utf-8", media_type, warnings)
        cut = _cut_character(data)
        if cut == undecoded and _BEYOND_ASCII.search(text):
            return _checked(text[:-cut] + "\ufffd", "utf-8", media_type, (*warnings, CUT_OFF))
        if undecoded < len(_BEYOND_ASCII.findall(text)):
            # UTF-8 with a few foreign bytes: the rest of it stays right.
            message = f"{undecoded} bytes are not UTF-8 and were read as windows-1252"
            text = text.translate(WESTERN)
            return _checked(text, "utf-8", media_type, (*warnings, _warning(message, "utf-8")))
    encoding = wide or guess_wide(data) or guess(data)
    if encoding == "cp1252":
        text, encoding = _western(data), "windows-1252"
    else:
        text = data.decode(encoding, "replace")
    # What the text says of itself has been named before.
    names_none = "" if warnings else " and names no charset"
    message = f"the text is not UTF-8{names_none}; it was read as {encoding}"
    broken = text.count("\ufffd")
    if broken:
        message += f", in which {broken} places are not valid"
    return _checked(text, encoding, media_type, (*warnings, _warning(message, encoding)))


def _cut_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character of UTF-8; 0 where the last one is whole or none.

    One byte alone that ends a word as a small Western letter, as in `caf\\xe9`, is that letter.
    """
    for count in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        try:
            data[-count:].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                letter = count == 1 and data[-2:-1].isalpha() and _western(data[-1:]).islower()
                return 0 if letter else count
    return 0


def certain_encoding(data: bytes, charset: str) -> tuple[str, int] | None:
    """The encoding that a byte-order mark or else `charset` names, and the length of the mark; None where none does."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark)
    encoding = _known(charset) if charset else ""
    return (encoding, 0) if encoding else None


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
    """Raises DocumentUnreadable where a text is full of control characters, as decoded binary files are, or holds half
    of a character, which no encoding can write."""
    if "\x00" in text:
        raise DocumentUnreadable(media_type, f"character {text.index(chr(0))} is NUL: this is no text")
    try:
        controls = count_controls(text)
    except UnicodeEncodeError as error:
        raise DocumentUnreadable(media_type, f"character {error.start} is half of a surrogate pair") from error
    if controls > max(MAX_CONTROLS, len(text) * MAX_CONTROL_SHARE):
        raise DocumentUnreadable(media_type, f"{controls} control characters: this is no text")


def count_controls(text: str) -> int:
    """How many control characters a text has that no text is written with. Raises UnicodeEncodeError where it holds
    half of a surrogate pair."""
    # A pattern would take ten times as long; no byte of these is part of another character in UTF-8.
    encoded = text.encode("utf-8")
    return len(encoded) - len(encoded.translate(None, _CONTROLS))


def _warning(message: str, encoding: str) -> Warning:
    return Warning(reason=Reason.DOCUMENT_UNREADABLE, message=message, metadata={"encoding": encoding})


CUT_OFF = _warning("it is UTF-8 and ends within a character: the file may have been cut off", "utf-8")
