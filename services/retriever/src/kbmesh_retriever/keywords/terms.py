"""Text to terms: the same for documents and queries, for words, identifiers and scripts without spaces.

- Forms are folded (NFKC, full case folding, accents of Latin and Greek), so that composed and decomposed, full-width
  and half-width, "straße" and "STRASSE" are one term.
- An identifier is found whole and in parts: "JIRA-4815" gives jira4815, jira and 4815; "getUserById" gives
  getuserbyid, get, user, by and id.
- Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese are cut into pairs of grapheme clusters, because their words
  are not parted by spaces (Korean's are, but carry particles).
- Words are stemmed by the Snowball algorithm of their script.
"""

import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import regex
import snowballstemmer

WHOLE_IDENTIFIER_WEIGHT = 2.0
"""Of an identifier in a query, so that JIRA-4815 outranks fragments that only share its parts."""
PART_WEIGHT = 0.5
"""Of a part of an identifier in a query."""

_LONGEST_SPLIT_CHARACTERS = 64
"""A longer run is base64 or a hash: its parts would be noise."""
_INVISIBLE = regex.compile(r"[\u00ad\u200b-\u200f\u2060\ufeff\u0640\u064b-\u0652]+")
_THOUSANDS = regex.compile(r"(?<![\p{N},.])\p{N}{1,3}(?:,\p{N}{3})+(?![\p{N},])")
_TOKEN = regex.compile(
    r"[\p{L}\p{M}\p{N}]+(?:(?:[-.'’@]|_+|::)[\p{L}\p{M}\p{N}]+)*(?:\+\+|#(?![\p{L}\p{N}]))?"
    r"|\p{Extended_Pictographic}"
)
_JOINT = regex.compile(r"[-.'’@]|_+|::")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々〆"
_HAS_UNSPACED = regex.compile(f"[{_UNSPACED}]")
_SCRIPT_RUN = regex.compile(rf"(?P<unspaced>[{_UNSPACED}][{_UNSPACED}\p{{M}}]*)|(?P<spaced>[^{_UNSPACED}]+)")
_CLUSTER = regex.compile(r"\X")
_ACCENTED = regex.compile(r"(?<=[\p{Latin}\p{Greek}])[\u0300-\u036f]+")
_LETTERS_OR_DIGITS = regex.compile(r"\p{N}+|[^\p{N}]+")
_CAMEL = regex.compile(r"\p{Lu}+(?=\p{Lu}\p{Ll})|\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+|[^\p{Lu}\p{Ll}]+")
_PLURAL_ACRONYM = regex.compile(r"\p{Lu}+s")
_UUID = regex.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGIT = regex.compile(r"\p{N}")
_LIGATURES = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "ё": "е"})

_STEMMER_BY_SCRIPT: Mapping[str, str] = {
    r"[a-z]+": "english",
    r"[\p{Cyrillic}\p{M}]+": "russian",
    r"[\p{Arabic}\p{M}]+": "arabic",
    r"[\p{Greek}\p{M}]+": "greek",
    r"[\p{Devanagari}\p{M}]+": "hindi",
    r"[\p{Tamil}\p{M}]+": "tamil",
    r"[\p{Armenian}\p{M}]+": "armenian",
}
_STEMMERS = tuple((regex.compile(p), snowballstemmer.stemmer(name)) for p, name in _STEMMER_BY_SCRIPT.items())
_STEMMER_LOCK = threading.Lock()  # a Snowball stemmer keeps its word in itself

_STOP_WORDS = """
    a an and are as at be been but by can could did do does for from had has have how i if in into is it its me my
    of on or our should so than that the their them then there these they this those to us was we were what when
    where which who whom whose why will with would you your
"""
REMEMBERED_WORDS = 8_192
"""Words whose analysis is kept: nearly all of a text are among the most frequent. Texts that bring ever new ones, such
as numbers and keys, must not fill the memory."""
REMEMBERED_CHARACTERS = 64
"""Of a word; a longer one is analysed each time it comes."""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Left out of a query that holds other words. Documents keep them, so that a query of nothing else finds something."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term and what it weighs in a query."""

    text: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Token:
    """What stands between two spaces, with the terms it is found by."""

    terms: tuple[Term, ...]
    length: int
    """Words it counts for."""
    is_stop_word: bool = False


def document_tokens(text: str) -> Iterator[Token]:
    """The tokens of a passage."""
    for surface in _surfaces(text):
        yield _analyse(surface, False)


def query_tokens(text: str) -> Iterator[Token]:
    """The tokens of a query. Where a document also has single clusters, a query has pairs alone."""
    for surface in _surfaces(text):
        yield _analyse(surface, True)


