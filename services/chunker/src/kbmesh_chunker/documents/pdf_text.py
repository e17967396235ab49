"""The characters of a PDF, as one reads them; and words that were divided at the end of a line."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

DIVIDED = "\ufffe"
"""What PDFium gives for a hyphen at the end of a line."""
NO_CHARACTER = "\ufffd"

# Symbols of the fonts Symbol and Wingdings, which have no Unicode of their own in a PDF.
_PRIVATE = {
    0xF0B7: "•", 0xF0A7: "▪", 0xF0A8: "◻", 0xF0FC: "✓", 0xF0FB: "✗", 0xF0E0: "→", 0xF0E8: "➔", 0xF0D8: "➢",
    0xF076: "❖", 0xF06E: "■", 0xF06F: "□", 0xF06C: "●", 0xF0A1: "○", 0xF0B0: "°", 0xF0B1: "±", 0xF0B4: "×",
    0xF0B8: "÷", 0xF0B9: "≠", 0xF0A3: "≤", 0xF0B3: "≥", 0xF0A5: "∞", 0xF0AE: "→", 0xF0AC: "←", 0xF0DE: "⇒",
    0xF061: "α", 0xF062: "β", 0xF067: "γ", 0xF064: "δ", 0xF065: "ε", 0xF06D: "μ", 0xF070: "π", 0xF073: "σ",
    0xF02D: "−", 0xF03D: "=", 0xF02B: "+",
}  # fmt: skip
_ODD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xa0\xad\u2000-\u200b\u202a-\u202e\u2060-\u206f\u2e80-\u2fdf\ud800-\udfff"
    "\ue000-\uf8ff\ufb00-\ufdff\ufe70-\ufeff\ufff0-\ufffc\uffff\U000f0000-\U0010ffff]"
)
_MARK = re.compile("[\u0300-\u036f\u3099\u309a]")
_LEADER = re.compile(r"[ \t]*(?:(?:\.[ \t]?){5,}|(?:·[ \t]?){5,}|…{3,})[ \t]*")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LAST_PART = re.compile(r"[^\W_]+(?:-[^\W_]+)*$")
_FIRST_PART = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
# What keeps its hyphen in front of almost any word.
_OFTEN_FIRST = frozenset({"self", "non", "well", "quasi", "semi", "half"})


def clean(text: str) -> str:
    """Text of a page without what no reader sees: control characters, ligatures, presentation forms of letters,
    symbols of private use. What stands for no character becomes U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    text = _ODD.sub(_plain, text)
    return unicodedata.normalize("NFC", text) if _MARK.search(text) else text


def _plain(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code in (0xA0, 0x3000) or 0x2000 <= code <= 0x200A:
        return " "
    if code in _PRIVATE:
        return _PRIVATE[code]
    if 0xF020 <= code <= 0xF07E:
        return chr(code - 0xF000)
    if 0xFB00 <= code <= 0xFDFF or 0xFE70 <= code < 0xFEFF or 0x2E80 <= code <= 0x2FDF:
        return unicodedata.normalize("NFKC", character)
    if 0xE000 <= code <= 0xF8FF or code >= 0xF0000 or 0xD800 <= code <= 0xDFFF or code == 0xFFFF:
        return NO_CHARACTER
    return character if code == 0xFFFC else ""


def without_leader(text: str) -> str:
    """A line of a table of contents as a row: what leads to the page number are dots, but means no more than a tab."""
    return _LEADER.sub("\t", text).strip() if ". ." in text or "...." in text or "··" in text else text


class Words:
    """The words of a document, from which is judged whether a hyphen at a line's end belongs to the word."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines` with the hyphens they end in: what stands beside those is no word of its own."""
        self._known: Counter[str] = Counter()
        for line in lines:
            words = [match.group().casefold() for match in _WORD.finditer(line)]
            if ends_divided(line):
                words = words[:-1]
            self._known.update(words[1:] if words else ())
            # The first word of a line may be the rest of one that was divided above it.
            for word in words[:1]:
                self._known[word] += 0 if word in self._known else 1

    def join(self, first: str, second: str) -> str:
        """Two lines of which the first ends in a hyphen, as one. The hyphen goes only where it was put in for the line
        to end there."""
        stem = first.rstrip(DIVIDED + "-\xad\u2010")
        head, tail = _LAST_PART.search(stem), _FIRST_PART.match(second)
        if first.endswith("\xad"):
            return stem + second
        if head is None or tail is None or not self._is_division(head.group(), tail.group()):
            return f"{stem}-{second}"
        return stem + second

    def _is_division(self, head: str, tail: str) -> bool:
        if not tail[0].islower() or not head[-1].islower() or "-" in head:
            return False
        known, head, tail = self._known, head.casefold(), tail.casefold()
        tail = tail.partition("-")[0]
        if known[head + tail]:
            return not known[f"{head}-{tail}"] > known[head + tail]
        if known[f"{head}-{tail}"] or head in _OFTEN_FIRST:
            return False
        # Two words of the document that are one nowhere are a compound; a part that is no word was cut off.
        return not (known[head] and known[tail] > 1)


def ends_divided(line: str) -> bool:
    """Whether a line ends in a hyphen behind a letter."""
    return len(line) > 1 and line[-1] in "-\xad\u2010" + DIVIDED and line[-2].isalpha()


def is_wide(character: str) -> bool:
    """Whether lines may end beside it without a space, as in Chinese and Japanese."""
    return "\u2e80" <= character <= "\ua4cf" or "\uf900" <= character <= "\ufaff" or "\uff00" <= character <= "\uffef"
