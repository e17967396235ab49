"""What a reader takes for one character, and must not be cut: extended grapheme clusters (Unicode UAX 29).

To these a mark that UAX 29 sets apart, as the Burmese vowel U+102C, is added: no reader begins with one.

Positions are code points. Only the neighbourhood of a position is looked at, so that asking costs the same in a short
text and in a long one.
"""

import regex

MAX_CLUSTER = 128
"""A cluster longer than this is no character of any script (UAX 15 allows 30 marks in a row) and may be cut."""

_WINDOW = 64
_CLUSTER = regex.compile(r"\X(?:(?<![\p{GCB=Control}\p{GCB=CR}\p{GCB=LF}])(?=\p{M})\X)*")
# A position where a cluster ends without doubt, whatever stands before and after the two characters beside it. Lower
# than U+0300 there is nothing that joins; syllables and leading jamo join only to a leading jamo before them.
_CERTAIN = (
    r"(?:"
    r"(?<=[^\p{GCB=Prepend}\p{GCB=Extend}\p{GCB=ZWJ}\r])(?!\p{M})"
    r"(?=[\p{GCB=Other}\p{GCB=LF}\p{GCB=Control}\p{GCB=CR}])"
    r"|(?<=[^\p{GCB=Prepend}\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=L}])(?=[\p{GCB=L}\p{GCB=LV}\p{GCB=LVT}])"
    r"|(?<=[\p{GCB=Control}\p{GCB=LF}])"
    r"|(?<=[^\r])(?=[\p{GCB=LF}\p{GCB=Control}\p{GCB=CR}])"
    r")"
)
_CERTAIN_HERE = regex.compile(_CERTAIN)
_FLAG_LETTER = regex.compile(r"\p{GCB=Regional_Indicator}")
_LAST_OTHER = regex.compile(r"(?r)\P{GCB=Regional_Indicator}")
_LAST_CERTAIN = regex.compile("(?r)" + _CERTAIN)


def is_boundary(text: str, position: int, known: int = 0) -> bool:
    """Whether a cluster ends at `position`. `known` is a boundary at or before it; the nearer, the cheaper."""
    if position <= known or position >= len(text):
        return True
    before, after = text[position - 1], text[position]
    if before < "\u0300" and after < "\u0300":
        return not (before == "\r" and after == "\n")
    if _CERTAIN_HERE.match(text, position):
        return True
    return _around(text, position, known)[0] == position


def floor(text: str, position: int, known: int = 0) -> int:
    """The last boundary at or before `position`, and at least `known`."""
    if is_boundary(text, position, known):
        return max(known, position)
    return _around(text, position, known)[0]


def ceiling(text: str, position: int, known: int = 0) -> int:
    """The first boundary at or after `position`."""
    if is_boundary(text, position, known):
        return max(known, position)
    return _around(text, position, known)[1]


def _around(text: str, position: int, known: int) -> tuple[int, int]:
    """The cluster that holds `position`: its start, equal to `position` where one starts there, and its end."""
    origin = _origin(text, position, known)
    if origin == position:
        return position, position
    # Only a slice is searched: its end keeps a run of a million marks from being measured each time, and its start
    # keeps the engine from looking behind `origin`.
    start = origin
    for cluster in _CLUSTER.finditer(text[origin : position + MAX_CLUSTER]):
        start, end = origin + cluster.start(), origin + cluster.end()
        if end - start > MAX_CLUSTER:
            start += (position - start) // MAX_CLUSTER * MAX_CLUSTER
            end = min(end, start + MAX_CLUSTER)
        if start <= position < end:
            return start, end
    return start, len(text)


def _origin(text: str, position: int, known: int) -> int:
    """A boundary from which to count clusters up to `position`, near it where there is one near."""
    if _FLAG_LETTER.match(text, position) and _FLAG_LETTER.match(text, position - 1):
        # Flags are pairs of letters: which ones belong together shows only from the start of their run.
        other = _LAST_OTHER.search(text, known, position)
        run = max(known, other.end()) if other else known
        if (position - run) % 2 == 0:
            return position
        if position - 1 > run:
            return position - 1
        position = run
        if position == known:
            return known
    certain = _LAST_CERTAIN.search(text, max(known, position - _WINDOW), position)
    return max(known, certain.start()) if certain else known
