"""The one place where text is cut: windows that end where a reader would pause.

Each window ends at the strongest structural break that leaves it at least the minimum, else at a sentence, a line, a
word, a punctuation mark, and at last between two characters. Both ends of the windows strictly rise, whatever the
configuration, so the work always ends and no window lies inside another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import regex

from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import FIRST_SPACE, last_substance, next_start, skip_blank, stretches, substance_end, trim_end
from kbmesh_chunker.breaks import NO_BREAKS, Breaks
from kbmesh_chunker.measure import CharacterMeasure, Measure, TokenMeasure
from kbmesh_chunker.plain_steps import PUNCTUATION_TAIL, PlainStep, plain_steps
from kbmesh_chunker.sentences import SENTENCE_CLOSERS, Script, script_of, sentence_ends, sentence_ends_backwards

_LAST_SPACE = regex.compile(r"(?r)\s")
_LAST_MARK = regex.compile(r"(?r)(?<=[,;:|>)\]}，、；：،؛）」』】/\\=&?+\-])")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_INSIDE_WORD = regex.compile(rf"(?V1)(?<=[\w--[{_UNSPACED}]])(?=[\w--[{_UNSPACED}]])")
_LOOKAHEAD = 1_024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long chunks should be, in the unit of a measure."""

    size: int
    """A window's size at most. At least 1."""
    overlap: int
    """How much of a window's end the next one repeats at most. Less than `size`."""
    minimum: int
    """What is shorter is merged, so that a window may reach `size + minimum`. At most `size`."""


@dataclass(frozen=True, kw_only=True)
class TokenCap:
    """The most tokens that a window's text and its context may have together."""

    measure: TokenMeasure
    tokens: int


def _no_context(_position: int) -> int:
    return 0


def _no_checkpoint() -> None:
    return None


class _Window(NamedTuple):
    """What is known of a window before it is cut. All are positions."""

    start: int
    fresh: int
    """Where its new text begins: what is before repeats the last window."""
    visible: int
    """Where its new text begins to be more than white space."""
    limit: int
    """Where it should end at the latest."""
    stretch: int
    """Where it may end for the sake of a stub."""
    capped: bool
    """Whether `limit` is the token cap's rather than the size's."""


