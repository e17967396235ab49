"""The life of a gRPC process: listen, warm up, serve, drain, end.

async def make(settings: EmbedderSettings) -> Application: ...

run(make, load_settings(EmbedderSettings, service="embedder"))
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from kbmesh_rpc import metrics
from kbmesh_rpc.certificates import CertificateFilesError, certificates_at, watch_certificates
from kbmesh_rpc.channel import certificate_files
from kbmesh_rpc.condition import Condition
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.drain import Drain
from kbmesh_rpc.garbage import settle
from kbmesh_rpc.http2 import health_server_options, server_options
from kbmesh_rpc.interceptors import HEALTH_SERVICE, CallInterceptor
from kbmesh_rpc.logs import configure_logging, get_logger
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.telemetry import TracingUnavailableError, configure_tracing

logger = get_logger(__name__)

S = TypeVar("S", bound=ServerSettings)

LIVENESS = "liveness"
"""Name in health that falls where only a new process helps. SERVING from the start, whatever the services are."""

_CUT_OFF_SECONDS = 0.5
"""How long calls may take to answer that they were cut off."""
_QUIET_SECONDS = 0.05
"""For how long no call has come before the server stops."""
_LINGER_SECONDS = 1.0
"""How long it waits for that."""

_Status = health_pb2.HealthCheckResponse


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A service of an application."""

    name: str
    """Its full name, such as `kbmesh.embedder.v1.EmbedderService`. Health and reflection know it by this."""
    add: Callable[[grpc.aio.Server], None]
    """Adds the servicer: `lambda server: add_EmbedderServiceServicer_to_server(servicer, server)`."""
    endless: bool = False
    """Whether its calls are streams that end only with the server, such as KEDA's. A drain does not wait for them."""


class Application(Protocol):
    """What a process serves.

    It may have an attribute `condition`, a `Condition`, where its health may change after the warm-up."""

    @property
    def registrations(self) -> Sequence[Registration]:
        """Its services."""
        ...

    async def warm_up(self) -> None:
        """Makes it ready to answer: loads models, opens stores, tries them. Health is NOT_SERVING until it returns.

        Calls may come in before that; answer ModelNotReady or the like. What it raises is logged and ends the process
        with 1."""
        ...

    async def close(self) -> None:
        """Frees what it holds. Called once, after the last call; also where warm_up failed or was cancelled."""
        ...


class ListenError(Exception):
    """The address cannot be listened on."""


class PlaintextError(Exception):
    """Plain text would leave this machine, and no setting allows it."""


class RunningServer:
    """A server that listens. Made by `start`, ended by `drain`."""

    def __init__(
        self,
        *,
        application: Application,
        settings: ServerSettings,
        server: grpc.aio.Server,
        health: health_aio.HealthServicer,
        health_server: grpc.aio.Server | None,
        drain: Drain,
        port: int,
        health_port: int,
    ) -> None:
        self._application = application
        self._settings = settings
        self._server = server
        self._health = health
        self._drain = drain
        self._condition: Condition | None = getattr(application, "condition", None)
        self._warm = False
        self._health_server = health_server
        self._tasks = [
            asyncio.create_task(self._follow()),
            asyncio.create_task(watch_certificates(settings.tls_reload_seconds)),
        ]
        self.port = port
        self.health_port = health_port
        """Of health in plain text; 0 where there is none."""

    @classmethod
    async def start(cls, application: Application, settings: ServerSettings) -> Self:
        """Listens, NOT_SERVING. Raises ListenError and CertificateFilesError."""
        certificates = certificates_at(certificate_files(settings)) if settings.tls_cert is not None else None
        registrations = application.registrations
        drain = Drain()
        endless = frozenset(registration.name for registration in registrations if registration.endless)
        server = grpc.aio.server(
            interceptors=[CallInterceptor(settings, drain, endless_services=endless)],
            options=server_options(
                max_message_bytes=settings.max_message_bytes,
                max_connection_age_seconds=settings.max_connection_age_seconds,
                grace_seconds=settings.grace_seconds,
            ),
        )
        health = health_aio.HealthServicer()
        health_server: grpc.aio.Server | None = None
        health_port = 0
        try:
            health_pb2_grpc.add_HealthServicer_to_server(health, server)
            names = [registration.name for registration in registrations]
            for name in ("", *names):
                await health.set(name, _Status.NOT_SERVING)
            await health.set(LIVENESS, _Status.SERVING)
            for registration in registrations:
                registration.add(server)
                metrics.zero(registration.name)
            reflection.enable_server_reflection([*names, HEALTH_SERVICE, reflection.SERVICE_NAME], server)
            if settings.health_port:
                health_server = grpc.aio.server(options=health_server_options())
                health_pb2_grpc.add_HealthServicer_to_server(health, health_server)
                health_port = _listen(health_server, settings.host, settings.health_port)
            credentials = (
                certificates.server_credentials(require_client_certificate=settings.asks_for_client_cert)
                if certificates is not None
                else None
            )
            port = _listen(server, settings.host, settings.port, credentials)
            await server.start()
            if health_server is not None:
                await health_server.start()
        except BaseException:
            await server.stop(grace=None)  # one that is dropped without it blocks the interpreter's exit
            if health_server is not None:
                await health_server.stop(grace=None)
            raise
        transport = "plain text" if credentials is None else "mutual TLS" if settings.asks_for_client_cert else "TLS"
        logger.info("listening", host=settings.host, port=port, transport=transport, health_port=health_port)
        return cls(
            application=application,
            settings=settings,
            server=server,
            health=health,
            health_server=health_server,
            drain=drain,
            port=port,
            health_port=health_port,
        )

    async def ready(self) -> None:
        """Every service, and the server as a whole, turns SERVING, or what the application's condition says."""
        self._warm = True
        await self._tell_health()
        logger.info("serving", port=self.port)

    async def _follow(self) -> None:
        if self._condition is not None:
            async for _ in self._condition.changes():
                await self._tell_health()

    async def _tell_health(self) -> None:
        serving = self._warm and (self._condition is None or self._condition.serving)
        for name in ("", *(registration.name for registration in self._application.registrations)):
            await self._health.set(name, _Status.SERVING if serving else _Status.NOT_SERVING)
        live = self._condition is None or self._condition.live
        await self._health.set(LIVENESS, _Status.SERVING if live else _Status.NOT_SERVING)

    async def drain(self) -> None:
        """NOT_SERVING, refuses new calls, lets those in flight finish within the grace, and closes the application.

        What is in flight then is cancelled, and has a moment to answer ShuttingDown. Cancelling the drain cuts the
        grace short; calls are answered and the application is closed all the same."""
        deadline = Deadline.after(self._settings.grace_seconds)
        for task in self._tasks:
            task.cancel()
        await self._health.enter_graceful_shutdown()
        self._drain.begin()
        logger.info("draining", in_flight=self._drain.in_flight, grace_seconds=self._settings.grace_seconds)
        try:
            if not await self._drain.idle(deadline.remaining()):
                logger.warning("calls were cut off at the end of the grace", in_flight=self._drain.in_flight)
            # What gRPC has taken from the wire and not yet handed over ends as CANCELLED when the server stops, as if
            # its caller had left. It is handed over and refused first, as far as callers leave a gap.
            await self._drain.quiet(_QUIET_SECONDS, at_most_seconds=min(_LINGER_SECONDS, deadline.remaining()))
        finally:
            self._drain.cut_off()
            await self._drain.idle(_CUT_OFF_SECONDS)
            # What is left now are watchers of health and the like, which have just been told.
            await self._server.stop(grace=0.1)
            if self._health_server is not None:
                await self._health_server.stop(grace=0.1)
            await self._application.close()
            logger.info("stopped")


