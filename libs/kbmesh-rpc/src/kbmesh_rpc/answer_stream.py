"""Answering many requests of one stream at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from kbmesh_rpc.logs import get_logger

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

LINGER_SECONDS = 0.1

log = get_logger(__name__)


def answer_in_order(
    requests: AsyncIterator[RequestT], answer: Callable[[RequestT], Awaitable[AnswerT]], *, concurrency: int
) -> AsyncGenerator[AnswerT, None]:
    """The answers, each as soon as it and those before it are done. See `_answers`."""
    return _answers(requests, answer, concurrency=concurrency, in_order=True)


def answer_as_done(
    requests: AsyncIterator[RequestT], answer: Callable[[RequestT], Awaitable[AnswerT]], *, concurrency: int
) -> AsyncGenerator[AnswerT, None]:
    """The answers in the order in which they are done. See `_answers`."""
    return _answers(requests, answer, concurrency=concurrency, in_order=False)


async def _answers(
    requests: AsyncIterator[RequestT],
    answer: Callable[[RequestT], Awaitable[AnswerT]],
    *,
    concurrency: int,
    in_order: bool,
) -> AsyncGenerator[AnswerT, None]:
    """At most `concurrency` requests have been read and not yet been taken by the consumer, so that a caller who sends
    faster than he reads is held back by the stream's own flow control. What `answer` raises is raised here and ends
    all; what `requests` raises is raised once those read before it are answered. What still runs is ended when the
    consumer leaves.

    Before the failure of an answer is raised, what the caller is still sending is read for a moment and dropped:
    Python's client takes a stream that ends while it sends for a fault of its own, and never sees the status.
    """
    answering: list[asyncio.Task[AnswerT]] = []
    reading: asyncio.Task[RequestT | None] | None = asyncio.create_task(_next(requests))
    broken: Exception | None = None
    try:
        while answering or reading is not None:
            expected = answering[:1] if in_order else answering
            wanted: set[asyncio.Task[Any]] = set(expected)
            if reading is not None and len(answering) < concurrency:
                wanted.add(reading)
            await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
            answered = next((task for task in expected if task.done()), None)
            if answered is not None:
                answering.remove(answered)
                if answered.exception() is not None and reading is not None:
                    lingering, reading = reading, None
                    await _drop(lingering, requests)
                yield answered.result()
            elif reading is not None and reading.done():
                read, reading, request = reading, None, None
                try:
                    request = read.result()
                except Exception as error:
                    broken = error
                if request is not None:
                    answering.append(asyncio.create_task(_answer(answer, request)))
                    reading = asyncio.create_task(_next(requests))
        if broken is not None:
            raise broken
    finally:
        left: list[asyncio.Task[Any]] = [*answering, *([reading] if reading is not None else [])]
        for unfinished in left:
            unfinished.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _drop(reading: asyncio.Task[RequestT | None], requests: AsyncIterator[RequestT]) -> None:
    """Reads to the end, or for LINGER_SECONDS."""
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while await reading is not None:
                reading = asyncio.create_task(_next(requests))
    except Exception as error:
        # No time, or the stream is broken: it ends with the answer's failure all the same.
        log.debug("stream_dropped", error=str(error))
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _next(requests: AsyncIterator[RequestT]) -> RequestT | None:
    return await anext(requests, None)


async def _answer(answer: Callable[[RequestT], Awaitable[AnswerT]], request: RequestT) -> AnswerT:
    return await answer(request)
