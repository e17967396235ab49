"""Buckets: the few shapes of batches that are made ready beforehand, and how a batch is padded into one."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SHORTEST_TOKENS = 8


@dataclass(frozen=True, kw_only=True, order=True)
class Bucket:
    """A batch of `rows` texts of `tokens` tokens each."""

    rows: int
    tokens: int

    @property
    def area(self) -> int:
        """Tokens, padding included."""
        return self.rows * self.tokens

    def holds(self, rows: int, tokens: int) -> bool:
        """Whether a batch of that shape can be padded into it."""
        return rows <= self.rows and tokens <= self.tokens


def lengths(max_tokens: int) -> tuple[int, ...]:
    """Lengths of buckets: powers of two and, from 16 on, what lies half way to the next; the limit last.

    So no text is padded by more than half of its length, but for the shortest.
    """
    steps = {max_tokens}
    length = SHORTEST_TOKENS
    while length < max_tokens:
        steps.add(length)
        if length > SHORTEST_TOKENS and length * 3 // 2 < max_tokens:
            steps.add(length * 3 // 2)
        length *= 2
    return tuple(sorted(steps))


def choose_buckets(*, max_tokens: int, max_area: int, most: int) -> tuple[Bucket, ...]:
    """The buckets to make ready, smallest first, at most `most`.

    Rows are powers of two. Small ones come first, since they gain most: where there is little to compute, the calls of
    the operators are what takes the time.
    """
    found = []
    for tokens in lengths(max_tokens):
        rows = 1
        while rows * tokens <= max_area:
            found.append(Bucket(rows=rows, tokens=tokens))
            rows *= 2
    return tuple(sorted(found, key=lambda bucket: (bucket.area, bucket.rows))[:most])


def smallest(buckets: Iterable[Bucket], rows: int, tokens: int) -> Bucket | None:
    """The bucket of fewest tokens that holds a batch of that shape; None where none does."""
    fitting = [bucket for bucket in buckets if bucket.holds(rows, tokens)]
    return min(fitting, key=lambda bucket: (bucket.area, bucket.rows), default=None)


def fill(bucket_ids: Integers, bucket_mask: Integers, bucket_type_ids: Integers, *batch: Integers) -> None:
    """Write a batch (ids, mask, type ids) into the arrays of a bucket that holds it.

    A row that is all padding has one token, since no operator defines what attention to nothing is.
    """
    ids, mask, type_ids = batch
    rows, tokens = ids.shape
    for target, source in ((bucket_ids, ids), (bucket_mask, mask), (bucket_type_ids, type_ids)):
        target.fill(0)
        target[:rows, :tokens] = source
    bucket_mask[rows:, 0] = 1
