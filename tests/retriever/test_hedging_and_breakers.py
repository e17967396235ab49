"""One slow replica does not make an answer late, and a dependency that is down is left alone; in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kbmesh_retriever.mesh.breaker import OPEN, Breaker, Breakers
from kbmesh_retriever.mesh.hedging import HEDGES, SHARE, Hedge
from kbmesh_retriever.mesh.usual_time import Window, WindowsByKey
from kbmesh_rpc.errors import DependencyUnavailable, InvalidField
from virtual_time import VirtualLoop, run_virtually

USUAL, LATE = 0.01, 5.0


def told(outcome: str) -> float:
    return HEDGES.labels("store", outcome)._value.get()


class Reads:
    """A read that takes what it is told next."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.hedge = Hedge("store", clock=loop.time)
        self.usual = Window(USUAL, clock=loop.time)
        self.began = 0
        self.cancelled = 0

    async def read(self, *seconds: float | Exception) -> int:
        """Which attempt answered."""
        takes = list(seconds)

        async def attempt() -> int:
            self.began += 1
            number, planned = len(seconds) - len(takes) + 1, takes.pop(0)
            try:
                if isinstance(planned, Exception):
                    raise planned
                await asyncio.sleep(planned)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return number

        return await self.hedge.run(attempt, self.usual)


def test_a_late_read_is_tried_again_and_the_slower_one_is_given_up() -> None:
    async def story(loop: VirtualLoop) -> None:
        reads = Reads(loop)
        for _ in range(100):
            assert await reads.read(USUAL) == 1
        won = told("won")
        started = loop.time()
        assert await reads.read(LATE, USUAL) == 2
        assert loop.time() - started < 4 * USUAL
        await asyncio.sleep(0)
        assert (reads.cancelled, told("won")) == (1, won + 1)
        # The first may still be the faster one.
        assert await reads.read(3 * USUAL, LATE) == 1

    run_virtually(story)


def test_second_attempts_are_at_most_five_in_a_hundred() -> None:
    async def story(loop: VirtualLoop) -> None:
        reads = Reads(loop)
        for _ in range(200):
            await reads.read(USUAL)
        refused = told("refused")
        # Everything is slow at once: asking twice would only make it worse.
        for _ in range(200):
            await reads.read(LATE, LATE)
            reads.usual = Window(USUAL, clock=loop.time)
        assert reads.began <= 400 * (1 + SHARE)
        assert told("refused") > refused

    run_virtually(story)


def test_what_fails_fails_unless_another_attempt_succeeds() -> None:
    down = DependencyUnavailable("store", "down")

    async def story(loop: VirtualLoop) -> None:
        reads = Reads(loop)
        with pytest.raises(DependencyUnavailable):
            await reads.read(down)
        for _ in range(100):
            await reads.read(USUAL)
        assert await reads.read(LATE, USUAL) == 2

        async def late_and_down() -> int:
            await asyncio.sleep(2 * USUAL)
            raise down

        async def fine() -> int:
            await asyncio.sleep(2 * USUAL)
            return 7

        attempts: list[Callable[[], Awaitable[int]]] = [late_and_down, fine]
        assert await reads.hedge.run(lambda: attempts.pop(0)(), reads.usual) == 7
        attempts = [late_and_down, late_and_down]
        with pytest.raises(DependencyUnavailable):
            await reads.hedge.run(lambda: attempts.pop(0)(), reads.usual)

    run_virtually(story)


def test_a_caller_that_leaves_takes_both_attempts_along() -> None:
    async def story(loop: VirtualLoop) -> None:
        reads = Reads(loop)
        for _ in range(100):
            await reads.read(USUAL)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await reads.read(LATE, LATE)
        await asyncio.sleep(0)
        assert reads.cancelled == 2

    run_virtually(story)


def test_times_are_learned_and_forgotten() -> None:
    now = 0.0
    window = Window(1.0, clock=lambda: now)
    for _ in range(7):
        window.observe(0.1)
    assert window.quantile(0.95) == 1.0  # too few to believe
    window.observe(0.1)
    assert window.quantile(0.95) == 0.1
    window.observe_cut_off(0.05)  # says nothing: it might have taken long
    assert window.quantile(0.05) == 0.1
    for _ in range(4):
        window.observe_cut_off(0.9)
    assert window.quantile(0.95) == 0.9
    now = 61.0
    assert window.quantile(0.95) == 1.0

    windows = WindowsByKey(1.0, most=2, clock=lambda: now)
    first = windows["a"]
    assert windows["a"] is first
    windows["b"], windows["c"]
    assert windows["a"] is not first


class Dependency:
    """With a breaker before it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.breaker = Breaker("reranker", clock=lambda: self.now)
        self.called = 0

    def call(self, error: BaseException | None = None, *, seconds: float = 0.0) -> None:
        with self.breaker.guarding(patience_seconds=1.0):
            self.called += 1
            self.now += seconds
            if error is not None:
                raise error

    def fail(self, *, seconds: float = 0.0) -> DependencyUnavailable:
        with pytest.raises(DependencyUnavailable) as caught:
            self.call(DependencyUnavailable("reranker", "down"), seconds=seconds)
        return caught.value

    def leave(self, *, after: float) -> None:
        with pytest.raises(asyncio.CancelledError):
            self.call(asyncio.CancelledError(), seconds=after)


def test_a_dependency_that_fails_is_left_alone_and_tried_again() -> None:
    dependency = Dependency()
    opened = OPEN.labels("reranker")._value.get()
    for _ in range(5):
        dependency.fail()
    assert dependency.breaker.is_open
    assert OPEN.labels("reranker")._value.get() == opened + 1
    refusal = dependency.fail()
    assert (dependency.called, refusal.retry_after_seconds) == (5, 1.0)  # it was not called

    dependency.now = 1.0
    dependency.fail()  # the probe, which fails: twice the pause
    assert (dependency.called, dependency.fail().retry_after_seconds) == (6, 2.0)
    dependency.now = 3.0
    dependency.call()  # the probe, which succeeds
    assert not dependency.breaker.is_open
    assert OPEN.labels("reranker")._value.get() == opened
    dependency.fail()
    dependency.call()


def test_only_one_probe_is_let_through() -> None:
    dependency = Dependency()
    for _ in range(5):
        dependency.fail()
    dependency.now = 1.0
    with dependency.breaker.guarding(patience_seconds=1.0), pytest.raises(DependencyUnavailable):
        dependency.call()
    dependency.call()
    assert dependency.called == 6


def test_an_error_about_the_question_is_no_failure_of_the_dependency() -> None:
    dependency = Dependency()
    for _ in range(9):
        with pytest.raises(InvalidField):
            dependency.call(InvalidField("query", "bad"))
    assert not dependency.breaker.is_open


def test_a_call_that_was_given_up_counts_where_it_had_its_time() -> None:
    dependency = Dependency()
    for _ in range(20):
        dependency.leave(after=0.1)
    assert not dependency.breaker.is_open
    for _ in range(5):
        dependency.leave(after=1.5)
    assert dependency.breaker.is_open


def test_one_collection_that_fails_costs_the_others_nothing() -> None:
    open_before = OPEN.labels("store")._value.get()  # other tests left theirs
    breakers = Breakers("store", most=2, clock=lambda: 0.0)
    for _ in range(5):
        with pytest.raises(DependencyUnavailable), breakers["a"].guarding(patience_seconds=1.0):
            raise DependencyUnavailable("store", "down")
    assert breakers["a"].is_open
    assert not breakers["b"].is_open
    breakers["b"], breakers["c"]  # "a" is the one used longest ago
    assert OPEN.labels("store")._value.get() == open_before
