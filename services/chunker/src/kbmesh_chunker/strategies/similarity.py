"""SIMILARITY: cuts where neighbouring sentences drift apart.

Each sentence is embedded once. At each place between two sentences the sentence before it, averaged with `buffer` more
before that, is compared by cosine with the one after it, averaged with `buffer` more behind that. The two sides share
no sentence: where they overlap, as in Kamradt's "5 Levels of Text Splitting" (2023), a change of subject hardly shows.
Comparing blocks on the two sides of a gap is Hearst's TextTiling (Computational Linguistics 23(1), 1997).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import add

from kbmesh_rpc.errors import InvalidField

from kbmesh_chunker.blank import trim_end
from kbmesh_chunker.config import Options, Sizes, Strategy
from kbmesh_chunker.documents.source import Grammar
from kbmesh_chunker.piece import Piece
from kbmesh_chunker.sentence_embedder import SentenceVectors, Vector, cosine, direction, embed_each
from kbmesh_chunker.sentences import sentence_ends
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.sentence_units import Structure, Unit, fits, read_structure, sentence_units

THRESHOLD = 0.5
MAX_BUFFER = 5
_TELLING = 40
_SHARE_OF_SIZE = 4
"""A run that has this part of the size may stand alone, however few its sentences."""
_DIGITS = 6
"""Similarities are rounded: the last bits of a vector depend on what it was computed beside."""


class Similarity:
    """Runs of sentences that are alike."""

    strategy = Strategy.SIMILARITY
    description = "Runs of sentences, cut where neighbouring ones drift apart by their embeddings."
    sizes = Sizes(size=1500, overlap=0, minimum=0)
    needs_embedder = True
    grammars = frozenset(Grammar) - {Grammar.CODE}

    def options(self, given: Options, path: str) -> Options:
        buffer = given.get("buffer", 1)
        if not isinstance(buffer, int) or not 0 <= buffer <= MAX_BUFFER:
            raise InvalidField(f"{path}.buffer", f"must be 0 to {MAX_BUFFER}, is {buffer}")
        percentile = given.get("percentile")
        if percentile is not None:
            percentile = float(percentile)
            if 0 < percentile < 1:
                raise InvalidField(
                    f"{path}.percentile", f"must be in percent, 0 to 100; {percentile:g} looks like a fraction"
                )
            if not 0 <= percentile <= 100:
                raise InvalidField(f"{path}.percentile", f"must be 0 to 100, is {percentile:g}")
            return {"percentile": percentile, "buffer": buffer}
        threshold = float(given.get("threshold", THRESHOLD))
        if not -1 <= threshold <= 1:
            raise InvalidField(f"{path}.threshold", f"must be -1 to 1, is {threshold:g}")
        return {"threshold": threshold, "buffer": buffer}

    async def cut(self, work: Work) -> Sequence[Piece]:
        structure = await work.aside(read_structure, work)
        units = await work.aside(sentence_units, work, structure)
        similarities = await _similarities(work, units)
        return await work.aside(_pieces, work, structure, units, similarities)


async def _similarities(work: Work, units: Sequence[Unit]) -> list[float]:
    """How alike the two sides of each place between two units are."""
    embedder = work.models.embedder
    if embedder is None or len(units) < 2:
        return []
    text = work.document.text
    sides = _Sides(buffer=int(work.options["buffer"]))

    def take(answer: SentenceVectors) -> None:
        work.made_with("similarity_model", answer.model_fingerprint)
        sides.extend(answer.vectors)

    async def take_aside(answer: SentenceVectors) -> None:
        await work.aside(take, answer)

    texts = [text[unit.start : unit.end].strip() for unit in units]
    await embed_each(embedder, texts, model=work.embedding_model, checkpoint=work.checkpoint, take=take_aside)
    return sides.close()


class _Sides:
    """The similarity of each place, from vectors that come one after the other. Keeps no more of them than it needs."""

    def __init__(self, *, buffer: int) -> None:
        self._width = buffer + 1
        self._near: list[Vector] = []
        self._dropped = 0
        self._found: list[float] = []

    def extend(self, vectors: Sequence[Vector]) -> None:
        """Takes the next vectors."""
        self._near.extend(map(direction, vectors))
        self._compare(self._dropped + len(self._near) - self._width)

    def close(self) -> list[float]:
        """The similarities, one fewer than vectors."""
        self._compare(self._dropped + len(self._near) - 1)
        return self._found

    def _compare(self, end: int) -> None:
        """Finds the similarities of the places up to `end`; place 0 is behind vector 0."""
        for place in range(len(self._found), end):
            middle = place + 1 - self._dropped
            before = self._near[max(0, middle - self._width) : middle]
            after = self._near[middle : middle + self._width]
            self._found.append(round(cosine(_sum(before), _sum(after)), _DIGITS))
        unneeded = len(self._found) + 1 - self._width - self._dropped
        if unneeded > 0:
            del self._near[:unneeded]
            self._dropped += unneeded


def _sum(vectors: Sequence[Vector]) -> Vector:
    """A vector in the direction of the vectors' mean."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = list(map(add, total, vector))
    return total


