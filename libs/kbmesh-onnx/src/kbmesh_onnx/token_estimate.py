"""About how many tokens a text has, told without tokenising it, so that a queue can refuse before the work is done."""

from collections.abc import Iterable

BYTES_PER_TOKEN = 3
"""Of UTF-8. Fewer than English prose has, so that an estimate is rather too high than too low; a Chinese character,
which is a token of its own for most models, has three."""
SPARE_TOKENS = 2
"""For special tokens, and for what rounding loses."""


def estimate_tokens(texts: Iterable[str], *, prefix: str = "", max_tokens: int) -> int:
    """Estimates how many tokens a model that reads `max_tokens` of each text will read of them all."""
    return sum(min(max_tokens, estimate_text_tokens(text, prefix=prefix, at_most=max_tokens)) for text in texts)


def estimate_text_tokens(text: str, *, prefix: str = "", at_most: int) -> int:
    """Estimates the tokens of one text, special ones and prefix included. Beyond `at_most` it looks no closer."""
    characters = len(prefix) + len(text)
    if characters >= at_most * BYTES_PER_TOKEN or text.isascii():
        return characters // BYTES_PER_TOKEN + SPARE_TOKENS
    # A lone surrogate is refused later, by name.
    return (len(prefix) + len(text.encode("utf-8", "surrogatepass"))) // BYTES_PER_TOKEN + SPARE_TOKENS
