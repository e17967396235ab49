"""Answering many requests of one stream at once, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


async def answer_in_order(
    requests: AsyncIterator[RequestT], answer: Callable[[RequestT], Awaitable[AnswerT]], *, concurrency: int
) -> AsyncGenerator[AnswerT, None]:
    """The answers, each as soon as it and those before it are done.

    At most `concurrency` requests have been read and not yet been taken by the consumer, so that a caller who sends
    faster than he reads is held back by the stream's own flow control. What `answer` or `requests` raises is raised
    here, after the answers to the requests before. What still runs is ended when the consumer leaves.
    """
    answering: deque[asyncio.Task[AnswerT]] = deque()
    reading: asyncio.Task[RequestT | None] | None = asyncio.create_task(_next(requests))
    broken: Exception | None = None
    try:
        while answering or reading is not None:
            wanted: set[asyncio.Task[Any]] = {answering[0]} if answering else set()
            if reading is not None and len(answering) < concurrency:
                wanted.add(reading)
            await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
            if answering and answering[0].done():
                yield answering.popleft().result()
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


async def _next(requests: AsyncIterator[RequestT]) -> RequestT | None:
    return await anext(requests, None)


async def _answer(answer: Callable[[RequestT], Awaitable[AnswerT]], request: RequestT) -> AnswerT:
    return await answer(request)
