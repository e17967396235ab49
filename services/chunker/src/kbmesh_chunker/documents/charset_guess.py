"""Which charset a text has that names none and is not UTF-8.

Scripts other than Latin are told apart by charset-normalizer. Latin ones are told apart here, by the letters of
languages: by frequency alone, French and Swedish are too easily taken for Central European.
"""

import re
from collections import Counter

from charset_normalizer import from_bytes

_SAMPLE = 65_536
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")
_WORD_BEYOND = re.compile(rb"[\x80-\xff]{3}")
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_EAST_ASIAN = re.compile("[\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]")
_KANA = re.compile("[\u3041-\u30fe]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_SURE = 0.95
_CLEARLY_BETTER = 0.25
_NUL_SHARE = 0.03
_MIXED_NUL_SHARE = 0.2
_USUAL_SHARE = 0.8
_DENSE = 0.4
_HIGH_SHARE = 0.2
_KANA_SHARE = 0.3
_HANGUL_SHARE = 0.85

_PUNCTUATION = "“”„‘’‚–—…•«»‹›€£§°·¿¡©®™´×²³½¼ªº\xa0"
_WESTERN_LETTERS = (
    "àâæçéèêëîïôœùûüÿ", "äöüß", "áéíñóúü", "ãáàâçéêíóôõúü", "àèéìíîòóùú", "åäöé", "æøåéòóôü", "áðéíóúýþæö",
    "éëïóöüáè", "àçèéíïòóúü", "äåöšž",
)  # fmt: skip
_CENTRAL_LETTERS = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîșțşţ", "äöüß", "çë")
# By charset, the letters of each language that is written in it. The first of equals is taken.
_LATIN = {
    "cp1252": _WESTERN_LETTERS,
    "cp1250": _CENTRAL_LETTERS,
    "iso8859-2": _CENTRAL_LETTERS,
    "cp1254": ("çğıöşüâîûi̇",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
    "mac-roman": _WESTERN_LETTERS,
    "cp850": _WESTERN_LETTERS,
    "cp852": _CENTRAL_LETTERS,
}
_CYRILLIC, _GREEK = "оеаинтсрвлкм", "αοιετσνηυρπκς"
_FREQUENT = {
    "cp1251": _CYRILLIC, "koi8-r": _CYRILLIC, "cp866": _CYRILLIC, "iso8859-5": _CYRILLIC, "mac-cyrillic": _CYRILLIC,
    "cp1253": _GREEK, "cp1255": "יוהלאתרבמשנ", "cp1256": "الينمتوربعدس", "cp874": "านรอกเงมยลวดทส",
}  # fmt: skip
"""The letters of a language that are seen most, by charset."""
_RARE = frozenset({"mac-roman", "cp850", "cp852"})
"""Charsets of old systems, which must be clearly better than others."""
# What charset-normalizer says of texts in these is no better than the letters of languages.
_LATIN_GUESSES = re.compile(
    r"cp(?:125[02478]|437|500|77\d|8[5-6]\d|1026|1140|858)|latin.*|iso8859.(?:[1-4]|9|1[03-6])|mac.*|hp.*|ascii"
)


def guess_wide(data: bytes) -> str:
    """`utf-16-le` or `utf-16-be` where bytes without a mark are UTF-16; empty where they are not."""
    sample = data[: _SAMPLE // 4 * 4]
    if len(data) % 2 or len(sample) < 2:
        return ""
    for encoding, high, low in (("utf-16-le", sample[1::2], sample[0::2]), ("utf-16-be", sample[0::2], sample[1::2])):
        # The upper bytes are those of one script and of ASCII, whose upper byte is 0.
        usual = sum(count for _, count in Counter(high).most_common(2))
        nulls = high.count(0)
        least = _NUL_SHARE if usual > len(high) * _USUAL_SHARE else _MIXED_NUL_SHARE
        if nulls > len(high) * least and low.count(0) <= nulls / 20:
            return encoding
    if len(_BEYOND_ASCII.findall(sample)) < len(sample) * _HIGH_SHARE:
        # Pairs of ASCII letters are East Asian characters too, to who reads them as UTF-16.
        return ""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, "ignore")
        plain = len(text) - len(_NOT_ASCII.findall(text))
        if len(_EAST_ASIAN.findall(text)) + plain >= len(text) * _SURE > plain * 2:
            return encoding
    return ""


def guess(data: bytes) -> str:
    """The name of the charset of a text that is not UTF-8, as Python names it. Always the same for the same bytes."""
    if b"\x1b$" in data[:_SAMPLE] and not _BEYOND_ASCII.search(data):
        return "iso2022_kr" if b"\x1b$)C" in data[:_SAMPLE] else "iso2022_jp_2"
    sample = _telling(data)
    east_asian = _east_asian(sample)
    if east_asian:
        return east_asian
    latin, share = _latin(sample)
    if share >= _SURE:
        return latin
    if not _WORD_BEYOND.search(sample):
        # Other scripts write whole words beyond ASCII; a letter here and there tells nothing of one.
        return latin if share else "cp1252"
    found = from_bytes(sample).best()
    encoding = found.encoding if found is not None else ""
    if not encoding or _LATIN_GUESSES.fullmatch(encoding) or encoding.startswith("utf"):
        return latin if share else _other_script(sample)
    # What was found in a sample is read by the widest charset of its family.
    return {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs"}.get(
        encoding, encoding
    )


def _east_asian(sample: bytes) -> str:
    """Japanese and Korean, which their own letters tell apart from all others; empty where there are too few."""
    for encoding, letters, needed in (
        ("euc_jp", _KANA, _KANA_SHARE),
        ("cp932", _KANA, _KANA_SHARE),
        ("cp949", _HANGUL, _HANGUL_SHARE),
    ):
        text = sample.decode(encoding, "replace")
        beyond = len(_NOT_ASCII.findall(text))
        if text.count("\ufffd") * 100 <= beyond and len(letters.findall(text)) >= max(2, beyond * needed):
            return encoding
    return ""


def _telling(data: bytes) -> bytes:
    """The lines that are not plain ASCII, up to a bound."""
    lines = []
    size = 0
    for line in data[: 16 * _SAMPLE].split(b"\n"):
        if not line.isascii():
            lines.append(line)
            size += len(line)
            if size > _SAMPLE:
                break
    if not lines:
        first = _BEYOND_ASCII.search(data)
        lines.append(data[max(0, first.start() - 200) : first.start() + _SAMPLE] if first else b"")
    sample = b"\n".join(lines)
    if len(sample) <= _SAMPLE:
        return sample
    # No character of several bytes ends in a byte below 0x30.
    end = max(sample.rfind(mark, 0, _SAMPLE) for mark in (b" ", b"\n", b",", b"."))
    return sample[: end + 1] if end > 0 else sample[:_SAMPLE]


def _other_script(sample: bytes) -> str:
    """The charset of one byte a letter in which a text that is not Latin has most letters that are frequent."""
    counts = Counter(b"".join(_BEYOND_ASCII.findall(sample)))

    def frequent(encoding: str) -> int:
        letters = _FREQUENT[encoding]
        return sum(count for byte, count in counts.items() if bytes([byte]).decode(encoding, "replace") in letters)

    return max(_FREQUENT, key=frequent)


def _latin(sample: bytes) -> tuple[str, float]:
    """The charset whose letters beyond ASCII fit a language best, and the share of them that do."""
    best, best_share = "cp1252", 0.0
    beyond = bytes(_BEYOND_ASCII.findall(sample) and b"".join(_BEYOND_ASCII.findall(sample)))
    if not beyond:
        return best, best_share
    counts = {byte: beyond.count(byte) for byte in set(beyond)}
    for encoding, languages in _LATIN.items():
        for letters in languages:
            known = letters + letters.upper() + _PUNCTUATION
            fitting = sum(count for byte, count in counts.items() if bytes([byte]).decode(encoding, "replace") in known)
            share = fitting / len(beyond)
            if share > best_share + (_CLEARLY_BETTER if encoding in _RARE else 0.001):
                best, best_share = encoding, share
    if len(beyond) > len(sample) * _DENSE:
        # No Latin script has so many letters beyond ASCII.
        best_share = 0.0
    return best, best_share
