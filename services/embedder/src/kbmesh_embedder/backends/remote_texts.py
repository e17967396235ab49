"""Making texts ready for a model that runs elsewhere: prefix, tokens, cutting, and which go into one call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kbmesh_onnx.token_counter import TokenCounter, cut_text
from kbmesh_rpc.errors import EmptyText, KbmeshError, TextTooLong

from kbmesh_embedder.backends.port import Truncation
from kbmesh_embedder.backends.provider_port import ProviderTraits

CHARACTERS_PER_TOKEN = 16
"""Beyond so many a text is certainly too long, and is not sent whole to be refused. Prose in English has four to
five."""


@dataclass(frozen=True, kw_only=True)
class RemoteText:
    """One text, as it is sent."""

    index: int
    """Its place in the call."""
    text: str
    """With its prefix."""
    tokens: int
    """What it has, or what we think it has."""
    tokens_cut: int = 0
    estimated: bool
    """Whether `tokens` and `tokens_cut` are estimates."""
    may_be_cut: bool
    """Whether it may be made shorter here, should it turn out too long."""
    told_tokens: int | None = None
    """What the whole text has, as the vendor told when it was refused as too long."""
    alone: bool = False
    """Whether it may be too long, and is sent by itself so that it costs nobody else a call."""


@dataclass(frozen=True, kw_only=True)
class TextPreparer:
    """Prepares the texts of one model; blocks."""

    counter: TokenCounter
    traits: ProviderTraits
    max_tokens: int

    def prepare(self, texts: Sequence[str], *, prefix: str, truncation: Truncation) -> list[RemoteText | KbmeshError]:
        """The texts as they are sent, or why one is not.

        With a tokenizer a text is cut here, exactly. Without one it is sent whole where the vendor cuts as it is told,
        or refuses what is too long; a vendor who cuts in silence is not sent what may be too long where nothing may be
        cut, or where it is the start that goes.
        """
        sent = [prefix + text for text in texts]
        counts = self.counter.count(sent)
        return [
            self._prepare(index, text, tokens, prefix=prefix, truncation=truncation)
            for index, (text, tokens) in enumerate(zip(sent, counts, strict=True))
        ]

    def shorten(self, text: RemoteText, told_tokens: int | None, *, prefix: str, truncation: Truncation) -> RemoteText:
        """A text that was refused as too long, made shorter; the prefix stays. Blocks."""
        own = text.text.removeprefix(prefix)
        part = min(0.9, 0.95 * self.max_tokens / told_tokens) if told_tokens else 0.75
        kept = max(1, int(len(own) * part))
        own = own[-kept:] if truncation is Truncation.START else own[:kept]
        (tokens,) = self.counter.count([prefix + own])
        cut = text.tokens_cut + max(0, (told_tokens or text.tokens) - tokens)
        told = text.told_tokens or (told_tokens if text.tokens_cut == 0 else None)
        return replace(text, text=prefix + own, tokens=tokens, tokens_cut=max(1, cut), told_tokens=told, estimated=True)

    def _prepare(
        self, index: int, text: str, tokens: int, *, prefix: str, truncation: Truncation
    ) -> RemoteText | KbmeshError:
        if not text[len(prefix) :].strip():
            return EmptyText(f"texts[{index}]")
        exact = self.counter.exact
        ready = RemoteText(index=index, text=text, tokens=tokens, estimated=not exact, may_be_cut=False)
        if exact and tokens <= self.max_tokens:
            return ready
        if truncation is Truncation.NONE:
            if exact or not (self.traits.cuts_as_told or self.traits.refuses_long_texts or self._fits_surely(text)):
                return TextTooLong(tokens=max(tokens, self.max_tokens + 1), limit=self.max_tokens)
            return replace(ready, alone=tokens > self.max_tokens)
        if exact:
            return self._cut(ready, prefix, truncation)
        if tokens <= self.max_tokens:
            return replace(ready, may_be_cut=True)
        if self.traits.cuts_as_told or (not self.traits.refuses_long_texts and truncation is Truncation.END):
            # The vendor cuts, and does not say how much.
            over = tokens - self.max_tokens
            return replace(ready, tokens=self.max_tokens, tokens_cut=over, may_be_cut=True)
        if not self.traits.refuses_long_texts:
            return self._cut(ready, prefix, truncation)
        most = self.max_tokens * CHARACTERS_PER_TOKEN
        if len(text) > most:
            own = text[len(prefix) :]
            text = prefix + (own[-most:] if truncation is Truncation.START else own[:most])
            (left,) = self.counter.count([text])
            ready = replace(ready, text=text, tokens=left, tokens_cut=tokens - left)
        return replace(ready, may_be_cut=True, alone=True)

    def _fits_surely(self, text: str) -> bool:
        """Whether it fits by any tokenizer: none makes more tokens than bytes."""
        return len(text.encode("utf-8", "replace")) + self.counter.special_tokens <= self.max_tokens

    def _cut(self, ready: RemoteText, prefix: str, truncation: Truncation) -> RemoteText:
        own = ready.text[len(prefix) :]
        (of_prefix,) = self.counter.count([prefix])
        room = max(self.counter.special_tokens + 1, self.max_tokens - of_prefix + self.counter.special_tokens)
        cut = cut_text(self.counter, own, max_tokens=room, from_start=truncation is Truncation.START)
        (tokens,) = self.counter.count([prefix + cut.text])
        return replace(ready, text=prefix + cut.text, tokens=tokens, tokens_cut=max(0, ready.tokens - tokens))


def batches(texts: Sequence[RemoteText], *, items: int, tokens: int) -> Iterator[list[RemoteText]]:
    """Texts for one call each, in their order: at most so many, with at most so many tokens. One that has more is
    alone, and so is one that may be too long."""
    batch: list[RemoteText] = []
    size = 0
    for text in texts:
        if text.alone:
            yield [text]
            continue
        if batch and (len(batch) == items or size + text.tokens > tokens):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += text.tokens
    if batch:
        yield batch
