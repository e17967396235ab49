"""Channels of both clients: plain text on this machine, TLS everywhere else."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import aio

from kbmesh_client.connection import is_loopback
from kbmesh_client.tls import FollowedFiles, Pems, TlsFiles

Options = Sequence[tuple[str, str | int]]


def open_channel(
    target: str,
    options: Options,
    *,
    tls: TlsFiles | None,
    credentials: grpc.ChannelCredentials | None,
    plaintext: bool,
) -> grpc.Channel:
    """A channel of the synchronous client. Raises ValueError where plain text would leave this machine unasked, or
    where `tls` and `credentials` are both there, and TlsFilesError."""
    _check(target, tls=tls, credentials=credentials, plaintext=plaintext)
    if tls is not None:
        named = _named(options, tls)
        return _RenewingChannel(FollowedFiles(tls), lambda pems: grpc.secure_channel(target, pems.credentials(), named))
    if credentials is not None:
        return grpc.secure_channel(target, credentials, options)
    return grpc.insecure_channel(target, options)


def open_async_channel(
    target: str,
    options: Options,
    *,
    tls: TlsFiles | None,
    credentials: grpc.ChannelCredentials | None,
    plaintext: bool,
) -> aio.Channel:
    """As `open_channel`, of the asynchronous client."""
    _check(target, tls=tls, credentials=credentials, plaintext=plaintext)
    if tls is not None:
        named = _named(options, tls)
        return _AsyncRenewingChannel(
            FollowedFiles(tls), lambda pems: aio.secure_channel(target, pems.credentials(), named)
        )
    if credentials is not None:
        return aio.secure_channel(target, credentials, options)
    return aio.insecure_channel(target, options)


def _check(target: str, *, tls: TlsFiles | None, credentials: grpc.ChannelCredentials | None, plaintext: bool) -> None:
    if tls is not None and credentials is not None:
        raise ValueError("tls and credentials are two ways to say the same: give one of them")
    if tls is None and credentials is None and not plaintext and not is_loopback(target):
        raise ValueError(
            f"plain text would go to {target}, which is not this machine: give tls=TlsFiles(ca=...), or plaintext=True "
            "where the network between is trusted"
        )


def _named(options: Options, tls: TlsFiles) -> Options:
    return [*options, ("grpc.ssl_target_name_override", tls.server_name)] if tls.server_name else options


class _Generation:
    """A channel made of one state of the files, and how many calls are on their way over it."""

    def __init__(self, pems: Pems, channel: Any) -> None:
        self.pems = pems
        self.channel = channel
        self.in_flight = 0


class _EveryKind(ABC):
    """The four kinds of calls of a channel, made in one way."""

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._method("stream_stream", args, kwargs)

    @abstractmethod
    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """What calls a method; `kind` is the name of the channel's own way to make it."""


class _RenewingChannel(_EveryKind, grpc.Channel):
    """Calls go over the newest of several channels: gRPC cannot change the certificates of one. An old one closes after
    its last call. Thread-safe."""

    def __init__(self, files: FollowedFiles, make: Callable[[Pems], grpc.Channel]) -> None:
        self._files = files
        self._make = make
        self._lock = threading.Lock()
        pems = files.latest()
        self._current = _Generation(pems, make(pems))
        self._retired: set[_Generation] = set()

    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        made: tuple[_Generation, Callable[..., Any]] | None = None

        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            nonlocal made
            generation = self._enter()
            begun: Any = None
            try:
                own = made
                if own is None or own[0] is not generation:
                    made = own = generation, getattr(generation.channel, kind)(*args, **kwargs)
                # A blocking call is over when it returns; a stream has just begun.
                begun = own[1](*call_args, **call_kwargs)
                return begun
            finally:
                if isinstance(begun, grpc.Future):
                    begun.add_done_callback(lambda _: self._leave(generation))
                else:
                    self._leave(generation)

        return call

    def _enter(self) -> _Generation:
        pems = self._files.latest()
        closing: _Generation | None = None
        with self._lock:
            if pems is not self._current.pems:
                old, self._current = self._current, _Generation(pems, self._make(pems))
                if old.in_flight:
                    self._retired.add(old)
                else:
                    closing = old
            self._current.in_flight += 1
            entered = self._current
        if closing is not None:
            closing.channel.close()
        return entered

    def _leave(self, generation: _Generation) -> None:
        with self._lock:
            generation.in_flight -= 1
            over = generation.in_flight == 0 and generation in self._retired
            if over:
                self._retired.discard(generation)
        if over:
            # Not in gRPC's own thread, which tells of the end of the call and would wait for itself.
            threading.Thread(target=generation.channel.close, daemon=True).start()

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        self._current.channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        self._current.channel.unsubscribe(callback)

    def close(self) -> None:
        with self._lock:
            every = [self._current, *self._retired]
            self._retired.clear()
        for generation in every:
            generation.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _AsyncRenewingChannel(_EveryKind, aio.Channel):
    """As _RenewingChannel. Belongs to one event loop."""

    def __init__(self, files: FollowedFiles, make: Callable[[Pems], aio.Channel]) -> None:
        self._files = files
        self._make = make
        pems = files.latest()
        self._current = _Generation(pems, make(pems))
        self._retired: set[_Generation] = set()
        self._closing: set[Any] = set()

    def _method(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        made: tuple[_Generation, Callable[..., Any]] | None = None

        def call(*call_args: Any, **call_kwargs: Any) -> Any:
            nonlocal made
            generation = self._latest()
            if made is None or made[0] is not generation:
                made = generation, getattr(generation.channel, kind)(*args, **kwargs)
            begun = made[1](*call_args, **call_kwargs)
            generation.in_flight += 1
            begun.add_done_callback(lambda _: self._leave(generation))
            return begun

        return call

    def _latest(self) -> _Generation:
        pems = self._files.latest()
        if pems is not self._current.pems:
            old, self._current = self._current, _Generation(pems, self._make(pems))
            self._retired.add(old)
            self._close_if_idle(old)
        return self._current

    def _leave(self, generation: _Generation) -> None:
        generation.in_flight -= 1
        self._close_if_idle(generation)

    def _close_if_idle(self, generation: _Generation) -> None:
        if generation.in_flight == 0 and generation in self._retired:
            self._retired.discard(generation)
            task = asyncio.get_running_loop().create_task(generation.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        state: grpc.ChannelConnectivity = self._current.channel.get_state(try_to_connect)
        return state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._current.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._current.channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        retired = list(self._retired)
        self._retired.clear()
        for generation in (self._current, *retired):
            await generation.channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
