"""What a model is run over before it serves, so that the first callers meet one that has its memory and its speed."""

from collections.abc import Iterator

SHORTEST_TOKENS = 8
MOST_TEXTS = 256


def warm_up_shapes(*, max_tokens: int, batch_tokens: int) -> Iterator[tuple[int, int]]:
    """Texts and tokens of each: for each length that is a power of two, one alone and a full batch; longest last.

    Full batches are also what the queue's speed is measured by.
    """
    tokens = SHORTEST_TOKENS
    lengths = []
    while tokens < max_tokens:
        lengths.append(tokens)
        tokens *= 2
    for length in (*lengths, max_tokens):
        yield 1, length
        texts = min(MOST_TEXTS, batch_tokens // length)
        if texts > 1:
            yield texts, length
