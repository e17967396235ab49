"""Calling one model at a vendor's: with its key, with patience, and told to an operator where it fails."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import SecretStr

from kbmesh_rpc.errors import ShuttingDown
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.provider.api_key import ApiKeyError, KeySource
from kbmesh_rpc.provider.failure import DEFINITE, OF_TEXTS, Cause, ProviderFailure
from kbmesh_rpc.provider.patience import CallObserver, Patience, persist
from kbmesh_rpc.spans import span

T = TypeVar("T")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

FURTHER_CALLS = 64
"""Calls beyond the first that may be spent on finding what a vendor refuses of a batch: enough for three items of
2,048. What is not found by then fails together."""

log = get_logger(__name__)


class Further:
    """Calls that may still be made for one batch."""

    def __init__(self, calls: int = FURTHER_CALLS) -> None:
        self._left = calls

    def take(self, calls: int) -> bool:
        """Whether there are so many; then they are taken."""
        if self._left < calls:
            return False
        self._left -= calls
        return True


class Caller:
    """Makes the calls of one model. Belongs to one event loop."""

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        key_source: KeySource,
        use_key: Callable[[SecretStr], None],
        patience: Patience,
        observer: CallObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`use_key` gives a key to the vendor's SDK. Raises ApiKeyError where there is none; blocks for its file."""
        self.provider = provider
        self._model = model
        self._key_source = key_source
        self._use_key = use_key
        self._patience = patience
        self._observer = observer
        self._clock = clock
        self._closed = False
        self._key = key_source.read(os.environ)
        use_key(self._key)
        self.suspect = False
        """Whether the vendor said something that will be true until somebody does something."""

    def close(self) -> None:
        """From now on calls raise ShuttingDown."""
        self._closed = True

    async def call(self, attempt: Callable[[float], Awaitable[T]], *, deadline: float | None) -> T | ProviderFailure:
        """What `attempt` gives, which gets the seconds that it may take, or why it did not. A key that is not taken is
        read anew once. Raises DeadlineExceeded and ShuttingDown."""
        renewed = False
        while True:
            outcome = await self._persist(attempt, deadline)
            if not isinstance(outcome, ProviderFailure):
                return outcome
            if self._closed:
                raise ShuttingDown
            if outcome.cause is not Cause.CREDENTIALS or renewed or not await self._renew_key():
                return outcome
            renewed = True

    def note(self, failure: ProviderFailure) -> None:
        """Tells an operator, and has the model tried where it seems to be gone for good."""
        if failure.cause in DEFINITE:
            self.suspect = True
        log.warning(
            "provider_failed",
            model=self._model,
            provider=self.provider,
            cause=failure.cause.value,
            status=failure.status,
            detail=failure.detail,
        )

    async def _persist(self, attempt: Callable[[float], Awaitable[T]], deadline: float | None) -> T | ProviderFailure:
        async def open_attempt(seconds: float) -> T:
            if self._closed:
                raise ShuttingDown
            with span("provider call", kind="client", kbmesh__provider=self.provider, kbmesh__model=self._model):
                return await attempt(seconds)

        try:
            return await persist(
                open_attempt,
                provider=self.provider,
                patience=self._patience,
                deadline=deadline,
                observer=self._observer,
                clock=self._clock,
            )
        except ProviderFailure as failure:
            return failure

    async def _renew_key(self) -> bool:
        """Whether there is another key by now."""
        try:
            key = await asyncio.to_thread(self._key_source.read, os.environ)
        except ApiKeyError:
            return False
        if key.get_secret_value() == self._key.get_secret_value():
            return False
        self._key = key
        self._use_key(key)
        log.info("key_renewed", model=self._model)
        return True


async def isolate(
    items: Sequence[ItemT],
    ask: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT] | ProviderFailure]],
    further: Further,
) -> list[ResultT | ProviderFailure]:
    """A result or a failure for each item. Where the vendor refuses what is sent, it is halved until the item that it
    refuses is alone, for as long as there are further calls."""
    outcome = await ask(items)
    if not isinstance(outcome, ProviderFailure):
        return list(outcome)
    if outcome.cause in OF_TEXTS and len(items) > 1 and further.take(2):
        middle = len(items) // 2
        return [*await isolate(items[:middle], ask, further), *await isolate(items[middle:], ask, further)]
    return [outcome] * len(items)


async def all_at_once(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Does all of it at once. The first that raises ends the rest."""

    async def start(one: Callable[[], Awaitable[T]]) -> T:
        return await one()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(start(one)) for one in work]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first
