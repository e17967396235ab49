"""Answers of `tei.v1`: the metadata that each carries, the codes of its errors, and waiting in place of refusing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import grpc
from tei.v1 import tei_pb2 as pb2

from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import InvalidField, KbmeshError, QueueFull, Reason
from kbmesh_rpc.status import abort

AnswerT = TypeVar("AnswerT")

TEI_CODES = {Reason.INFERENCE_FAILED: grpc.StatusCode.FAILED_PRECONDITION}
"""Where that server has another code than kbmesh for the same error. All others are the same: INVALID_ARGUMENT for what
is wrong with the request, RESOURCE_EXHAUSTED for overload, UNAVAILABLE for a model that is not ready."""

NANOSECONDS = 1_000_000_000
MIN_WAIT_SECONDS = 0.05


@asynccontextmanager
async def tei_codes(context: grpc.ServicerContext) -> AsyncIterator[None]:
    """Around a call: errors leave with the code that clients of that server know. The details stay kbmesh's."""
    try:
        yield
    except KbmeshError as error:
        code = TEI_CODES.get(error.reason)
        if code is None:
            raise
        # grpc's stubs give servicers the context of its synchronous server.
        await abort(cast("grpc.aio.ServicerContext[Any, Any]", context), error, code=code)


def metadata(
    *,
    started: float,
    characters: int,
    tokens: int,
    queue_seconds: float,
    tokenize_seconds: float,
    infer_seconds: float,
) -> pb2.Metadata:
    """Where the time of a call went. `started` is a time of `time.monotonic`."""
    return pb2.Metadata(
        compute_chars=characters,
        compute_tokens=tokens,
        total_time_ns=round((time.monotonic() - started) * NANOSECONDS),
        tokenization_time_ns=round(tokenize_seconds * NANOSECONDS),
        queue_time_ns=round(queue_seconds * NANOSECONDS),
        inference_time_ns=round(infer_seconds * NANOSECONDS),
    )


def cuts_start(direction: int) -> bool:
    """Whether a text is to lose its start where it is too long. Raises InvalidField for an unknown direction."""
    if direction not in {pb2.TRUNCATION_DIRECTION_RIGHT, pb2.TRUNCATION_DIRECTION_LEFT}:
        raise InvalidField("truncation_direction", f"{direction} is not one of its values")
    return direction == pb2.TRUNCATION_DIRECTION_LEFT


async def patiently(answer: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Waits where the queue is full, as that server does on a stream, until the caller's deadline.

    A stream that ended at the first refusal would lose the requests behind it."""
    while True:
        try:
            return await answer()
        except QueueFull as error:
            wait = max(MIN_WAIT_SECONDS, error.retry_after_seconds or 0.0)
            left = remaining_seconds()
            if left is not None and left <= wait:
                raise
            await asyncio.sleep(wait)


def remaining_seconds() -> float | None:
    """What is left of the current call's deadline. None where it has none."""
    call = optional_call()
    return None if call is None or call.deadline is None else call.deadline.remaining()


def deadline() -> float | None:
    """The current call's deadline as a time of `time.monotonic`. None where it has none."""
    left = remaining_seconds()
    return None if left is None else time.monotonic() + left
