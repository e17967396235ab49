"""Bytes of a mail to text, by whatever name their charset goes.

Mails name charsets that no codec table knows, or name the wrong one. Nothing here raises: what cannot be decoded as it
was declared is decoded by the best guess, and the result says so.
"""

import codecs
import re
from dataclasses import dataclass

# Labels that mail programs write and Python does not know, and charsets whose name is used for their superset (WHATWG
# Encoding Standard, section 4.2).
_LABELS = {
    "iso-8859-8-i": "iso8859-8", "iso-8859-8-e": "iso8859-8", "csiso88598i": "iso8859-8", "csiso88598e": "iso8859-8",
    "logical": "iso8859-8", "visual": "iso8859-8", "iso-8859-6-i": "iso8859-6", "iso-8859-6-e": "iso8859-6",
    "iso-8859-1": "cp1252", "iso8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "iso_8859-1": "cp1252",
    "l1": "cp1252", "x-cp1252": "cp1252", "x-ansi": "cp1252", "ansi": "cp1252", "windows-ansi": "cp1252",
    "iso-8859-9": "cp1254", "iso8859-9": "cp1254", "latin5": "cp1254", "x-cp1254": "cp1254",
    "iso-8859-11": "cp874", "iso8859-11": "cp874", "tis-620": "cp874", "dos-874": "cp874", "windows-874": "cp874",
    "x-cp1250": "cp1250", "x-cp1251": "cp1251", "x-cp1253": "cp1253", "x-cp1255": "cp1255", "x-cp1256": "cp1256",
    "gb2312": "gb18030", "gbk": "gb18030", "x-gbk": "gb18030", "gb_2312-80": "gb18030", "gb2312-80": "gb18030",
    "csgb2312": "gb18030", "x-gb2312": "gb18030", "euc-cn": "gb18030", "cp936": "gb18030", "ms936": "gb18030",
    "gb_18030": "gb18030", "chinese": "gb18030", "x-euc-cn": "gb18030", "iso-ir-58": "gb18030", "cn-gb": "gb18030",
    "big5": "big5hkscs", "x-x-big5": "big5hkscs", "cn-big5": "big5hkscs", "x-big5": "big5hkscs",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932", "ms_kanji": "cp932",
    "csshiftjis": "cp932", "windows-31j": "cp932", "x-ms-cp932": "cp932", "ms932": "cp932",
    "x-euc-jp": "euc_jp", "x-euc": "euc_jp",
    "iso-2022-jp": "iso2022_jp_ext", "csiso2022jp": "iso2022_jp_ext", "iso-2022-jp-ms": "iso2022_jp_ext",
    "cp50220": "iso2022_jp_ext", "cp50221": "iso2022_jp_ext", "cp50222": "iso2022_jp_ext",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "ks_c_5601-1989": "cp949", "ksc5601": "cp949", "ksc_5601": "cp949",
    "korean": "cp949", "x-windows-949": "cp949", "windows-949": "cp949", "x-euc-kr": "cp949",
    "x-mac-roman": "mac-roman", "macintosh": "mac-roman", "x-macroman": "mac-roman", "mac": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic", "x-mac-ukrainian": "mac-cyrillic", "x-mac-greek": "mac-greek",
    "x-mac-turkish": "mac-turkish", "x-mac-ce": "mac-latin2", "x-mac-centraleurroman": "mac-latin2",
    "koi8": "koi8-r", "koi": "koi8-r", "cskoi8r": "koi8-r", "koi8-ru": "koi8-u",
    "unicode-1-1-utf-8": "utf-8", "x-utf-8": "utf-8", "utf8mb4": "utf-8", "utf-8mb4": "utf-8",
    "utf": "utf-8", "unicode": "utf-8", "unicode-1-1-utf-7": "utf-7", "x-unicode-2-0-utf-7": "utf-7",
    "cp-850": "cp850", "ibm-850": "cp850", "iso-10646-ucs-2": "utf-16", "ucs-2": "utf-16",
}  # fmt: skip
# Labels that name no charset: what they stand for is guessed.
_SAY_NOTHING = frozenset({
    "", "us-ascii", "ascii", "ansi_x3.4-1968", "iso646-us", "7bit", "8bit", "binary", "unknown-8bit", "x-unknown",
    "unknown", "x-user-defined", "default", "default_charset", "default-charset", "none", "null", "utf-8",
    "utf8", "_autodetect", "auto", "any", "charset", "text/plain", "plain",
})  # fmt: skip
# Python's table also holds things that are no charset of a text, some of them slow: idna, punycode, unicode_escape.
_TEXT_CODEC = re.compile(
    r"utf-(?:7|8|8-sig|16|16-le|16-be|32|32-le|32-be)|ascii|latin-1|iso8859-\d+|cp\d+|koi8-\w|mac-\w+|gb2312|gbk|gb18030|"
    r"hz|big5|big5hkscs|euc_\w+|shift_jis\w*|iso2022_\w+|johab|tis-620|ptcp154|kz1048|hp-roman8"
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPED = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
# cp1252 leaves five bytes undefined; browsers read them as latin-1 does (WHATWG Encoding Standard, windows-1252).
_WESTERN = [
    bytes([byte]).decode("cp1252", "ignore") or bytes([byte]).decode("latin-1") for byte in range(256)
]  # fmt: skip
_WESTERN_BYTES = dict(enumerate(_WESTERN))
_WESTERN_ESCAPED = {0xDC00 + byte: _WESTERN[byte] for byte in range(0x80, 0x100)}


@dataclass(frozen=True, kw_only=True)
class CharsetText:
    """A text and what was wrong with its charset."""

    text: str
    problem: str = ""
    """For a person; empty where nothing was."""


def known_codec(charset: str) -> str:
    """Python's name of the codec of a charset; empty where it is none that holds text, or says nothing."""
    label = charset.strip().strip("\"'").lower()
    if label in _SAY_NOTHING:
        return "utf-8" if label in {"utf-8", "utf8"} else ""
    try:
        name = codecs.lookup(_LABELS.get(label, label)).name
    except (LookupError, ValueError):
        return ""
    return name if _TEXT_CODEC.fullmatch(name) else ""


def decode_mail_bytes(data: bytes, charset: str) -> CharsetText:
    """Decodes by byte-order mark, declared charset, UTF-8, and at last as Western European.

    The text has no NUL and no lone surrogate: both become U+FFFD.
    """
    decoded = _decode(data, charset)
    if "\x00" in decoded.text or (not decoded.text.isascii() and _NO_TEXT.search(decoded.text)):
        text = _NO_TEXT.sub("\ufffd", decoded.text)
        return CharsetText(text=text, problem=decoded.problem or "it holds characters that are no text")
    return decoded


def _decode(data: bytes, charset: str) -> CharsetText:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return CharsetText(text=data[len(mark) :].decode(encoding, "replace"))
    label = charset.strip().strip("\"'").lower()
    codec = known_codec(charset)
    unknown = f"the charset {label[:40]!r} is not known" if not codec and label not in _SAY_NOTHING else ""
    # ASCII is the same in all of these; the others give ASCII bytes another meaning.
    if data.isascii() and not codec.startswith(("utf-7", "utf-16", "utf-32", "iso2022", "hz")):
        return CharsetText(text=data.decode("ascii"), problem=unknown)
    if codec == "cp1252":
        return CharsetText(text=data.decode("latin-1").translate(_WESTERN_BYTES))
    if codec and codec != "utf-8":
        try:
            return CharsetText(text=data.decode(codec))
        except UnicodeError:
            return _decode_wrong(data, codec)
    text = data.decode("utf-8", "surrogateescape")
    undecoded = len(_ESCAPED.findall(text))
    if not undecoded:
        return CharsetText(text=text, problem=unknown)
    if undecoded < len(_BEYOND_ASCII.findall(text)):
        # UTF-8 with a few foreign bytes: the rest of it stays right.
        problem = f"{undecoded} bytes are not UTF-8 and were read as windows-1252"
        return CharsetText(text=text.translate(_WESTERN_ESCAPED), problem=unknown or problem)
    text = data.decode("latin-1").translate(_WESTERN_BYTES)
    says = "it is not the utf-8 that it says" if codec else "it names no charset"
    return CharsetText(text=text, problem=unknown or f"{says} and was read as windows-1252")


def _decode_wrong(data: bytes, codec: str) -> CharsetText:
    """Bytes that are not what they are declared to be."""
    try:
        return CharsetText(text=data.decode("utf-8"), problem=f"it is UTF-8 and not {codec}, as it says")
    except UnicodeError:
        text = data.decode(codec, "replace")
        return CharsetText(text=text, problem=f"{text.count(chr(0xFFFD))} characters are not {codec}")
