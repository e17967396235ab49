"""A passage shortened to what bears on a question, so that training reads more pairs in the time it has."""

import re

_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n")
_WORD = re.compile(r"\w+")
_STEM = 6
"""Characters by which words are compared: enough to pass over most endings."""


def focus(query: str, passage: str, *, most_words: int) -> str:
    """Its first sentence, which is often a title, and those that share most words with the question, in their order.
    A passage of `most_words` at most is left whole."""
    if len(passage.split()) <= most_words:
        return passage
    asked = _stems(query)
    sentences = [sentence for sentence in _SENTENCES.split(passage) if sentence.strip()]
    # The first is taken before all others; of equal ones, the earlier.
    shared = [len(asked & _stems(sentence)) / (1 + len(sentence.split())) ** 0.5 for sentence in sentences]
    order = sorted(range(len(sentences)), key=lambda place: (place > 0, -shared[place], place))
    kept: list[int] = []
    room = most_words
    for place in order:
        words = len(sentences[place].split())
        if kept and words > room:
            continue
        kept.append(place)
        room -= words
    return "\n".join(sentences[place] for place in sorted(kept))


def _stems(text: str) -> set[str]:
    return {word.lower()[:_STEM] for word in _WORD.findall(text)}