def _listen(server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
    """Opens the port, and gives its number. Raises ListenError."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address}: is the port taken, or the host not this machine's?") from error


def _check_plaintext(settings: ServerSettings) -> None:
    """Warns of plain text that leaves this machine where it is allowed. Raises PlaintextError where it is not."""
    edges = settings.plaintext_edges()
    if edges and not settings.allow_plaintext:
        raise PlaintextError(
            f"plain text would leave this machine: {'; '.join(edges)}. Set up TLS, or KBMESH_ALLOW_PLAINTEXT=true"
        )
    if edges:
        logger.warning("plain text leaves this machine, as KBMESH_ALLOW_PLAINTEXT allows", connections=list(edges))


async def serve(make_application: Callable[[S], Awaitable[Application]], settings: S) -> int:
    """Serves until SIGTERM or SIGINT, then drains. Gives the exit code: 0, or 1 where the start or the close failed.

    A second signal cuts the grace short."""
    stop = asyncio.Event()
    hurry = asyncio.Event()
    with _signals(stop, hurry):
        try:
            _check_plaintext(settings)
            with _metrics_server(settings):
                application = await make_application(settings)
                return await _serve(application, settings, stop, hurry)
        except (ListenError, PlaintextError, CertificateFilesError) as error:
            logger.error(str(error))
        except Exception:
            logger.exception("the server failed")
    return 1


async def _serve(application: Application, settings: ServerSettings, stop: asyncio.Event, hurry: asyncio.Event) -> int:
    try:
        server = await RunningServer.start(application, settings)
    except BaseException:
        await application.close()
        raise
    failed = False

    async def warm_up() -> None:
        nonlocal failed
        try:
            await application.warm_up()
            settle()
            await server.ready()
        except Exception:
            failed = True
            logger.exception("the warm-up failed")
            stop.set()

    async with asyncio.TaskGroup() as tasks:
        warming = tasks.create_task(warm_up())
        await stop.wait()
        warming.cancel()
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(server.drain())
        impatience = tasks.create_task(_cancel_on(hurry, draining))
        await asyncio.wait([draining])
        impatience.cancel()
    return 1 if failed else 0


async def _cancel_on(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    await event.wait()
    task.cancel()


@contextmanager
def _signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    """Sets `stop` on the first SIGTERM or SIGINT, and `hurry` on the second."""
    loop = asyncio.get_running_loop()

    def arrived() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, arrived)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextmanager
def _metrics_server(settings: ServerSettings) -> Iterator[None]:
    if settings.metrics_port == 0:
        yield
        return
    try:
        server = metrics.start_metrics_server(settings.metrics_port, host=settings.host)
    except OSError as error:
        raise ListenError(
            f"cannot serve metrics on {settings.host}:{settings.metrics_port}: {error.strerror}"
        ) from error
    try:
        yield
    finally:
        server.close()


def run(make_application: Callable[[S], Awaitable[Application]], settings: S) -> NoReturn:
    """Runs a whole process: logs, traces, metrics, event loop (uvloop where installed), signals. Exits the process."""
    configure_logging(settings, service=settings.service)
    logger.info("settings", **settings.model_dump(mode="json"))
    try:
        flush_traces = configure_tracing(settings.otlp_endpoint, settings.service)
    except TracingUnavailableError as error:
        logger.error(str(error))
        sys.exit(2)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(serve(make_application, settings))
    flush_traces()
    sys.exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@asynccontextmanager
async def running(application: Application, settings: ServerSettings) -> AsyncIterator[str]:
    """A warm server for tests, in this event loop, at the address it yields. Drains and closes at the end.

    `ServerSettings(port=0, metrics_port=0)` will do."""
    server = await RunningServer.start(application, settings)
    try:
        await application.warm_up()
        await server.ready()
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.drain()
