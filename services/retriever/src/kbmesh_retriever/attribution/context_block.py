"""Numbered fragments within a token budget, ready to paste into a prompt."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import regex
from kbmesh_rpc.errors import DependencyInvalidResponse, KbmeshError

from kbmesh_retriever.attribution.sentences import sentence_ends

CHARACTERS_PER_TOKEN = 4
"""Of an estimate, for scripts with spaces; others count a token a character."""

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_GAP = "\n\n"
_SHRINK = 0.8
_PROBES = 8
"""Cuts that are counted in one call: a few calls find the last sentence that fits in any text."""

CountTokens = Callable[[Sequence[str]], Awaitable[Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A fragment that may go into the block."""

    chunk_id: UUID
    label: str
    context: str = field(repr=False)
    text: str = field(repr=False)
    by_lines: bool = False
    """Whether it is cut between lines: code, tables, logs."""
    shorter: "Source | None" = field(repr=False, default=None)
    """What goes in where this is too long: the fragment without its neighbours."""


@dataclass(frozen=True, kw_only=True)
class Citation:
    """One numbered source."""

    number: int
    chunk_id: UUID
    label: str
    cut: bool
    """Whether its text was cut to fit."""


@dataclass(frozen=True, kw_only=True)
class ContextBlock:
    """The block."""

    text: str = field(repr=False)
    tokens: int
    uncounted: KbmeshError | None = None
    """Why the tokens were estimated. None where they were counted."""
    citations: tuple[Citation, ...]

    @property
    def estimated(self) -> bool:
        """Whether the tokens were estimated because no tokenizer could be reached."""
        return self.uncounted is not None

    def number_of(self, chunk_id: UUID) -> int:
        """The citation of a chunk, from 1; 0 where it is not in the block."""
        return next((one.number for one in self.citations if one.chunk_id == chunk_id), 0)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, without a tokenizer."""
    unspaced = len(_UNSPACED.findall(text))
    return unspaced + -(-(len(text) - unspaced) // CHARACTERS_PER_TOKEN)


async def build_context_block(sources: Sequence[Source], budget_tokens: int, count: CountTokens) -> ContextBlock:
    """The fragments, best first, that fit. The first that does not fit goes in without its neighbours; where that is
    too long as well it is cut after the last whole sentence that fits, or left out where none does. Smaller ones after
    it may still come in whole.

    All fragments are counted in one call and the finished block, with its numbers and headers, in another, so that its
    number of tokens is exact; a count that fails is replaced by an estimate. It is never over the budget.
    """
    counter = _Counter(count)
    sizes = await counter.count([_render(number, source) for number, source in enumerate(sources, start=1)])
    taken: list[_Taken] = []
    left, is_cut = budget_tokens, False
    for source, size in zip(sources, sizes, strict=True):
        one: _Taken | None = None
        if size <= left:
            one = _Taken(source=source, size=size)
        elif not is_cut:
            one = await _fitting(source, len(taken) + 1, left, counter)
            is_cut = one is not None
        if one is not None:
            taken.append(one)
            left -= one.size
    while taken:
        block = _GAP.join(_render(number, one.source) for number, one in enumerate(taken, start=1))
        (tokens,) = await counter.count([block])
        if tokens <= budget_tokens:
            return _block(block, tokens, counter.uncounted, taken)
        # Joined text can count more than its parts: the end goes.
        last = taken.pop().source
        if last.shorter is not None:
            taken.append(_Taken(source=last.shorter, size=0))
        elif (shorter := _shortened(last)) is not None:
            taken.append(_Taken(source=shorter, size=0, cut=True))
    return _block("", 0, counter.uncounted, [])


@dataclass(frozen=True, kw_only=True)
class _Taken:
    source: Source
    """As it goes in."""
    size: int
    cut: bool = False


class _Counter:
    """Counts by the tokenizer until it fails once, and by estimate from then on."""

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self.uncounted: KbmeshError | None = None

    async def count(self, texts: Sequence[str]) -> Sequence[int]:
        if not texts:
            return []
        if self.uncounted is None:
            try:
                counts = await self._count(texts)
                if len(counts) == len(texts):
                    return counts
                message = f"{len(counts)} counts came for {len(texts)} texts"
                self.uncounted = DependencyInvalidResponse("tokenizer", message)
            except KbmeshError as error:
                self.uncounted = error
        return [estimate_tokens(text) for text in texts]


async def _fitting(source: Source, number: int, tokens: int, counter: _Counter) -> _Taken | None:
    """What of a fragment fits into so many tokens, itself being too long."""
    if source.shorter is not None:
        (size,) = await counter.count([_render(number, source.shorter)])
        if size <= tokens:
            return _Taken(source=source.shorter, size=size)
        source = source.shorter
    ends = list(sentence_ends(source.text, by_lines=source.by_lines))
    fitting: _Taken | None = None
    low, high = 0, len(ends)
    while low < high:
        probes = sorted({low + (high - 1 - low) * step // _PROBES for step in range(_PROBES + 1)})
        cuts = [replace(source, text=source.text[: ends[probe]]) for probe in probes]
        sizes = await counter.count([_render(number, cut) for cut in cuts])
        for probe, cut, size in zip(probes, cuts, sizes, strict=True):
            if size > tokens:
                high = probe
                break
            low, fitting = probe + 1, _Taken(source=cut, size=size, cut=True)
    return fitting


def _shortened(source: Source) -> Source | None:
    """The sentences among the first four fifths; None where the first is longer."""
    most = int(len(source.text) * _SHRINK)
    ends = [end for end in sentence_ends(source.text, by_lines=source.by_lines) if end <= most]
    return replace(source, text=source.text[: ends[-1]]) if ends else None


def _block(text: str, tokens: int, uncounted: KbmeshError | None, taken: Sequence[_Taken]) -> ContextBlock:
    citations = [
        Citation(number=number, chunk_id=one.source.chunk_id, label=one.source.label, cut=one.cut)
        for number, one in enumerate(taken, start=1)
    ]
    return ContextBlock(text=text, tokens=tokens, uncounted=uncounted, citations=tuple(citations))


def _render(number: int, source: Source) -> str:
    return "\n".join(part for part in (f"[{number}] {source.label}", source.context, source.text) if part)
