"""Counting tokens of a model that runs elsewhere: exactly where its tokenizer.json is at hand, else by an estimate.

Everything here blocks, for seconds where a text is a megabyte: run it in a thread.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.token_estimate import CHARACTERS_PER_TOKEN, SPARE_TOKENS
from kbmesh_onnx.tokenizer import ModelTokenizer

PIECE = re.compile(rf"[!-~]{{1,{CHARACTERS_PER_TOKEN}}}|[^\s!-~]")
"""What counts as a token: up to three characters of ASCII, or any other character. Tokenizers of vendors make one token
of four to five characters of English, so this is rather too many than too few; of random letters, it may be too few."""
CUT_ROUNDS = 5
"""A cut text may have a token more than its part of the whole had, where a word was cut in two."""


@dataclass(frozen=True, kw_only=True)
class CutText:
    """A text that fits."""

    text: str
    tokens: int
    tokens_cut: int


class TokenCounter(Protocol):
    """Counts with the tokens of nothing included, which are the special ones."""

    @property
    def exact(self) -> bool:
        """Whether it is the model's own tokenizer."""
        ...

    @property
    def special_tokens(self) -> int:
        """Tokens around one text."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]: ...

    def places(self, text: str) -> tuple[list[int], list[int]]:
        """First code point of each token of the text, special ones left out, and one past the last."""
        ...


class EstimatingCounter:
    """For want of a tokenizer."""

    exact = False
    special_tokens = SPARE_TOKENS

    def count(self, texts: Sequence[str]) -> list[int]:
        return [sum(1 for _ in PIECE.finditer(text)) + SPARE_TOKENS for text in texts]

    def places(self, text: str) -> tuple[list[int], list[int]]:
        spans = [found.span() for found in PIECE.finditer(text)]
        return [start for start, _ in spans], [end for _, end in spans]


class ExactCounter:
    """By a tokenizer.json."""

    exact = True

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def special_tokens(self) -> int:
        return self._tokenizer.special_tokens

    def count(self, texts: Sequence[str]) -> list[int]:
        return self._tokenizer.count(texts)

    def places(self, text: str) -> tuple[list[int], list[int]]:
        starts, ends = self._tokenizer.offsets(text)
        return starts.tolist(), ends.tolist()


def open_counter(tokenizer: Path | None) -> TokenCounter:
    """The counter of a tokenizer.json; one that estimates where there is none. Raises ModelFolderError."""
    if tokenizer is None:
        return EstimatingCounter()
    try:
        return ExactCounter(ModelTokenizer(Tokenizer.from_file(str(tokenizer))))
    except Exception as error:  # tokenizers raises a bare Exception
        raise ModelFolderError(f"the tokenizer {tokenizer} cannot be read: {error}") from error


def cut_text(counter: TokenCounter, text: str, *, max_tokens: int, from_start: bool = False) -> CutText:
    """The text, or as much of its beginning, or of its end where it is cut `from_start`, as has `max_tokens`."""
    (tokens,) = counter.count([text])
    if tokens <= max_tokens:
        return CutText(text=text, tokens=tokens, tokens_cut=0)
    starts, ends = counter.places(text)
    room = max(1, max_tokens - (tokens - len(starts)))
    for _ in range(CUT_ROUNDS):
        kept = text[starts[-room] :] if from_start else text[: ends[room - 1]]
        (left,) = counter.count([kept])
        if left <= max_tokens or room == 1:
            break
        room = max(1, room - (left - max_tokens))
    return CutText(text=kept, tokens=left, tokens_cut=tokens - left)


def windows(
    counter: TokenCounter, text: str, *, window_tokens: int, overlap_tokens: int, max_windows: int
) -> tuple[list[str], int, int]:
    """Parts of a text of at most so many tokens, special ones left out, that overlap; the tokens that stand in some
    part; and those that stand in none, because there would be too many parts."""
    starts, ends = counter.places(text)
    total = len(starts)
    if total <= window_tokens:
        return [text], total, 0
    step = max(1, window_tokens - overlap_tokens)
    firsts = [0]
    while firsts[-1] + window_tokens < total and len(firsts) < max_windows:
        firsts.append(firsts[-1] + step)
    lasts = [min(first + window_tokens, total) for first in firsts]
    parts = [text[starts[first] : ends[last - 1]] for first, last in zip(firsts, lasts, strict=True)]
    return parts, lasts[-1], total - lasts[-1]
