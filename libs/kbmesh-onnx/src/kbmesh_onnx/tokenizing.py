"""Tokenising beside the event loop, slice by slice, so that a large call does not hold up a small one."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeVar
from weakref import WeakValueDictionary

from kbmesh_onnx.batch_errors import BatcherClosedError, ItemExpiredError, QueueFullError
from kbmesh_onnx.throughput import retry_seconds
from kbmesh_onnx.token_estimate import CHARACTERS_PER_TOKEN

ResultT = TypeVar("ResultT")

LANE_CHARACTERS = 32 * 1024 * 1024
SLICE_CHARACTERS = 65_536


class TokenizingLane:
    """A thread that tokenises for one kind of call, and a second one for texts that are longer than a slice: the
    tokeniser cannot put a text down once it has begun it.

    A call is cut into slices of whole texts. Where `in_order` is false the calls take turns, slice by slice, so that a
    short one is soon done whatever the others bring; else each call waits until the ones before it are done, so that
    the model gets work early. The characters that wait are limited: they lie in memory.
    """

    def __init__(self, name: str, *, in_order: bool = False, limit_characters: int = LANE_CHARACTERS) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"tokenizer-{name}")
        self._long_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"tokenizer-{name}-long")
        self._turn = asyncio.Lock() if in_order else None
        self._long_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._limit = limit_characters
        self._characters = 0
        self._closed = False
        self._characters_per_second: float | None = None

    @property
    def waiting_characters(self) -> int:
        """Characters of the calls that are not done yet."""
        return self._characters

    async def run(
        self,
        work: Callable[[Sequence[str], int], Sequence[ResultT]],
        texts: Sequence[str],
        *,
        deadline: float | None = None,
        tenant: str = "",
    ) -> list[ResultT]:
        """Gives what `work` makes of the texts, in order. `work` gets some texts and the index of the first.

        Each tenant has one long text at a time before the thread, so that many of one do not hold up another's.

        `deadline` is a time of `time.monotonic`. Raises QueueFullError where too much waits, ItemExpiredError,
        BatcherClosedError, and what `work` raises.
        """
        with self._admitted(sum(map(len, texts))):
            if self._turn is None:
                return await self._run(work, texts, deadline, tenant)
            async with self._turn:
                return await self._run(work, texts, deadline, tenant)

    async def _run(
        self,
        work: Callable[[Sequence[str], int], Sequence[ResultT]],
        texts: Sequence[str],
        deadline: float | None,
        tenant: str,
    ) -> list[ResultT]:
        loop = asyncio.get_running_loop()
        results: list[ResultT] = []
        for start, end in _slices(texts):
            is_long = end - start == 1 and len(texts[start]) > SLICE_CHARACTERS
            thread = self._long_thread if is_long else self._thread
            async with self._long_turns.setdefault(tenant, asyncio.Lock()) if is_long else nullcontext():
                if self._closed:
                    raise BatcherClosedError("the tokenising lane is closed")
                if deadline is not None and deadline <= time.monotonic():
                    raise ItemExpiredError("while it waited to be tokenised")
                results += await loop.run_in_executor(thread, self._timed, work, texts[start:end], start)
        return results

    def close(self) -> None:
        """Ends the threads once they have done what they were given.

        Calls that have slices left end as BatcherClosedError."""
        self._closed = True
        self._thread.shutdown(wait=False)
        self._long_thread.shutdown(wait=False)

    def _timed(
        self, work: Callable[[Sequence[str], int], Sequence[ResultT]], texts: Sequence[str], start: int
    ) -> Sequence[ResultT]:
        began = time.monotonic()
        results = work(texts, start)
        seconds = time.monotonic() - began
        if seconds > 0:
            self._characters_per_second = sum(map(len, texts)) / seconds
        return results

    @contextmanager
    def _admitted(self, characters: int) -> Iterator[None]:
        over = self._characters + characters - self._limit
        # One call that is larger than the limit is taken where nothing else waits, for otherwise it never could be.
        if self._characters > 0 and over > 0:
            speed = self._characters_per_second
            wait = min(self._characters, over) / speed if speed else 1.0
            raise QueueFullError(
                queued_tokens=self._characters // CHARACTERS_PER_TOKEN,
                limit=self._limit // CHARACTERS_PER_TOKEN,
                retry_after_seconds=retry_seconds(wait),
            )
        self._characters += characters
        try:
            yield
        finally:
            self._characters -= characters


def _slices(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last index, exclusive, of runs of texts that have about SLICE_CHARACTERS together."""
    start = characters = 0
    for index, text in enumerate(texts):
        if index > start and characters + len(text) > SLICE_CHARACTERS:
            yield start, index
            start, characters = index, 0
        characters += len(text)
    if start < len(texts):
        yield start, len(texts)
