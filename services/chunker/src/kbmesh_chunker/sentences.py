"""Where sentences end, in any script, by the rules of Unicode UAX 29 and a list of abbreviations.

A sentence ends after its last mark and the quotes and brackets that close with it; the white space that follows
belongs to no sentence. Positions are code points of the whole text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Marks that end a sentence only before white space (Western, Arabic, Indic, Ethiopic, ...), and marks of scripts
# that put no space between sentences.
_SPACED_MARKS = ".!?…‼⁇⁈⁉؟۔؞।॥።፧፨։՜՞჻᠃᠉។៕᱾᱿၊။"
_CLOSED_MARKS = frozenset("。！？｡．﹒﹖﹗")
_MARKS = _SPACED_MARKS + "".join(sorted(_CLOSED_MARKS))
_CLOSERS = r"""\"'”’»›)\]}」』】〉》〕）］｝»"""
_MARKS_AND_CLOSERS = _CLOSED_MARKS | frozenset(_SPACED_MARKS + "\"'”’»›)]}」』】〉》〕）］｝")
SENTENCE_CLOSERS = _MARKS_AND_CLOSERS
"""What a sentence ends with: its mark, or what closes after it."""
_QUOTES = frozenset("\"'”’»")
_THAI = "\u0e01-\u0e5b"
_LAO_KHMER = "\u0e81-\u0edf\u1780-\u17ff"
_MARKED = rf"[{re.escape(_SPACED_MARKS)}{''.join(sorted(_CLOSED_MARKS))}]+[{_CLOSERS}]*"
_UNMARKED = re.compile(f"[{_THAI}{_LAO_KHMER}]")
_CANDIDATE = re.compile(
    # Thai, Lao and Khmer end sentences with a space and no mark.
    rf"{_MARKED}|(?<=[{_THAI}{_LAO_KHMER}])(?=[ \u00a0\u200b][ \u00a0\u200b]?[{_THAI}{_LAO_KHMER}\w])"
)
# Before a full stop these words do not end a sentence. In lower case, without that full stop.
_WORDS = """
    mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt gov sen rep pres mt ft vs etc eg ie e.g i.e cf al ca approx
    no nos vol vols ed eds pp p fig figs eq eqs sec ch chap par art inc ltd co corp dept univ assn bros est tel ext
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun a.m p.m u.s u.k u.n
    z.b d.h u.a s.o s.u i.d.r o.ä bzw usw ggf evtl vgl nr abs str hr fr hrsg bd aufl inkl zzgl max min mio mrd
    m mme mlle mm p.ex av env n.b sra dra srta ud uds pág págs núm ej p.ej dott sig sigg ecc dhr mevr bijv enz
    т.е т.д т.п т.к г гг им ул стр рис см др проф акад
"""
_ABBREVIATIONS = frozenset(_WORDS.split())
_LONGEST_ABBREVIATION = 7
"""So many letters in a row are none."""
_WORD_BEFORE = re.compile(r"[^\W\d_](?:[\w.]*[^\W_])?$")
_ENUMERATOR = re.compile(r"(?:^|\n)[ \t>*+-]*(?:\d{1,4}|[A-Za-z])$")
_LOOKBACK = 24
_NEAR = 192
_RUN = 32
_AHEAD = 4
_LONG_WORD = 5


@dataclass(frozen=True, kw_only=True)
class Script:
    """What ends sentences in one text. The less of it there is, the faster it is found."""

    marks: str
    """The marks that occur; empty where sentences may end without one."""
    candidate: re.Pattern[str]


ANY_SCRIPT = Script(marks="", candidate=_CANDIDATE)


def script_of(text: str) -> Script:
    """The script of a text: sentences are found in it as in any script, and faster."""
    if not text.isascii():
        wide = text.encode("utf-16-le", "surrogatepass")
        if (b"\x0e" in wide or b"\x17" in wide) and _UNMARKED.search(text):
            return ANY_SCRIPT
    marks = "".join(mark for mark in (".!?" if text.isascii() else _MARKS) if mark in text) or "."
    if not _CLOSED_MARKS.isdisjoint(marks):
        return Script(marks=marks, candidate=re.compile(rf"[{re.escape(marks)}]+[{_CLOSERS}]*"))
    # Without a mark that ends a sentence wherever it stands, white space must follow. What is longer than a run is no
    # end before its last marks, so that a million of them are not looked through from each one.
    ending = rf"[{re.escape(marks)}]{{1,{_RUN}}}+[{_CLOSERS}]{{0,{_RUN}}}+(?=\s|\Z)"
    return Script(marks=marks, candidate=re.compile(ending))


