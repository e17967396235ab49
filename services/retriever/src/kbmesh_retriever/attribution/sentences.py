"""Where a text may be cut without cutting a sentence.

In doubt a place is no end: a text that is cut too early misses a sentence, one that is cut within a sentence says
something else. The marks are Unicode's Sentence_Terminal (UAX 29).
"""

from collections.abc import Iterator

import regex

_SENTENCE_END = regex.compile(
    # Marks of scripts without spaces end a sentence wherever they stand, all others before white space.
    r"[。！？｡．]+[」』）】〉》〕”’\"')\]]*(?![\p{M}。！？｡．])"
    r"|(?:\p{Sentence_Terminal}|…)+[\p{Pe}\p{Pf}\"'”’»]*(?=\s)"
    # Thai, Lao and Khmer have no mark: a space does it.
    r"|(?<=[\p{Thai}\p{Lao}\p{Khmer}])(?=[ \u00a0\u200b]+[\p{Thai}\p{Lao}\p{Khmer}])"
    r"|(?<=\S)(?=[^\S\n]*\n)"
)
_LINE_END = regex.compile(r"(?<=\S)(?=[^\S\n]*\n)")
_ITEM = regex.compile(r"[^\S\n]*(?:[-*+•–—>#|]|\d{1,3}[.)]|```|~~~)")
_FIRST_WORD = regex.compile(r"[^\S\n]*(\S+)")
_WORD_BEFORE = regex.compile(r"(?:[\p{L}\p{M}]|\d|(?<=\p{L})\.(?=\p{L}))+\Z")
_QUOTES_OF_UNSPACED = frozenset("」』】〉》〕）”’")
_LOOKBACK = 24
_WORDS = """
    mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt gov sen rep mt ft vs etc eg ie e.g i.e cf al ca approx no nos
    vol vols ed eds p pp fig figs eq eqs sec ch chap art inc ltd co corp dept univ est tel ext a.m p.m u.s u.k u.n jan
    feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun z.b d.h u.a s.o s.u i.d.r o.ä bzw usw ggf
    evtl vgl nr abs str hr fr bd inkl zzgl min max mio mrd m mme mlle mm av env n.b sra dra srta ud uds pág núm p.ej
    dott sig sigg ecc dhr mevr bijv enz т.е т.д т.п т.к г гг им ул стр рис см др проф акад
"""
_ABBREVIATIONS = frozenset(_WORDS.split())


def sentence_ends(text: str, *, by_lines: bool = False) -> Iterator[int]:
    """Positions at which a sentence of `text` ends, ascending, before the white space that follows; its own end is not
    among them. `by_lines`: the text is code, a table or a log, whose lines are what a sentence is elsewhere."""
    if by_lines:
        yield from (match.end() for match in _LINE_END.finditer(text))
        return
    width = max(map(len, text.split("\n")))
    last = 0
    for match in _SENTENCE_END.finditer(text):
        end = match.end()
        if last < end < len(text) and (_breaks_off if not match[0] and text[end : end + 1] != " " else _ends)(
            text, match.start(), end, width
        ):
            last = end
            yield end


def _ends(text: str, start: int, end: int, width: int) -> bool:
    """Whether a mark, or the space between two words of Thai, ends a sentence."""
    mark = text[start:end]
    if not mark or not mark[0].isascii():
        # What was quoted may end before the sentence does.
        return mark[-1:] not in _QUOTES_OF_UNSPACED or not text[end].isalpha()
    following = text[end : end + 16].lstrip()
    if "\n\n" not in text[end : end + 16].replace("\r", "") and following.lstrip("\"'“‘«([")[:1].islower():
        return False
    if mark[0] != ".":
        return True
    word = _WORD_BEFORE.search(text, max(0, start - _LOOKBACK), start)
    if word is None:
        return True
    before = word[0]
    # A letter is an initial; a short number counts something: J. S. Bach, 3. Mai, 2. Install it.
    is_short = (len(before) == 1 and before.isalpha()) or (before.isdigit() and len(before) <= 2)
    return not is_short and before.casefold() not in _ABBREVIATIONS


def _breaks_off(text: str, start: int, end: int, width: int) -> bool:
    """Whether a line was ended on purpose, and not because it was full: before an empty line or an item of a list, or
    where the next word would have had room."""
    following = text.index("\n", end) + 1
    word = _FIRST_WORD.match(text, following)
    if word is None:
        return True
    if _ITEM.match(text, following):
        return True
    begun = text.rfind("\n", 0, end) + 1
    return end - begun + 1 + len(word[1]) <= width and not word[1].lstrip("\"'“‘«([")[:1].islower()
