"""How sure a figure is: intervals by the bootstrap.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13: percentile intervals over resamples of the
queries. Two strategies are compared on the same resamples, query by query.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from kbmesh_cli.relevance import percentile

Statistic = Callable[[Sequence[float]], float]

RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A figure, and where it would be in 95 of 100 samples of queries such as these."""

    estimate: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether a difference of 0 lies in it."""
        return self.low <= 0 <= self.high


class Bootstrap:
    """Resamples of a number of queries. The same seed draws the same ones."""

    def __init__(self, size: int, *, seed: int, resamples: int = RESAMPLES) -> None:
        """Raises ValueError for no queries."""
        if size < 1:
            raise ValueError("there is nothing to draw from")
        source = random.Random(seed)
        self._size = size
        # An itemgetter of one item gives the item itself: there is but one sample of one query.
        self._draws = [itemgetter(*source.choices(range(size), k=size)) for _ in range(resamples)] if size > 1 else []

    def interval(self, values: Sequence[float], statistic: Statistic) -> Interval:
        """Of a statistic of one strategy's values, one for each query. Raises ValueError for another number of them."""
        self._check(values)
        drawn = [statistic(draw(values)) for draw in self._draws]
        return _interval(statistic(values), drawn)

    def difference(self, values: Sequence[float], others: Sequence[float], statistic: Statistic) -> Interval:
        """Of what the statistic of the values is above that of the others, query by query the same ones."""
        self._check(values)
        self._check(others)
        drawn = [statistic(draw(values)) - statistic(draw(others)) for draw in self._draws]
        return _interval(statistic(values) - statistic(others), drawn)

    def _check(self, values: Sequence[float]) -> None:
        if len(values) != self._size:
            raise ValueError(f"{len(values)} values for {self._size} queries")


def mean(values: Sequence[float]) -> float:
    """0 for no values."""
    return sum(values) / len(values) if values else 0.0


def _interval(estimate: float, drawn: Sequence[float]) -> Interval:
    if not drawn:
        return Interval(estimate=estimate, low=estimate, high=estimate)
    return Interval(estimate=estimate, low=percentile(drawn, 0.025), high=percentile(drawn, 0.975))
