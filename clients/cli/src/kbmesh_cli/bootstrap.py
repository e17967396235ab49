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

RESAMPLES = 1000


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


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A statistic of all queries, and of each resample."""

    estimate: float
    drawn: tuple[float, ...]
    """In the order of the resamples."""

    def interval(self) -> Interval:
        """Of the statistic."""
        return _interval(self.estimate, self.drawn)

    def above(self, other: "Sampled") -> Interval:
        """Of the difference to another one, resample by resample. Raises ValueError where those are not the same."""
        return _interval(
            self.estimate - other.estimate,
            [mine - theirs for mine, theirs in zip(self.drawn, other.drawn, strict=True)],
        )


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

    def sample(self, values: Sequence[float], statistic: Statistic) -> Sampled:
        """A statistic of values, one for each query. Raises ValueError for another number of them."""
        if len(values) != self._size:
            raise ValueError(f"{len(values)} values for {self._size} queries")
        return Sampled(estimate=statistic(values), drawn=tuple(statistic(draw(values)) for draw in self._draws))


def mean(values: Sequence[float]) -> float:
    """0 for no values."""
    return sum(values) / len(values) if values else 0.0


def _interval(estimate: float, drawn: Sequence[float]) -> Interval:
    if not drawn:
        return Interval(estimate=estimate, low=estimate, high=estimate)
    return Interval(estimate=estimate, low=percentile(drawn, 0.025), high=percentile(drawn, 0.975))
