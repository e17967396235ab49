"""Scores of one list brought to 0 to 1, so that those of several lists can be added. What is not in a list has 0."""

import math
from collections.abc import Sequence

_DEVIATIONS = 3.0
"""On each side of the mean that `by_distribution` spreads over 0 to 1."""


def by_range(scores: Sequence[float], *, floor: float = math.inf) -> list[float]:
    """The worst of the list, or `floor` where that is lower, is 0 and the best 1; all are 1 where they are equal, since
    each is the best."""
    if not scores:
        return []
    least, most = min(*scores, floor), max(scores)
    span = most - least
    if not span > 0 or math.isinf(span):
        return [1.0 if score == most else 0.0 for score in scores]
    return [(score - least) / span for score in scores]


def by_distribution(scores: Sequence[float]) -> list[float]:
    """The mean of the list is 0.5, three standard deviations below it 0 and above it 1; all are 0.5 where they are
    equal."""
    if not scores:
        return []
    mean = math.fsum(scores) / len(scores)
    distances = [score - mean for score in scores]
    deviation = math.sqrt(math.fsum(distance * distance for distance in distances) / len(scores))
    if not deviation > 0 or math.isinf(deviation):
        return [0.5] * len(scores)
    return [min(1.0, max(0.0, 0.5 + distance / (2 * _DEVIATIONS * deviation))) for distance in distances]
