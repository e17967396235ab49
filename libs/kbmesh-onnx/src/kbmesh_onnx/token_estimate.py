"""About how many tokens a text has, told without tokenising it, so that a queue can refuse before the work is done."""

import string
from collections.abc import Iterable

CHARACTERS_PER_TOKEN = 3
"""Of ASCII letters and blanks. Fewer than English prose has, so that an estimate is rather too high than too low. Any
sign and any other character, such as a Chinese or a Cyrillic one, may well be a token of its own."""
DIGITS_PER_TOKEN = 2
SPARE_TOKENS = 2
"""For special tokens, and for what rounding loses."""
_DIGITS = string.digits.encode()
_PLAIN = (string.ascii_letters + string.digits + string.whitespace).encode()


def estimate_tokens(texts: Iterable[str], *, prefix: str = "", max_tokens: int) -> int:
    """Estimates how many tokens a model that reads `max_tokens` of each text will read of them all."""
    return sum(min(max_tokens, estimate_text_tokens(text, prefix=prefix, at_most=max_tokens)) for text in texts)


def estimate_text_tokens(text: str, *, prefix: str = "", at_most: int) -> int:
    """Estimates the tokens of one text, special ones and prefix included. Beyond `at_most` it looks no closer."""
    characters = len(prefix) + len(text)
    if characters >= at_most * CHARACTERS_PER_TOKEN:
        return -(-characters // CHARACTERS_PER_TOKEN) + SPARE_TOKENS
    data = prefix.encode("ascii", "ignore") + text.encode("ascii", "ignore")
    digits = len(data) - len(data.translate(None, _DIGITS))
    signs = len(data.translate(None, _PLAIN))
    letters = len(data) - digits - signs
    whole = -(-letters // CHARACTERS_PER_TOKEN) + -(-digits // DIGITS_PER_TOKEN)
    return whole + signs + (characters - len(data)) + SPARE_TOKENS
