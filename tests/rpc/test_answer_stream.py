"""Many requests of one stream at once, answered in their order."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_rpc.answer_stream import answer_in_order


class Worker:
    """Answers a request, given as the number of turns that it takes, with that number."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.started: list[int] = []

    async def __call__(self, request: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.append(request)
        try:
            for _ in range(abs(request)):
                await asyncio.sleep(0)
            if request < 0:
                raise ValueError(request)
            return request
        finally:
            self.running -= 1


async def stream(requests: Sequence[int]) -> AsyncIterator[int]:
    for request in requests:
        await asyncio.sleep(0)
        yield request


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-5, 20), max_size=12), st.integers(1, 4))
def test_answers_come_in_order_up_to_the_first_failure(requests: list[int], concurrency: int) -> None:
    async def story() -> None:
        worker = Worker()
        answers: list[int] = []
        failed: list[int] = []
        coming = answer_in_order(stream(requests), worker, concurrency=concurrency)
        while True:
            try:
                answers.append(await anext(coming))
            except StopAsyncIteration:
                break
            except ValueError as error:
                failed.append(error.args[0])
                break
        first = next((index for index, request in enumerate(requests) if request < 0), len(requests))
        assert answers == requests[:first]
        assert failed == requests[first : first + 1]
        assert worker.most <= concurrency
        assert worker.running == 0

    asyncio.run(story())


async def test_a_stream_that_breaks_is_answered_up_to_there() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 5
        yield 1
        raise RuntimeError("the caller sent nonsense")

    coming = answer_in_order(broken(), Worker(), concurrency=4)
    assert [await anext(coming), await anext(coming)] == [5, 1]
    with pytest.raises(RuntimeError):
        await anext(coming)


async def test_what_is_sent_after_a_failure_is_read_and_dropped() -> None:
    """Python's client, where it is still sending as the stream ends, never learns why."""
    sent = []

    async def sending() -> AsyncIterator[int]:
        for request in [1, -1, *[1] * 50]:
            await asyncio.sleep(0)
            sent.append(request)
            yield request

    worker = Worker()
    coming = answer_in_order(sending(), worker, concurrency=1)
    assert await anext(coming) == 1
    with pytest.raises(ValueError):
        await anext(coming)
    assert len(sent) == 52
    assert worker.started == [1, -1]


async def test_a_caller_who_waits_for_his_answer_is_told_of_a_failure() -> None:
    async def waiting() -> AsyncIterator[int]:
        yield -1
        await asyncio.Event().wait()

    with pytest.raises(ValueError):
        await anext(answer_in_order(waiting(), Worker(), concurrency=2))


async def test_who_leaves_ends_what_runs() -> None:
    worker = Worker()
    answers = answer_in_order(stream([1, 1_000_000, 1_000_000]), worker, concurrency=3)
    assert await anext(answers) == 1
    waiting = asyncio.ensure_future(anext(answers))
    for _ in range(200):
        await asyncio.sleep(0)
    assert worker.running == 2
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert worker.running == 0


async def test_no_more_is_read_than_is_worked_on() -> None:
    worker = Worker()
    answers = answer_in_order(stream([1_000_000, *[1] * 50]), worker, concurrency=3)
    reading = asyncio.ensure_future(anext(answers))
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(worker.started) == 3
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert worker.running == 0