def _pieces(work: Work, structure: Structure, units: Sequence[Unit], similarities: Sequence[float]) -> list[Piece]:
    """Runs of units. Which runs are too short and where a run that is too long is cut does not depend on `threshold`
    or `percentile`: a higher one only adds to the cuts."""
    if not units:
        return []
    runs = _Runs(work, structure, units, similarities)
    runs.gather()
    below = _below(work.options, similarities)
    forced = runs.too_long()
    firsts = [0, *(place + 1 for place in runs.places() if place in forced or below(similarities[place]))]
    pieces: list[Piece] = []
    for first, after in zip(firsts, [*firsts[1:], len(units)], strict=True):
        end = trim_end(work.document.text, units[first].start, units[after - 1].end)
        start = _with_overlap(work, structure, units, first, end, pieces[-1]) if pieces else units[0].start
        pieces.append(
            Piece(
                start=start,
                end=end,
                type="similarity",
                context=structure.context(start).text,
                heading_path=structure.path(start),
            )
        )
    return pieces


def _below(options: Options, similarities: Sequence[float]) -> Callable[[float], bool]:
    """Whether a similarity is so low that a cut is asked for."""
    if "threshold" in options:
        threshold = float(options["threshold"])
        return lambda similarity: similarity < threshold
    ordered = sorted(similarities)
    most = len(ordered) * float(options["percentile"]) / 100
    # Places that are alike are cut all or none.
    return lambda similarity: bisect_right(ordered, similarity) <= most


class _Runs:
    """Runs of units, which are joined until none is too short."""

    def __init__(self, work: Work, structure: Structure, units: Sequence[Unit], similarities: Sequence[float]) -> None:
        self._work = work
        self._structure = structure
        self._units = units
        self._similarities = similarities
        # A side of a place is so many sentences: of fewer, no subject can be told.
        self._sentences = int(work.options["buffer"]) + 1
        self._enough = max(work.limits.minimum, work.limits.size // _SHARE_OF_SIZE)
        self._counted = [0, *accumulate(map(self._is_sentence, units))]
        # By its first unit, the last of a run; and by its last unit, the first.
        self._last = list(range(len(units)))
        self._first = list(range(len(units)))
        self._joined = bytearray(len(similarities))

    def gather(self) -> None:
        """Joins each run that is too short with the neighbour that it is more like."""
        order = sorted(range(len(self._similarities)), key=lambda place: (-self._similarities[place], _ruler(place)))
        for stretch in (0, self._work.limits.minimum):
            for place in order:
                first, last = self._first[place], self._last[place + 1]
                if self._joined[place] or not (self._short(first, place) or self._short(place + 1, last)):
                    continue
                if self._fits(first, last, stretch):
                    self._joined[place] = 1
                    self._last[first], self._first[last] = last, first

    def places(self) -> Iterator[int]:
        """The places between the runs, ascending; a place is named by the unit before it."""
        return (place for place, joined in enumerate(self._joined) if not joined)

    def too_long(self) -> set[int]:
        """The places at which runs have to be cut for the size: the least similar within each stretch that is over it,
        again and again."""
        places = list(self.places())
        keys = [(self._similarities[place], -_ruler(index), index) for index, place in enumerate(places)]
        before, after = _nearest_lower(keys)
        found = set()
        for index, place in enumerate(places):
            # Within these bounds there is no place that would be cut earlier.
            first = places[before[index]] + 1 if before[index] >= 0 else 0
            last = places[after[index]] if after[index] < len(places) else len(self._units) - 1
            if not self._fits(first, last, 0):
                found.add(place)
        return found

    def _fits(self, first: int, last: int, stretch: int) -> bool:
        return fits(self._work, self._structure, self._units[first].start, self._units[last].end, stretch=stretch)

    def _short(self, first: int, last: int) -> bool:
        start, end = self._units[first].start, self._units[last].end
        length = self._work.measure.length(start, trim_end(self._work.document.text, start, end))
        if length < self._work.limits.minimum:
            return True
        return length < self._enough and self._counted[last + 1] - self._counted[first] < self._sentences

    def _is_sentence(self, unit: Unit) -> bool:
        """Whether a unit says something: an item of a word or two does not."""
        text = self._work.document.text[unit.start : unit.end].strip()
        return len(text) >= _TELLING or len(text) in sentence_ends(text, max(0, len(text) - 8), len(text))


def _ruler(index: int) -> int:
    """How often two divides a place's number: of places that are alike, those with more are cut earlier and joined
    later, which leaves runs of about the same length."""
    return ((index + 1) & -(index + 1)).bit_length()


def _nearest_lower(keys: Sequence[tuple[float, int, int]]) -> tuple[list[int], list[int]]:
    """For each key the index of the nearest lower one before it, else -1, and after it, else their number."""
    before, after = [-1] * len(keys), [len(keys)] * len(keys)
    open_: list[int] = []
    for index, key in enumerate(keys):
        while open_ and keys[open_[-1]] > key:
            after[open_.pop()] = index
        if open_:
            before[index] = open_[-1]
        open_.append(index)
    return before, after


def _with_overlap(
    work: Work, structure: Structure, units: Sequence[Unit], first: int, end: int, previous: Piece
) -> int:
    """Where a piece starts that repeats whole units of the one before it, as far as they fit."""
    start = units[first].start
    if not work.limits.overlap or structure.breaks.parts(start):
        return start
    for unit in (units[place] for place in range(first - 1, -1, -1)):
        over = work.measure.length(unit.start, previous.end) > work.limits.overlap
        if over or unit.start <= previous.start or not fits(work, structure, unit.start, end):
            break
        start = unit.start
    return start
