"""A channel whose certificates may change while it is used."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from kbmesh_rpc.certificates import Certificates, Pems
from kbmesh_rpc.logs import get_logger

logger = get_logger(__name__)

TRIAL_SECONDS = 10.0
"""How long new certificates have to make a connection before the old ones are kept for another while."""


class RenewingChannel(grpc.aio.Channel):
    """Calls go over the newest of several gRPC channels: gRPC cannot change the certificates of one.

    A new channel takes over once it has a connection, so that certificates that the other side does not take (yet) cost
    no call. Where it gets none, and the old one has none either, it takes over too. Calls that are in flight stay where
    they are, and the old channel closes after the last of them. Belongs to one event loop."""

    def __init__(self, open_channel: Callable[[Pems], grpc.aio.Channel], certificates: Certificates) -> None:
        """`open_channel` makes a channel of what certificates hold."""
        self._open_channel = open_channel
        self._pems = certificates.pems
        self._current = _Generation(open_channel(self._pems))
        self._retired: set[_Generation] = set()
        self._closed = False
        # Followers are kept weakly; this holds on to who tells of changes.
        self._certificates = certificates
        certificates.add(self)

    @property
    def newest(self) -> grpc.aio.Channel:
        """The channel that new calls go over."""
        return self._current.channel

    async def follow(self, pems: Pems) -> None:
        """Moves over to what `pems` hold, if it is not there already and they work."""
        if pems is self._pems or self._closed:
            return
        fresh = _Generation(self._open_channel(pems))
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                await fresh.channel.channel_ready()
        except TimeoutError:
            if self._current.channel.get_state() is grpc.ChannelConnectivity.READY:
                await fresh.channel.close()
                logger.warning("new certificates make no connection; calls go on with those before")
                return
        except BaseException:
            await fresh.channel.close()
            raise
        if self._closed:
            await fresh.channel.close()
            return
        old, self._current, self._pems = self._current, fresh, pems
        self._retired.add(old)
        old.retire(self._retired.discard)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_stream", args, kwargs)

    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        made: tuple[_Generation, Callable[..., Any]] | None = None

        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            nonlocal made
            if made is None or made[0] is not self._current:
                made = self._current, getattr(self._current.channel, kind)(*args, **kwargs)
            return made[0].carry(made[1](*call_args, **call_kwargs))

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._current.channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._current.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._current.channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        self._closed = True
        for generation in (self._current, *self._retired):
            await generation.channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Generation:
    """A channel and the calls that are on their way over it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._in_flight = 0
        self._ended: Callable[[_Generation], None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def carry(self, call: Any) -> Any:
        """Counts a call until it is done, and gives it back."""
        self._in_flight += 1
        call.add_done_callback(self._done)
        return call

    def retire(self, ended: Callable[["_Generation"], None]) -> None:
        """No more calls come. Closes the channel when the last one is done, and tells `ended`."""
        self._ended = ended
        self._close_if_idle()

    def _done(self, _call: Any) -> None:
        self._in_flight -= 1
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._ended is not None and self._in_flight == 0 and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        await self.channel.close()
        if self._ended is not None:
            self._ended(self)
