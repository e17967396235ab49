"""How fast a model really is, from its last few batches."""

RATE_MEMORY = 0.9
"""How much of the measured tokens and seconds is kept at each batch: about the last ten batches count."""
FULL_BATCH_SHARE = 0.25
"""How full a batch must be to tell how fast a long queue goes: one short query takes nearly as long as several. Half of
what bulk work has beside queries, whose batches are half as large."""
SHARE_MEMORY = 0.98
"""The same for how the time is split between the lanes, which a burst of queries must not turn over."""
MIN_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 60.0


class Throughput:
    """Tokens and seconds of the last batches, each batch counting a little less than the one after it."""

    def __init__(self, *, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._recent = _Rate()
        self._full = _Rate()
        self._seconds = 0.0
        self._interactive_seconds = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Speed over the last batches, whatever they were. None before the first."""
        return self._recent.tokens_per_second

    @property
    def full_tokens_per_second(self) -> float | None:
        """Speed over the last batches that were full, which is that of a long queue. None before the first."""
        return self._full.tokens_per_second

    @property
    def interactive_share(self) -> float:
        """Part of the model's time that interactive work took lately while there was bulk work as well."""
        return self._interactive_seconds / self._seconds if self._seconds > 0 else 0.0

    def add(self, *, interactive: bool, bulk_waits: bool, tokens: int, padded_tokens: int, seconds: float) -> None:
        """Takes a batch into account. `bulk_waits` tells whether there was bulk work besides."""
        if not interactive or bulk_waits:
            self._share(interactive, seconds)
        self._recent.add(tokens, seconds)
        if padded_tokens >= self._batch_tokens * FULL_BATCH_SHARE:
            self._full.add(tokens, seconds)

    def _share(self, interactive: bool, seconds: float) -> None:
        self._seconds = self._seconds * SHARE_MEMORY + seconds
        self._interactive_seconds = self._interactive_seconds * SHARE_MEMORY + (seconds if interactive else 0.0)

    def seconds_to_run(self, tokens: int) -> float:
        """How long the model takes for so many waiting tokens: a second where nothing was measured yet."""
        rate = self.full_tokens_per_second or self.tokens_per_second
        return tokens / rate if rate else 1.0


class _Rate:
    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        return self._tokens / self._seconds if self._seconds > 0 else None

    def add(self, tokens: int, seconds: float) -> None:
        self._tokens = self._tokens * RATE_MEMORY + tokens
        self._seconds = self._seconds * RATE_MEMORY + seconds


def retry_seconds(seconds: float) -> float:
    """A time to come back after, neither so short that everybody knocks at once nor without end."""
    return min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, seconds))
