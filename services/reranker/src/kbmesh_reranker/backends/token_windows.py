"""Long texts as overlapping windows of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from kbmesh_onnx.errors import ModelFolderError, TextError, TextTooLong
from kbmesh_onnx.tokenizer import ModelTokenizer, PairTruncation, TokenizedText

OVERLAP_SHARE = 0.25
UNLIMITED = 2**31


@dataclass(frozen=True, kw_only=True)
class TokenWindow:
    """One row of a model's input, and where in it the text itself stands."""

    text: TokenizedText
    start: int
    """First token of the text, after special tokens and prefix."""
    end: int
    """One past its last token."""


@dataclass(frozen=True, kw_only=True)
class SplitText:
    """A text in windows."""

    windows: tuple[TokenWindow, ...]
    """Empty for a text without any token."""
    tokens: int
    """Tokens of the text that stand in some window."""
    tokens_cut: int
    """Tokens of the text that stand in none."""


class TokenWindows:
    """Splits texts. Each window has the special tokens and the prefix of its own."""

    def __init__(self, tokenizer: ModelTokenizer, *, prefix: str, max_tokens: int, max_windows: int) -> None:
        self._tokenizer = tokenizer
        self._max_windows = max_windows
        nothing, letter = tokenizer.encode(["", "a"], max_tokens=UNLIMITED)
        # The special tokens before the text are those that it has in common with no text at all.
        same = nothing.ids == letter.ids[: nothing.tokens]
        head = int(np.argmin(same)) if not same.all() else nothing.tokens
        self._head_ids, self._tail_ids = nothing.ids[:head], nothing.ids[head:]
        self._segment = int(letter.type_ids[head])
        self._prefix_ids = (
            self._content(tokenizer.encode([prefix], max_tokens=UNLIMITED)[0]) if prefix else self._head_ids[:0]
        )
        self._room = max_tokens - nothing.tokens - len(self._prefix_ids)
        if self._room < 1:
            raise ModelFolderError(f"{max_tokens} tokens leave no room beside the special tokens and the prefix")

    def split(
        self, texts: Sequence[str], truncation: PairTruncation = "windows", *, max_windows: int | None = None
    ) -> list[SplitText | TextError]:
        """The texts in windows, `max_windows` of each at most, or what is wrong with a text, in their order.

        With any `truncation` but "windows" a text is one window: "end" and "start" cut it off at that end, "none" gives
        TextTooLong for one that is longer.
        """
        return [
            text
            if isinstance(text, TextError)
            else self._split(index, text, truncation, max_windows or self._max_windows)
            for index, text in enumerate(self._tokenizer.try_encode(texts, max_tokens=UNLIMITED))
        ]

    def _split(
        self, index: int, text: TokenizedText, truncation: PairTruncation, max_windows: int
    ) -> SplitText | TextError:
        content = self._content(text)
        if len(content) == 0:
            return SplitText(windows=(), tokens=0, tokens_cut=0)
        cut = max(0, len(content) - self._room)
        if truncation == "none" and cut:
            limit = self._room + len(self._head_ids) + len(self._prefix_ids) + len(self._tail_ids)
            return TextTooLong(index, tokens=limit + cut, limit=limit)
        if truncation != "windows":
            kept = content[cut:] if truncation == "start" else content[: self._room]
            return SplitText(windows=(self._window(kept),), tokens=len(kept), tokens_cut=cut)
        step = max(1, self._room - int(self._room * OVERLAP_SHARE))
        starts = list(range(0, max(1, len(content) - self._room + step), step))[:max_windows]
        if starts[-1] + self._room > len(content):
            # Drawn back to the end, so that it is not a short rest without context.
            starts[-1] = max(0, len(content) - self._room)
        read = min(len(content), starts[-1] + self._room)
        windows = tuple(self._window(content[start : start + self._room]) for start in starts)
        return SplitText(windows=windows, tokens=read, tokens_cut=len(content) - read)

    def _window(self, piece: np.typing.NDArray[np.int64]) -> TokenWindow:
        ids = np.concatenate([self._head_ids, self._prefix_ids, piece, self._tail_ids])
        start = len(self._head_ids) + len(self._prefix_ids)
        return TokenWindow(
            text=TokenizedText(
                ids=ids, type_ids=np.full(len(ids), self._segment, dtype=np.int64), tokens=len(ids), tokens_cut=0
            ),
            start=start,
            end=start + len(piece),
        )

    def _content(self, text: TokenizedText) -> np.typing.NDArray[np.int64]:
        return text.ids[len(self._head_ids) : text.tokens - len(self._tail_ids)]
