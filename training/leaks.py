"""What training has seen must not be what is tested: texts that are the same but for a few words.

Two texts are near when they share half of the shingles (runs of five words, in small letters) of the shorter one; of
fewer than five words, when they have the same words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

_WORD = re.compile(r"\w+")

SHINGLE_WORDS = 5
NEAR = 0.5
"""Share of the shorter text's shingles."""


def shingles(text: str) -> frozenset[int]:
    """Of a text; of one with fewer than SHINGLE_WORDS words, one shingle of all."""
    words = [word.lower() for word in _WORD.findall(text)]
    runs = range(max(1, len(words) - SHINGLE_WORDS + 1))
    return frozenset(hash(tuple(words[start : start + SHINGLE_WORDS])) for start in runs) if words else frozenset()


class SeenTexts:
    """Texts that nothing may be near to. Memory is a few bytes for each of their words."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sizes: list[int] = []
        self._holding: dict[int, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            of_text = shingles(text)
            self._sizes.append(len(of_text))
            for shingle in of_text:
                self._holding[shingle].append(place)

    def near(self, text: str) -> int | None:
        """The place of a text that this one is near to, the nearest; None where there is none."""
        asked = shingles(text)
        shared = Counter(place for shingle in asked for place in self._holding.get(shingle, ()))
        if not shared:
            return None
        share, place = max((count / min(len(asked), self._sizes[place]), -place) for place, count in shared.items())
        return -place if share >= NEAR else None


def without_leaks(texts: Sequence[str], seen: SeenTexts) -> list[int]:
    """Places of the texts that are near to none."""
    return [place for place, text in enumerate(texts) if seen.near(text) is None]