def fold(text: str) -> str:
    """Case, width, composition and accents made equal."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if folded.isascii():
        return folded
    bare = _ACCENTED.sub("", unicodedata.normalize("NFD", folded.translate(_LIGATURES)))
    return unicodedata.normalize("NFC", bare)


def _surfaces(text: str) -> Iterator[str]:
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    visible = _THOUSANDS.sub(lambda number: number.group().replace(",", ""), visible)
    return (match.group() for match in _TOKEN.finditer(visible))


def _analyse(surface: str, in_query: bool) -> Token:
    return _remembered(surface, in_query) if len(surface) <= REMEMBERED_CHARACTERS else _analysed(surface, in_query)


@lru_cache(maxsize=REMEMBERED_WORDS)
def _remembered(surface: str, in_query: bool) -> Token:
    return _analysed(surface, in_query)


def _analysed(surface: str, in_query: bool) -> Token:
    if _HAS_UNSPACED.search(surface):
        return _analyse_unspaced(surface, in_query)
    pieces = _JOINT.split(surface)
    is_stop_word = len(pieces) == 1 and fold(surface) in STOP_WORDS and not (len(surface) > 1 and surface.isupper())
    suffix = _suffix(surface)
    if suffix:
        pieces[-1] = pieces[-1].removesuffix(suffix)
    parts = _parts(surface, pieces)
    if not parts and not suffix:
        return Token((Term(stem(fold(surface))),), 1, is_stop_word)
    is_identifier = bool(suffix) or _is_identifier(surface, pieces)
    whole = Term(_whole(pieces) + suffix, WHOLE_IDENTIFIER_WEIGHT if is_identifier else 1.0)
    texts = dict.fromkeys(stem(fold(part)) for part in (parts or pieces))
    texts.pop(whole.text, None)
    weight = PART_WEIGHT if is_identifier else 1.0
    return Token((whole, *(Term(text, weight) for text in texts)), 1)


def _suffix(surface: str) -> str:
    return "++" if surface.endswith("++") else "#" if surface.endswith("#") else ""


def _analyse_unspaced(surface: str, in_query: bool) -> Token:
    terms: list[Term] = []
    length = 0
    for piece in _JOINT.split(surface):
        for run in _SCRIPT_RUN.finditer(piece):
            if run.lastgroup == "spaced":
                token = _analyse(run.group(), in_query)
                terms += token.terms
                length += token.length
            else:
                clusters = _CLUSTER.findall(fold(run.group()))
                pairs = [first + second for first, second in pairwise(clusters)]
                if not (in_query and pairs):
                    terms += map(Term, clusters)
                terms += map(Term, pairs)
                length += max(1, len(pairs))
    return Token(tuple(terms), length)


def _parts(surface: str, pieces: list[str]) -> list[str]:
    """What an identifier or a compound is made of. Empty for a plain word."""
    if len(surface) > _LONGEST_SPLIT_CHARACTERS and len(pieces) == 1:
        return []
    if _UUID.fullmatch(surface):
        return pieces
    parts: list[str] = []
    for piece in pieces:
        smaller = [part for part in _split_word(piece) if part != piece]
        if len(pieces) > 1 and (len(piece) > 1 or _DIGIT.match(piece)):
            parts.append(piece)
        parts += smaller
    return parts


def _split_word(word: str) -> list[str]:
    """ "OAuth2" to OAuth, Auth and 2."""
    if len(word) > _LONGEST_SPLIT_CHARACTERS or _PLURAL_ACRONYM.fullmatch(word):
        return []
    runs = _LETTERS_OR_DIGITS.findall(word)
    if len(runs) > 3:  # a hash or a key, not words
        return []
    parts: list[str] = []
    previous = ""
    for run in runs:
        if len(run) > 1 or (_DIGIT.match(run) and len(previous) > 1):
            parts.append(run)
        humps = _CAMEL.findall(run)
        if len(humps) > 1:
            parts += [hump for hump in humps if len(hump) > 1]
        previous = run
    return parts


def _is_identifier(surface: str, pieces: list[str]) -> bool:
    """Whether it is a name of one thing and not a hyphenated word."""
    if "'" in surface or "’" in surface:
        return False
    return (
        any(mark in surface for mark in "_.@:")
        or _DIGIT.search(surface) is not None
        or any(len(_split_word(piece)) > 1 for piece in pieces)
    )


def _whole(pieces: list[str]) -> str:
    """One spelling for "e-mail" and "email", "JIRA-4815" and "JIRA4815"; numbers keep theirs apart: 1.5 is not 15."""
    joint = "-" if all(piece.isdigit() for piece in pieces) else ""
    return stem(fold(joint.join(pieces)))


def stem(word: str) -> str:
    """The stem of a folded word by its script's Snowball algorithm; the word itself where there is none."""
    return _remembered_stem(word) if len(word) <= REMEMBERED_CHARACTERS else _stem(word)


@lru_cache(maxsize=REMEMBERED_WORDS)
def _remembered_stem(word: str) -> str:
    return _stem(word)


def _stem(word: str) -> str:
    for script, stemmer in _STEMMERS:
        if script.fullmatch(word):
            with _STEMMER_LOCK:
                return str(stemmer.stemWord(word)) or word
    return word
