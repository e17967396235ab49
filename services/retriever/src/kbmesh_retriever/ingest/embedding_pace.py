"""How many texts one call to the embedder takes, by how long the calls before it took."""

import math
from collections.abc import Sequence

FIRST_TEXTS = 16
"""Of the first call, before anything was measured."""
_TARGET_SHARE = 0.25
"""Of the longest that a call may take, that the model is to work on one: texts of another script have four times the
tokens."""
_LONGEST_SHARE = 0.5
"""That a call is to take with the time that it waits for the model."""
_LEAST_SHARE = 0.0625
"""That the model works on one even where a call waits for long: to wait for little would take no less."""


class EmbeddingPace:
    """Of one model. Calls are as large as they may be where the model is fast, and small where it is slow."""

    def __init__(self, *, most_texts: int, most_seconds: float) -> None:
        """A call takes at most so many texts, and must not take longer than `most_seconds`."""
        self._most_texts = most_texts
        self._most_seconds = most_seconds
        self._queue_seconds = 0.0
        self._tokens_a_character = 0.0
        self._seconds_a_token: float | None = None
        self._gave_up = False

    def count(self, texts: Sequence[str]) -> int:
        """How many of the texts, from the first on, the next call takes: at least one."""
        if self._gave_up:
            return 1
        if self._seconds_a_token is None:
            return min(FIRST_TEXTS, len(texts))
        target = min(self._most_seconds * _TARGET_SHARE, self._most_seconds * _LONGEST_SHARE - self._queue_seconds)
        target = max(target, self._most_seconds * _LEAST_SHARE)
        seconds = 0.0
        for count, text in enumerate(texts[: self._most_texts]):
            seconds += len(text) * self._tokens_a_character * self._seconds_a_token
            if count and seconds > target:
                return count
        return min(self._most_texts, len(texts))

    def took(self, seconds: float, *, queue_seconds: float, texts: Sequence[str], tokens: Sequence[int]) -> None:
        """A call was answered. For `queue_seconds` of its time the model worked for others; `tokens` are those that it
        read of each text."""
        self._gave_up = False
        self._queue_seconds = queue_seconds
        characters, read = sum(map(len, texts)), sum(tokens)
        if characters and read:
            self._tokens_a_character = read / characters
            self._seconds_a_token = max(0.0, seconds - queue_seconds) / read

    def gave_up(self) -> None:
        """A call took too long: the next one takes a single text, which tells how slow the model has become."""
        self._gave_up = True

    @property
    def tokens_a_second(self) -> float:
        """As it was last measured; infinite before."""
        return 1 / self._seconds_a_token if self._seconds_a_token else math.inf
