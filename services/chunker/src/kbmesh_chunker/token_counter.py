"""Counting the tokens of an embedding model, wherever that model is."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kbmesh_chunker import graphemes
from kbmesh_chunker.measure import TokenMeasure

MAX_TEXTS = 256
"""Texts a call at most."""
MAX_CHARACTERS = 262_144
"""Characters a call at most."""
_SEGMENT = 16_384


@dataclass(frozen=True, kw_only=True)
class TokenCount:
    """The tokens of one text."""

    tokens: int
    """As the model reads them: special tokens and prefix included, nothing cut off."""
    starts: Sequence[int] = ()
    """First code point of each token of the text itself; empty where places were not asked for."""
    ends: Sequence[int] = ()
    """One past the last code point of each."""


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """The tokens of several texts, in their order."""

    counts: Sequence[TokenCount]
    max_tokens: int
    """Tokens the model reads at most, special tokens included."""
    model_fingerprint: str


class TokenCounter(Protocol):
    """Counts as a model does."""

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        """Counts texts as documents. `offsets` asks for the place of each token.

        At most MAX_TEXTS. Raises ModelNotFound, ModelNotReady, DependencyUnavailable, DependencyInvalidResponse or
        DeadlineExceeded.
        """


@dataclass(frozen=True, kw_only=True)
class ModelTokens:
    """A text as a model's tokenizer sees it."""

    measure: TokenMeasure
    special_tokens: int
    """Tokens that the model puts around every text: special ones and prefix."""
    max_tokens: int
    model_fingerprint: str


async def measure_tokens(counter: TokenCounter, text: str, *, model: str) -> ModelTokens:
    """Finds the place of every token of a text. `text` is not blank."""
    tokens = ModelTokens(measure=TokenMeasure(len(text)), special_tokens=0, max_tokens=0, model_fingerprint="")
    found, _ = segments(text, 0, final=True)
    return await measure_segments(counter, found, tokens, model=model)


async def measure_segments(
    counter: TokenCounter, found: Iterable[tuple[int, str]], tokens: ModelTokens, *, model: str
) -> ModelTokens:
    """Adds the tokens of segments, which follow those that `tokens` knows, to its measure."""
    special_tokens, max_tokens, fingerprint = tokens.special_tokens, tokens.max_tokens, tokens.model_fingerprint
    for batch in _batches(found):
        counted = await counter.count([segment for _, segment in batch], model=model, offsets=True)
        for (offset, _), count in zip(batch, counted.counts, strict=True):
            tokens.measure.extend(offset, count.starts, count.ends)
            special_tokens = max(special_tokens, count.tokens - len(count.starts))
        max_tokens, fingerprint = counted.max_tokens, counted.model_fingerprint
    return replace(tokens, special_tokens=special_tokens, max_tokens=max_tokens, model_fingerprint=fingerprint)


async def count_tokens(counter: TokenCounter, texts: Sequence[str], *, model: str) -> list[int]:
    """The tokens of each text. A text that is longer than a call's is counted in parts."""
    tokens = [0] * len(texts)
    for batch in _batches((place, text) for place, text in enumerate(texts) if len(text) <= MAX_CHARACTERS):
        counted = await counter.count([text for _, text in batch], model=model, offsets=False)
        for (place, _), count in zip(batch, counted.counts, strict=True):
            tokens[place] = count.tokens
    for place, text in enumerate(texts):
        if len(text) > MAX_CHARACTERS:
            parts = await measure_tokens(counter, text, model=model)
            tokens[place] = parts.measure.total + parts.special_tokens
    return tokens


def segments(text: str, start: int, *, final: bool) -> tuple[list[tuple[int, str]], int]:
    """Parts of text[start:] with their offsets, cut where tokenizers start a new token anyway: at white space.

    Also where the next one starts. A text that goes on, as `final` denies, has only those that are complete.
    """
    found = []
    while start < len(text):
        end = start + _SEGMENT
        if not final and end + graphemes.MAX_CLUSTER * 2 > len(text):
            break
        if end < len(text):
            space = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
            end = space if space > start else graphemes.floor(text, end, start)
        segment = text[start:end]
        if not segment.isspace():
            found.append((start, segment))
        start = end
    return found, min(start, len(text))


def _batches(texts: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    characters = 0
    for numbered in texts:
        if batch and (len(batch) == MAX_TEXTS or characters + len(numbered[1]) > MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(numbered)
        characters += len(numbered[1])
    if batch:
        yield batch
