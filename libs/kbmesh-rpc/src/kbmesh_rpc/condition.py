"""What an application says of itself after its warm-up: that it cannot answer for now, or that it is beyond repair."""

import asyncio
from collections.abc import AsyncIterator


class Condition:
    """Health that may change while the server runs. Belongs to one event loop.

    An application that has one as its attribute `condition` is followed by the server: `serving` is the health of its
    services, `live` that of the name `liveness`, by which Kubernetes tells whether to start a new process.
    """

    def __init__(self) -> None:
        self.serving = True
        """Whether it can answer. Says nothing before the warm-up is over."""
        self.live = True
        """Whether to wait for it is of any use."""
        self._changed = asyncio.Event()

    def set(self, *, serving: bool, live: bool) -> None:
        """Tells the server."""
        self.serving, self.live = serving, live
        self._changed.set()

    async def changes(self) -> AsyncIterator[None]:
        """One item for each time that it was set since the last one was taken."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield None
