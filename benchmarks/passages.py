"""The texts that are embedded and reranked: runs of whole paragraphs of this repository's documents."""

import random
import re
from collections.abc import Iterator, Sequence

from kbmesh_onnx.tokenizer import ModelTokenizer

from benchmarks.corpus import Kind, read_corpus

SEED = 20_260_101
FEWEST_TOKENS, MOST_TOKENS = 8, 124
"""A passage ends with the paragraph in which it reaches so many tokens, drawn anew for each: with what the last
paragraph has beyond that, passages have some 126 tokens on average, a dozen at least and what the model reads at most.
"""

_BLANK_LINES = re.compile(r"\n\s*\n")


def read_passages(tokenizer: ModelTokenizer, *, count: int, max_tokens: int) -> list[str]:
    """`count` passages at most, in an order that says nothing of their length; the same in each run.

    None has more tokens than the model reads, so that every library reads the same.
    """
    generator = random.Random(SEED)
    passages = [
        _fit(tokenizer, passage, max_tokens)
        for file in read_corpus(None, max_megabytes=None)
        if file.kind is not Kind.CODE and file.english
        for passage in _runs(tokenizer, file.text, generator)
    ]
    passages = sorted(set(passages))
    generator.shuffle(passages)
    return passages[:count]


def passage_of(tokenizer: ModelTokenizer, passages: Sequence[str], tokens: int) -> str:
    """A text of exactly so many tokens, special ones not counted, made of passages as often as it takes."""
    parts: list[str] = []
    read = 0
    while read < tokens:
        part = passages[len(parts) % len(passages)]
        parts.append(part)
        read += len(tokenizer.offsets(part)[1])
    text = " ".join(parts)
    return text[: int(tokenizer.offsets(text)[1][tokens - 1])]


def _runs(tokenizer: ModelTokenizer, text: str, generator: random.Random) -> Iterator[str]:
    paragraphs = [paragraph.strip() for paragraph in _BLANK_LINES.split(text) if paragraph.strip()]
    run: list[str] = []
    tokens, wanted = 0, generator.uniform(FEWEST_TOKENS, MOST_TOKENS)
    for paragraph, count in zip(paragraphs, tokenizer.count(paragraphs), strict=True):
        run.append(paragraph)
        tokens += count - tokenizer.special_tokens
        if tokens >= wanted:
            yield "\n\n".join(run)
            run, tokens, wanted = [], 0, generator.uniform(FEWEST_TOKENS, MOST_TOKENS)


def _fit(tokenizer: ModelTokenizer, text: str, max_tokens: int) -> str:
    _, ends = tokenizer.offsets(text)
    room = max_tokens - tokenizer.special_tokens
    return text if len(ends) <= room else text[: int(ends[room - 1])]