class Step(NamedTuple):
    """A window, and from where its follower is cut. All are positions."""

    start: int
    end: int
    following: int
    """Where the next window starts."""
    fresh: int
    """Where the next window's new text begins."""


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Cuts stretches of one text."""

    text: str
    limits: Limits
    measure: Measure
    breaks: Breaks = NO_BREAKS
    cap: TokenCap | None = None
    checkpoint: Callable[[], None] = _no_checkpoint
    """Called once a window; raises where the work should stop."""

    def cut(
        self, start: int, end: int, context_tokens: Callable[[int], int] = _no_context
    ) -> Iterator[tuple[int, int]]:
        """Windows (start, end) over text[start:end], which begins and ends at character boundaries.

        Every character that is not white space is in some window. `context_tokens` tells the tokens of the context
        of a window that starts at a position.
        """
        for first, last in stretches(self.text, start, end):
            last = trim_end(self.text, first, last)
            first = next_start(self.text, first, last)
            for step in self.steps(first, first, last, context_tokens):
                yield step.start, step.end

    @cached_property
    def _script(self) -> Script:
        return script_of(self.text)

    @property
    def ahead(self) -> int:
        """How many characters after the end of a window decide where it and its follower are cut."""
        limits = self.limits
        return (
            2 * self.measure.most_characters(limits.size + limits.minimum)
            + self.measure.enough_characters(limits.minimum)
            + _LOOKAHEAD
        )

    def steps(
        self,
        position: int,
        fresh: int,
        end: int,
        context_tokens: Callable[[int], int] = _no_context,
        *,
        reach: int | None = None,
    ) -> Iterator[Step]:
        """The windows from `position` to `end`, which is not white space before it, in a text without a gulf between.

        With a `reach`, of which more text follows, only those windows that no text after `reach` could change.
        """
        text, ahead = self.text, self.ahead
        if reach is None and self._is_one_window(position, end):
            self.checkpoint()
            yield Step(position, end, end, end)
            return
        plain = self._plain_step
        while position < end:
            self.checkpoint()
            if reach is not None and position + ahead > reach:
                return
            step = plain(position, fresh, end) if plain is not None else None
            if step is not None and (reach is None or step.fresh + ahead <= reach):
                yield step
                position, fresh = step.following, step.fresh
                continue
            if position == fresh and text[position].isspace():
                visible = skip_blank(text, position, end)
                if self._furthest(position, context_tokens) < graphemes.ceiling(text, visible + 1, visible):
                    # An indentation that leaves no room for a character is not kept.
                    position = fresh = visible
            window = self._window(position, fresh, end, context_tokens)
            if window.limit >= end:
                yield Step(position, end, end, end)
                return
            cut = self._choose(window)
            rest = next_start(text, cut, end)
            if reach is not None and rest + ahead > reach:
                return
            run = self._punctuation_run(rest, end, context_tokens)
            if run is not None and run <= window.limit:
                cut, rest = run, next_start(text, run, end)
                run = None
            if self._is_stub(rest, end, window):
                if rest >= end or end <= window.stretch:
                    yield Step(position, end, end, end)
                    return
                cut = self._share_out(window, cut, end)
                rest = next_start(text, cut, end)
                run = self._punctuation_run(rest, end, context_tokens)
            closing = trim_end(text, position, cut)
            following = self._overlap(window, closing, rest, context_tokens)
            if run is not None and following == rest:
                cut = self._before_a_word(window, cut, run, context_tokens)
                closing = trim_end(text, position, cut)
                rest = next_start(text, cut, end)
                following = self._with_a_letter(window, closing, rest, run, context_tokens)
            yield Step(position, closing, following, rest)
            position, fresh = following, rest

    def _is_one_window(self, position: int, end: int) -> bool:
        """Whether a window from `position` to `end` is seen to be one without a look at the text."""
        characters = self.cap is None and isinstance(self.measure, CharacterMeasure)
        return characters and position < end <= position + self.limits.size

    @cached_property
    def _plain_step(self) -> PlainStep | None:
        """A shorter way to the windows of `steps` that most texts are made of; None where there is none."""
        return plain_steps(self, Step, self._script)

    def _window(self, start: int, fresh: int, end: int, context_tokens: Callable[[int], int]) -> _Window:
        text = self.text
        limit = self.measure.furthest(start, self.limits.size)
        stretch = self.measure.furthest(start, self.limits.size + self.limits.minimum)
        capped = False
        if self.cap is not None:
            by_tokens = self.cap.measure.furthest(start, max(1, self.cap.tokens - context_tokens(start)))
            capped = by_tokens < limit
            limit, stretch = min(limit, by_tokens), min(stretch, by_tokens)
        visible = skip_blank(text, fresh, end) if text[fresh].isspace() else fresh
        if limit <= visible:
            # One character at least, or the work would never end.
            limit = graphemes.ceiling(text, visible + 1, visible)
        elif limit < end and not graphemes.is_boundary(text, limit, visible):
            whole = graphemes.floor(text, limit, visible)
            limit = whole if whole > visible else graphemes.ceiling(text, limit, visible)
        return _Window(start, fresh, visible, min(limit, end), min(stretch, end), capped)

    def _choose(self, window: _Window) -> int:
        """Where the window is cut: within its limit, or a little after it for the sake of a stub."""
        start, fresh, visible, limit, stretch, capped = window
        text, breaks = self.text, self.breaks
        lowest = self.measure.furthest(start, self.limits.minimum)
        if capped:
            lowest = min(lowest, start + (limit - start) // 3)
        if start < fresh:
            # A window must bring news: else a long overlap would give a chunk for every break in it.
            news = self.measure.furthest(fresh, max(self.limits.minimum, self.limits.overlap))
            lowest = max(lowest, min(fresh + (limit - fresh) // 2, news))
        lowest = min(max(lowest, substance_end(text, visible, limit) or visible + 1), limit)
        structural = breaks.strongest(lowest, limit)
        if structural is not None and graphemes.is_boundary(text, structural, visible):
            return structural
        if stretch > limit and breaks.any_within(visible + 1, lowest - 1):
            whole = breaks.first(limit + 1, stretch)
            if whole is not None and graphemes.is_boundary(text, whole, limit):
                return whole
        prose = self._choose_in_prose(visible, lowest, max(lowest, start + (limit - start) // 2), limit)
        return limit if prose is None else prose

    def _choose_in_prose(self, known: int, lowest: int, preferred: int, limit: int) -> int | None:
        """The best place of a text without structure within [preferred, limit], or between words from `lowest` on.

        None where a word would have to be cut.
        """
        text, sealed = self.text, self.breaks.sealed
        if self.breaks.sealing:
            seal = self.breaks.seal_start(limit)
            if lowest <= seal < limit and graphemes.is_boundary(text, seal, known):
                return seal
            if seal < lowest:
                sealed = NO_BREAKS.sealed
        for sentence in sentence_ends_backwards(text, preferred, limit, self._script):
            if not sealed(sentence) and graphemes.is_boundary(text, sentence, known):
                return sentence
        line = text.rfind("\n", preferred, limit)
        while line >= 0:
            if not sealed(line + 1):
                return line + 1
            line = text.rfind("\n", preferred, line)
        for search_from in (preferred, lowest):
            space = _LAST_SPACE.search(text, search_from, min(len(text), limit + 1))
            if space is not None:
                word = graphemes.floor(text, space.start(), known)
                if word >= lowest and not sealed(word):
                    return word
        mark = _LAST_MARK.search(text, preferred, limit)
        if mark is not None and graphemes.is_boundary(text, mark.start(), known):
            return mark.start()
        return None

    def _is_stub(self, rest: int, end: int, window: _Window) -> bool:
        """Whether what is left after a window is too little for a window of its own."""
        if rest >= end:
            return True
        if end - rest <= PUNCTUATION_TAIL and substance_end(self.text, rest, end) is None:
            return True
        if self.measure.length(rest, end) >= self.limits.minimum:
            return False
        return not window.capped or end - rest < (window.limit - window.start) // 3

    def _punctuation_run(self, rest: int, end: int, context_tokens: Callable[[int], int]) -> int | None:
        """Where the punctuation ends of which a window from `rest` on would consist.

        None where that window has more than punctuation, or where it cannot hold all of it: then nothing helps.
        """
        limit = graphemes.floor(self.text, min(end, self._furthest(rest, context_tokens)), rest)
        if limit <= rest or substance_end(self.text, rest, limit) is not None:
            return None
        after = skip_blank(self.text, limit, end)
        if after < end and substance_end(self.text, after, after + 1) is None:
            return None
        return trim_end(self.text, rest, after)

    def _before_a_word(self, window: _Window, cut: int, run: int, context_tokens: Callable[[int], int]) -> int:
        """Another place for a cut, so that the punctuation after it, up to `run`, has a word before it."""
        text = self.text
        last = last_substance(text, window.visible, cut)
        first = substance_end(text, window.visible, cut)
        if last is None or first is None or first > last or self._furthest(last, context_tokens) < run:
            return cut
        lowest = graphemes.ceiling(text, first, window.visible)
        place = self.breaks.strongest(lowest, last)
        if place is None or not graphemes.is_boundary(text, place, window.visible):
            place = self._choose_in_prose(window.visible, lowest, lowest, last)
        return last if place is None or self._furthest(place, context_tokens) < run else place

    def _with_a_letter(
        self, window: _Window, closing: int, rest: int, run: int, context_tokens: Callable[[int], int]
    ) -> int:
        """Where the next window starts so that the punctuation up to `run` has a letter before it, by the overlap."""
        last = last_substance(self.text, window.start, closing) if self.limits.overlap else None
        if last is None or last == window.start or last >= rest or self.breaks.parts(rest):
            return rest
        repeats = self.measure.length(last, closing) <= self.limits.overlap
        return last if repeats and self._furthest(last, context_tokens) >= run else rest

    def _furthest(self, start: int, context_tokens: Callable[[int], int]) -> int:
        """Where a window that starts at `start` ends at the latest."""
        limit = self.measure.furthest(start, self.limits.size)
        if self.cap is not None:
            limit = min(limit, self.cap.measure.furthest(start, max(1, self.cap.tokens - context_tokens(start))))
        return limit

    def _share_out(self, window: _Window, cut: int, end: int) -> int:
        """Another place for the last cut, so that neither side is a stub."""
        width = end - window.start
        ranges = [(window.start + width * 3 // 8, window.start + width * 5 // 8), (window.start + width // 4, cut)]
        if not window.capped:
            least = self.measure.furthest(window.start, self.limits.minimum)
            ranges.insert(0, (least, self.measure.earliest(end, self.limits.minimum)))
        # What is left on this side is no punctuation alone.
        spoken = substance_end(self.text, window.visible, cut) or window.visible + 1
        for first, last in ranges:
            lowest = max(first, spoken)
            highest = graphemes.floor(self.text, min(cut, last), window.visible)
            if lowest >= highest:
                continue
            structural = self.breaks.strongest(lowest, highest)
            if structural is not None and graphemes.is_boundary(self.text, structural, window.visible):
                return structural
            prose = self._choose_in_prose(window.visible, lowest, lowest, highest)
            if prose is not None:
                return prose
        return cut

    def _overlap(self, window: _Window, closing: int, rest: int, context_tokens: Callable[[int], int]) -> int:
        """Where the next window starts: at a sentence, else a word, within the overlap before `closing`."""
        if self.limits.overlap == 0 or self.breaks.parts(rest):
            return rest
        text = self.text
        earliest = max(window.start + 1, self.measure.earliest(closing, self.limits.overlap))
        if window.capped:
            # The window is smaller than was asked for; so is its overlap.
            share = (closing - window.start) * self.limits.overlap // self.limits.size
            earliest = max(earliest, closing - share)
        earliest = graphemes.ceiling(text, earliest, window.start)
        if earliest >= closing:
            return rest
        whole = text[closing - 1] in SENTENCE_CLOSERS or self.breaks.at(rest)
        start = self._overlap_start(window.start, earliest, closing, whole=whole)
        if not window.start < start < closing or substance_end(text, start, closing) is None:
            return rest
        # An overlap that leaves no room for a new character is no overlap.
        visible = skip_blank(text, rest, len(text))
        limit = self._furthest(start, context_tokens)
        return start if limit > visible and limit >= graphemes.ceiling(text, visible + 1, visible) else rest

    def _overlap_start(self, known: int, earliest: int, closing: int, *, whole: bool) -> int:
        """At a sentence or line; after a window that ends in the middle of something (not `whole`) also at a word."""
        text = self.text
        line = self.breaks.first(earliest, closing - 1)
        if line is not None and not graphemes.is_boundary(text, line, known):
            line = None
        for sentence in sentence_ends(text, max(known, earliest - 4), closing, self._script):
            if sentence >= closing:
                break
            start = skip_blank(text, sentence, closing) if graphemes.is_boundary(text, sentence, known) else known
            if earliest <= start < closing:
                return start if line is None or start <= line else skip_blank(text, line, closing)
        if line is not None:
            return skip_blank(text, line, closing)
        if whole:
            return closing
        space = FIRST_SPACE.search(text, earliest, closing)
        if space is not None and graphemes.is_boundary(text, space.start(), earliest):
            return skip_blank(text, space.start(), closing)
        if _INSIDE_WORD.match(text, earliest) and not _INSIDE_WORD.match(text, closing):
            # Half a word says nothing, unless the window ends in the middle of that word.
            return closing
        return earliest
