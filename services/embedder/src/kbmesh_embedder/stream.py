"""Answering many requests of one stream at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


async def answer_concurrently(
    requests: AsyncIterator[RequestT], answer: Callable[[RequestT], Awaitable[AnswerT]], *, concurrency: int
) -> AsyncGenerator[AnswerT, None]:
    """Answers in the order in which they are done.

    At most `concurrency` requests have been read and not yet been taken by the consumer, so that a caller who sends
    faster than he reads is held back by the stream's own flow control. Ends what still runs when the consumer leaves.
    What `answer` raises is raised here and ends all. What `requests` raises is raised once those read before it are
    answered.
    """
    broken: Exception | None = None
    answering: set[asyncio.Task[AnswerT]] = set()
    reading: asyncio.Task[RequestT | None] | None = asyncio.create_task(_next(requests))
    try:
        while reading is not None or answering:
            wanted: set[asyncio.Task[Any]] = {*answering}
            if reading is not None and len(answering) < concurrency:
                wanted.add(reading)
            await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in answering if task.done()]:
                answering.discard(task)
                yield task.result()
            if reading is not None and reading.done() and len(answering) < concurrency:
                read, reading, request = reading, None, None
                try:
                    request = read.result()
                except Exception as error:
                    broken = error
                if request is not None:
                    answering.add(asyncio.create_task(_answer(answer, request)))
                    reading = asyncio.create_task(_next(requests))
        if broken is not None:
            raise broken
    finally:
        left: list[asyncio.Task[Any]] = [*answering, *([reading] if reading is not None else [])]
        for unfinished in left:
            unfinished.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _next(requests: AsyncIterator[RequestT]) -> RequestT | None:
    return await anext(requests, None)


async def _answer(answer: Callable[[RequestT], Awaitable[AnswerT]], request: RequestT) -> AnswerT:
    return await answer(request)