def sentence_ends(text: str, start: int, end: int, script: Script = ANY_SCRIPT) -> Iterator[int]:
    """Positions within (start, end] at which a sentence of `text` ends, ascending. `script` is that of the text."""
    for candidate in script.candidate.finditer(text, start, end):
        begins, position = candidate.span()
        if position > start and _ends(text, begins, position):
            yield position


def sentence_ends_backwards(text: str, start: int, end: int, script: Script = ANY_SCRIPT) -> Iterator[int]:
    """The same positions, descending: for the one who looks for the last that suits."""
    lower = start
    if script.marks:
        # Marks are found much faster one by one than by a pattern.
        lower = max([text.rfind(mark, start, end) for mark in script.marks])
        if lower < 0:
            return
    upper, width = end, _NEAR
    while True:
        while start < lower and text[lower - 1] in _MARKS_AND_CLOSERS:
            # Marks in a row are one end.
            lower -= 1
        # Those between Thai words look a few characters ahead.
        found = list(script.candidate.finditer(text, lower, end if upper == end else min(end, upper + _AHEAD)))
        for candidate in reversed(found):
            begins, position = candidate.span()
            if position > start and (begins < upper or upper == end) and _ends(text, begins, position):
                yield position
        if lower <= start:
            return
        upper, lower, width = lower, max(start, lower - width), width * 4


def _ends(text: str, mark: int, position: int) -> bool:
    if mark == position:
        return True
    marks = text[mark:position]
    following = text[position : position + 1]
    if following and not following.isspace():
        # A mark that a further one or a closer follows beyond the window is not the end yet.
        return following not in _CLOSED_MARKS and not _CLOSED_MARKS.isdisjoint(marks)
    if not _CLOSED_MARKS.isdisjoint(marks):
        return True
    if _opens_line(text, mark):
        # A mark with nothing before it on its line is a sign, such as that of a note.
        return False
    if marks[0] != "." and marks[-1] != ".":
        # What was quoted may end before the sentence does: "Stop!" he said.
        return not (marks[-1] in _QUOTES and _goes_on(text, position))
    return not (_continues(text, mark, position) or _abbreviates(text, mark, marks))


def _opens_line(text: str, mark: int) -> bool:
    if mark and text[mark - 1] not in " \t\n\r":
        return False
    before = text[max(0, mark - _LOOKBACK) : mark].rstrip(" \t")
    return before[-1:] in ("\n", "\r") or (not before and mark <= _LOOKBACK)


def _goes_on(text: str, position: int) -> bool:
    """Whether the next word after white space is in lower case, and in the same paragraph."""
    after = text[position : position + 8]
    return after.lstrip(" \t\r\n\"'“‘«(")[:1].islower() and "\n\n" not in after


def _continues(text: str, mark: int, position: int) -> bool:
    """Whether what follows the white space after a full stop goes on in lower case (UAX 29, rule SB8).

    People who write without capitals end sentences too, and a long word is seldom an abbreviation.
    """
    return _goes_on(text, position) and not text[max(0, mark - _LONG_WORD) : mark].isalpha()


def _abbreviates(text: str, mark: int, marks: str) -> bool:
    if marks != "." and (marks[0] != "." or marks.rstrip("\"'”’»›)]}") != "."):
        return False
    before = text[max(0, mark - _LOOKBACK) : mark]
    if before[-_LONGEST_ABBREVIATION:].isalpha() and len(before) >= _LONGEST_ABBREVIATION:
        return False
    if mark <= _LOOKBACK and _ENUMERATOR.match(before.lstrip()):
        return True
    # An item's number or letter has no word beside it.
    if (before[-1:].isdigit() or not before[-2:].isalpha()) and _ENUMERATOR.search(before):
        return "\n" in before or mark <= _LOOKBACK
    word = _WORD_BEFORE.search(before)
    if word is None:
        return False
    found = word.group()
    # One capital is an initial: J. S. Bach.
    return (len(found) == 1 and found.isupper()) or found.lower() in _ABBREVIATIONS
