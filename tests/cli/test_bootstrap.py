"""Intervals of `kbmesh eval`."""

import random

import pytest
from kbmesh_cli.bootstrap import Bootstrap, mean
from kbmesh_cli.relevance import percentile


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    source = random.Random(7)
    values = [source.gauss(10, 2) for _ in range(400)]
    interval = Bootstrap(400, seed=0).sample(values, mean).interval()
    assert interval.estimate == pytest.approx(mean(values))
    # 1.96 x 2 / sqrt(400) on each side.
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 2 / 20, rel=0.15)
    assert interval.low < interval.estimate < interval.high


def test_queries_that_differ_alike_leave_no_doubt() -> None:
    """What is hard for one is hard for the other: the queries' own spread is no noise of the difference."""
    source = random.Random(7)
    values = [source.random() for _ in range(100)]
    better = [value + 0.01 for value in values]
    bootstrap = Bootstrap(100, seed=0)
    plain = bootstrap.sample(values, mean)
    interval = bootstrap.sample(better, mean).above(plain)
    assert interval.low == pytest.approx(0.01)
    assert interval.high == pytest.approx(0.01)
    assert not interval.is_noise
    assert plain.above(plain).is_noise


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    values = [float(number % 7) for number in range(50)]
    one, again, other = (Bootstrap(50, seed=seed).sample(values, mean).interval() for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_any_statistic_has_an_interval() -> None:
    values = [float(number) for number in range(101)]
    interval = Bootstrap(101, seed=0).sample(values, lambda drawn: percentile(drawn, 0.5)).interval()
    assert interval.estimate == 50
    assert 30 < interval.low < 50 < interval.high < 70


def test_one_query_is_all_that_is_known() -> None:
    interval = Bootstrap(1, seed=0).sample([0.5], mean).interval()
    assert (interval.low, interval.estimate, interval.high) == (0.5, 0.5, 0.5)


def test_values_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        Bootstrap(0, seed=0)
    with pytest.raises(ValueError, match="3 values for 2"):
        Bootstrap(2, seed=0).sample([1, 2, 3], mean)
