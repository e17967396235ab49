"""Numbered fragments within a token budget, ready to paste into a prompt."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import regex
from kbmesh_rpc.errors import KbmeshError

CHARACTERS_PER_TOKEN = 4
"""Of an estimate, for scripts with spaces; others count a token a character."""

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_SENTENCE_END = regex.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』）]*|\n(?=\s*\S))")
_GAP = "\n\n"
_SHRINK = 0.8

CountTokens = Callable[[Sequence[str]], Awaitable[Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A fragment that may go into the block."""

    chunk_id: UUID
    label: str
    context: str = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Citation:
    """One numbered source."""

    number: int
    chunk_id: UUID
    label: str


@dataclass(frozen=True, kw_only=True)
class ContextBlock:
    """The block."""

    text: str = field(repr=False)
    tokens: int
    estimated: bool
    """Whether the tokens were estimated because no tokenizer could be reached."""
    citations: tuple[Citation, ...]

    def number_of(self, chunk_id: UUID) -> int:
        """The citation of a chunk, from 1; 0 where it is not in the block."""
        return next((one.number for one in self.citations if one.chunk_id == chunk_id), 0)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, without a tokenizer."""
    unspaced = len(_UNSPACED.findall(text))
    return unspaced + -(-(len(text) - unspaced) // CHARACTERS_PER_TOKEN)


async def build_context_block(sources: Sequence[Source], budget_tokens: int, count: CountTokens) -> ContextBlock:
    """The fragments, best first, that fit. The first that does not fit is cut at the end of a sentence, or left out
    where its first sentence does not fit either; smaller ones after it may still come in whole.

    All fragments are counted in one call and the finished block in a second, so that its number of tokens is exact; a
    count that fails is replaced by an estimate.
    """
    counter = _Counter(count)
    whole = [_render(number, source, source.text) for number, source in enumerate(sources, start=1)]
    sizes = await counter.count(whole) if whole else []
    taken: list[tuple[Source, str]] = []
    left = budget_tokens
    is_cut = False
    for source, size in zip(sources, sizes, strict=True):
        if size <= left:
            taken.append((source, source.text))
            left -= size
        elif not is_cut and (text := _cut(source, size, left)):
            taken.append((source, text))
            left, is_cut = 0, True
    while taken:
        block = _GAP.join(_render(number, source, text) for number, (source, text) in enumerate(taken, start=1))
        (tokens,) = await counter.count([block])
        if tokens <= budget_tokens:
            return _block(block, tokens, counter.estimated, [source for source, _ in taken])
        # A cut is made by an estimate, and joined text can count more than its parts: the end goes.
        source, text = taken.pop()
        if shorter := _first_sentences(text, int(len(text) * _SHRINK)):
            taken.append((source, shorter))
    return _block("", 0, counter.estimated, [])


class _Counter:
    """Counts by the tokenizer until it fails once, and by estimate from then on."""

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self.estimated = False

    async def count(self, texts: Sequence[str]) -> Sequence[int]:
        counts = [] if self.estimated else await self._exact(texts)
        if len(counts) == len(texts):
            return counts
        self.estimated = True
        return [estimate_tokens(text) for text in texts]

    async def _exact(self, texts: Sequence[str]) -> Sequence[int]:
        try:
            return await self._count(texts)
        except KbmeshError:
            return []


def _block(text: str, tokens: int, estimated: bool, taken: Sequence[Source]) -> ContextBlock:
    citations = [
        Citation(number=number, chunk_id=source.chunk_id, label=source.label)
        for number, source in enumerate(taken, start=1)
    ]
    return ContextBlock(text=text, tokens=tokens, estimated=estimated, citations=tuple(citations))


def _render(number: int, source: Source, text: str) -> str:
    return "\n".join(part for part in (f"[{number}] {source.label}", source.context, text) if part)


def _cut(source: Source, size: int, tokens: int) -> str:
    """The sentences of a fragment that fit into so many tokens, judged by characters with a tenth to spare."""
    rendered = len(_render(1, source, source.text))
    overhead = rendered - len(source.text)
    room = int(rendered * 0.9 * tokens / size) - overhead
    return _first_sentences(source.text, room)


def _first_sentences(text: str, most_characters: int) -> str:
    """The whole sentences among the first characters; empty where the first is longer."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() <= most_characters]
    return text[: ends[-1]].rstrip() if ends else ""
