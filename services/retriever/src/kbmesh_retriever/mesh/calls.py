"""What all calls to the other services have in common."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import grpc
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import DeadlineExceeded
from kbmesh_rpc.status import from_rpc_error

T = TypeVar("T")

RESERVE_SECONDS = 0.05
"""Kept back of the caller's deadline, to answer within it; less of a short one."""


async def answer(call: Callable[[float], Awaitable[T]], *, dependency: str, limit_seconds: float) -> T:
    """What `call(timeout in seconds)` gives. The timeout is what is left to the call being served, and never more than
    `limit_seconds`: a stream of documents has no deadline, and must not wait for ever. Raises `KbmeshError`."""
    served = optional_call()
    timeout_seconds = limit_seconds
    if served is not None and served.deadline is not None:
        timeout_seconds = min(limit_seconds, served.deadline.with_reserve(RESERVE_SECONDS).remaining())
    if timeout_seconds <= 0:
        raise DeadlineExceeded(dependency)
    try:
        return await call(timeout_seconds)
    except grpc.RpcError as error:
        raise from_rpc_error(error, dependency=dependency) from error


class Remembered(Generic[T]):
    """Asks, and remembers the answer for a short time; errors are not remembered."""

    def __init__(
        self, ask: Callable[[], Awaitable[T]], *, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._answer: tuple[float, T] | None = None

    async def get(self, *, fresh: bool = False) -> T:
        """The answer; a new one where `fresh` or where the last is too old."""
        now = self._clock()
        if self._answer is not None and not fresh and now - self._answer[0] < self._seconds:
            return self._answer[1]
        answered = await self._ask()
        self._answer = (now, answered)
        return answered
