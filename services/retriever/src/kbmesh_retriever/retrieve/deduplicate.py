"""Fragments that say the same are shown once, with every place that says it.

Two texts say the same where the Jaccard similarity of their word sets is at least 0.9. Most texts have so many words to
themselves that they are like none, which is seen at little cost. Among the others pairs are found by a prefix filter
(Chaudhuri, Ganti and Kaushik, ICDE 2006): sets so alike share one of their few rarest words, so that only those that do
are compared.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from uuid import UUID

import regex

from kbmesh_retriever.retrieve.fragment import Candidate, Fragment

JACCARD_THRESHOLD = 0.9

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_RUN = regex.compile(rf"[{_UNSPACED}\p{{M}}ー]+|[\p{{L}}\p{{M}}\p{{N}}--[{_UNSPACED}]]+", regex.VERSION1)
_HAS_UNSPACED = regex.compile(f"[{_UNSPACED}]")
_WORD = re.compile(r"\w+")  # three times as fast as `regex`, and the text of most sources needs no more
_ASCII_WORDS = bytes(
    ord(chr(code).lower()) if chr(code).isascii() and (chr(code).isalnum() or code == ord("_")) else ord(" ")
    for code in range(256)
)
"""The same for ASCII, faster again by far: letters become small ones, and what is no word a space."""


@dataclass(frozen=True, kw_only=True)
class Deduplicated:
    """The survivors in their order, and for each dropped chunk the one that stands for it."""

    survivors: tuple[Candidate, ...]
    dropped: dict[UUID, UUID]


def deduplicate(candidates: Sequence[Candidate]) -> Deduplicated:
    """The first of those alike survives and keeps the others as duplicates, so long as they stand in another place."""
    words = [word_set(candidate.fragment.text) for candidate in candidates]
    doubtful = _doubtful(words)
    frequency = Counter(chain.from_iterable(words[index] for index in doubtful))
    duplicates: dict[int, list[Candidate]] = defaultdict(list)
    dropped: dict[UUID, UUID] = {}
    by_rare_word: dict[str, list[int]] = defaultdict(list)
    for index in doubtful:
        prefix = _rarest(words[index], frequency)
        nearby = sorted({other for word in prefix for other in by_rare_word[word]})
        original = next(
            (other for other in nearby if similarity(words[index], words[other]) >= JACCARD_THRESHOLD), None
        )
        if original is None:
            for word in prefix:
                by_rare_word[word].append(index)
        else:
            duplicates[original].append(candidates[index])
            dropped[candidates[index].chunk_id] = candidates[original].chunk_id
    return Deduplicated(
        survivors=tuple(
            replace(candidate, duplicates=_elsewhere(candidate, duplicates[index]))
            if index in duplicates
            else candidate
            for index, candidate in enumerate(candidates)
            if candidate.chunk_id not in dropped
        ),
        dropped=dropped,
    )


def word_set(text: str) -> frozenset[str]:
    """The words of a text, case and form folded; of scripts without spaces the pairs of characters; of a text without
    any word the text itself."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return frozenset(folded.encode().translate(_ASCII_WORDS).decode().split()) or frozenset([folded.strip()])
    if not _HAS_UNSPACED.search(folded):
        return frozenset(_WORD.findall(folded)) or frozenset([folded.strip()])
    words: set[str] = set()
    for run in _RUN.findall(folded):
        if _HAS_UNSPACED.match(run) and len(run) > 1:
            words.update(first + second for first, second in pairwise(run))
        else:
            words.add(run)
    return frozenset(words)


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity, 0 to 1."""
    smaller, larger = sorted((len(one), len(other)))
    if smaller < JACCARD_THRESHOLD * larger:
        return 0.0  # not alike enough whatever they share
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def _doubtful(words: Sequence[frozenset[str]]) -> list[int]:
    """The places of those that may be like another one; the others have too many words that are in no other set."""
    once: set[str] = set()
    twice: set[str] = set()
    for one in words:
        twice |= once & one
        once |= one
    return [index for index, one in enumerate(words) if len(one - twice) < _prefix_length(one)]


def _prefix_length(words: frozenset[str]) -> int:
    """A set that is alike enough lacks fewer of the words than this."""
    return len(words) - math.ceil(JACCARD_THRESHOLD * len(words)) + 1


def _rarest(words: frozenset[str], frequency: Counter[str]) -> list[str]:
    """So many of the rarest words that a set alike enough must share one of them, less those that are in no other set;
    equally rare ones in the order of the alphabet, which is the same for every set."""
    count = _prefix_length(words)
    frequencies = list(map(frequency.__getitem__, words))
    alone = frequencies.count(1)
    if alone >= count:
        return []
    last = sorted(frequencies)[count - 1]
    rarer = [word for word, held in zip(words, frequencies, strict=True) if 1 < held < last]
    equal = sorted(word for word, held in zip(words, frequencies, strict=True) if held == last)
    return rarer + equal[: count - alone - len(rarer)]


def _elsewhere(survivor: Candidate, alike: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """One duplicate for each place, without the survivor's own."""
    places = {_place(survivor.fragment)}
    kept: list[Candidate] = []
    for candidate in alike:
        place = _place(candidate.fragment)
        if place not in places:
            places.add(place)
            kept.append(candidate)
    return tuple(kept)


def _place(fragment: Fragment) -> tuple[UUID, UUID, int, int]:
    return fragment.knowledge_base_id, fragment.document_id, fragment.span.start, fragment.span.end
