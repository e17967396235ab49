"""The models that a process serves: opened, warmed up, watched, and opened again where one is lost.

Each model has a queue and a thread of its own, so that one that is down or overloaded is no other's business.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

LOADING = "the model is still loading"
WATCH_SECONDS = 1.0
PROBE_SECONDS = 60.0
"""How long a model that is suspected may take to answer before it counts as lost."""
MAX_BACKOFF = 6
"""How many times the first wait the later ones may be."""


class ServedModel(Protocol):
    """What the roster needs of a model."""

    @property
    def fault(self) -> str:
        """Why it cannot be run any more. Empty where it can."""
        ...

    @property
    def suspect(self) -> bool:
        """Whether it failed so often of late that it should be tried."""
        ...

    async def warm_up(self) -> None:
        """Runs it over what callers bring. Raises where it gives nothing usable."""
        ...

    async def close(self) -> None:
        """Ends what runs and gives memory back."""
        ...


ModelT = TypeVar("ModelT", bound=ServedModel)


@dataclass(kw_only=True)
class Place(Generic[ModelT]):
    """A model by name, and what has become of it."""

    name: str
    model: ModelT | None = None
    reason: str = LOADING
    """Why there is no model. Empty where there is one."""
    lost: bool = False
    """Whether it was there and went away, and a new process may help."""
    attempts: int = 0
    """How often in a row it could not be opened."""


class ModelRoster(Generic[ModelT]):
    """Models by name. The first is the default.

    `open_model` loads one. What `is_final` says of an error that it raises: that to try again is of no use. After any
    other it is tried again, `retry_seconds` later at first; 0 makes every error final. `changed` is told of a place
    whose model came or went.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_model: Callable[[str], Awaitable[ModelT]],
        *,
        retry_seconds: float = 0.0,
        is_final: Callable[[Exception], bool] = lambda error: False,
        is_here: Callable[[ModelT], bool] = lambda model: True,
        changed: Callable[[Place[ModelT]], None] = lambda place: None,
    ) -> None:
        if not names:
            raise ValueError("at least one model is needed")
        self._open_model = open_model
        self._retry_seconds = retry_seconds
        self._is_final = is_final
        self._is_here = is_here
        self._changed = changed
        self._places: dict[str, Place[ModelT]] = {name: Place(name=name) for name in names}
        self._default = names[0]
        self._watching: asyncio.Task[None] | None = None

    @property
    def default(self) -> str:
        """The name of the model that answers where none is named."""
        return self._default

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, in the order in which they were given."""
        return tuple(self._places)

    @property
    def places(self) -> tuple[Place[ModelT], ...]:
        """Every place, in the order of the names."""
        return tuple(self._places.values())

    @property
    def complete(self) -> bool:
        """Whether each model is there."""
        return all(place.model is not None for place in self._places.values())

    @property
    def lost(self) -> bool:
        """Whether a model that was there is gone."""
        return any(place.lost for place in self._places.values())

    def place(self, name: str) -> Place[ModelT] | None:
        """The place of that name, the default's where it is empty; None where there is none."""
        return self._places.get(name or self._default)

    async def load(self) -> None:
        """Opens and warms up each model, one after another, and again those that failed, until all are there.

        Each is watched as soon as it is there, whatever becomes of the others. Raises an error that is final.
        """
        while True:
            for place in self._places.values():
                if place.model is None:
                    await self._open(place)
            if self.complete:
                break
            await self._wait_for_the_rest(self._backoff_seconds())
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Closes what is loaded."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for place in self._places.values():
            model, place.model = place.model, None
            if model is not None:
                await model.close()

    async def _open(self, place: Place[ModelT]) -> None:
        try:
            model = await self._open_model(place.name)
            try:
                await model.warm_up()
            except BaseException:
                await model.close()
                raise
        except Exception as error:
            place.reason = f"{type(error).__name__}: {error}"
            place.attempts += 1
            self._changed(place)
            if self._watching is None and (self._retry_seconds == 0 or self._is_final(error)):
                raise
            return
        place.model, place.reason, place.lost, place.attempts = model, "", False, 0
        self._changed(place)

    async def _wait_for_the_rest(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            await asyncio.sleep(min(WATCH_SECONDS, left))
            for place in self._places.values():
                if place.model is not None and (fault := await self._fault(place.model)):
                    await self._lose(place, fault)

    async def _watch(self) -> None:
        reopen_at: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for place in self._places.values():
                if place.model is not None:
                    fault = await self._fault(place.model)
                    if fault:
                        await self._lose(place, fault)
                        reopen_at[place.name] = loop.time() + self._backoff_seconds()
                elif loop.time() >= reopen_at.get(place.name, 0.0):
                    await self._open(place)
                    reopen_at[place.name] = loop.time() + self._backoff_seconds()

    async def _fault(self, model: ModelT) -> str:
        if model.fault or not model.suspect:
            return model.fault
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await model.warm_up()
        except Exception as error:
            return model.fault or f"it fails on everything: {type(error).__name__}: {error}"
        return ""

    async def _lose(self, place: Place[ModelT], fault: str) -> None:
        model, place.model, place.reason = place.model, None, fault
        place.lost = model is not None and self._is_here(model)
        self._changed(place)
        if model is not None:
            await model.close()

    def _backoff_seconds(self) -> float:
        attempts = max(place.attempts for place in self._places.values())
        return max(WATCH_SECONDS, self._retry_seconds) * min(MAX_BACKOFF, max(1, attempts))
