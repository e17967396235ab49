"""Keeps the processes of a local mesh alive: starts, watches, restarts and stops them."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbmesh_client import TlsFiles

from kbmesh_cli.errors import CliError
from kbmesh_cli.health import Health, check_health_async, health_channel

POLL_SECONDS = 0.1
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 10.0
STEADY_SECONDS = 60.0
"""A service that ran so long starts again with the first backoff."""
STOP_SECONDS = 15.0
"""How long a service may drain before it is killed. More than the services' own grace of 10 s."""
MAX_LOG_BYTES = 10 * 1024 * 1024
LOG_LINES_SHOWN = 3
LOG_LINE_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class ServicePlan:
    """How to start a service."""

    name: str
    """Short name, such as "embedder"."""
    module: str
    """Module to run."""
    port: int
    """Port of its gRPC server on the loopback."""
    metrics_port: int
    """Port of its metrics."""
    environment: Mapping[str, str]
    """Its settings."""
    log_path: Path
    """Where its output goes."""
    tls: TlsFiles | None = None
    """How it is asked for its health. None: in plain text."""

    @property
    def endpoint(self) -> str:
        """host:port of its gRPC server."""
        return f"127.0.0.1:{self.port}"


@dataclass(kw_only=True)
class Running:
    """A service's process."""

    plan: ServicePlan
    process: asyncio.subprocess.Process
    log_offset: int
    """Where this process' own lines begin in the log."""
    started: float
    """Monotonic seconds."""
    restarts: int = 0

    def last_log_lines(self) -> list[str]:
        """The last warnings and errors that this process wrote; its last lines where it wrote none."""
        try:
            with self.plan.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self.log_offset, size - 16_384))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return gravest_lines(lines)


def gravest_lines(lines: Sequence[str]) -> list[str]:
    """The last warnings and errors of a log, the last lines where there are none; a few, shortened, as text."""
    read = [_read_log_line(line) for line in lines if line.strip()]
    grave = [text for level, text in read if level in ("warning", "error", "critical")]
    return [
        text if len(text) <= LOG_LINE_CHARACTERS else text[:LOG_LINE_CHARACTERS] + " …"
        for text in (grave or [text for _, text in read])[-LOG_LINES_SHOWN:]
    ]


def _read_log_line(line: str) -> tuple[str, str]:
    """Gives level and text of a line. What is no JSON object has no level and is its own text."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        return "", line.strip()
    level, event = str(value.get("level", "")), str(value.get("event", ""))
    # An exception's last line is what it says; the lines above tell where it was raised.
    causes = [
        str(value[key]).strip().rpartition("\n")[2]
        for key in ("method", "code", "error", "exception")
        if value.get(key)
    ]
    return level, ": ".join(part for part in (level, event, *causes) if part)


def describe_exit(return_code: int) -> str:
    """Says in words how a process ended."""
    if return_code >= 0:
        return f"ended with exit code {return_code}"
    try:
        return f"was killed by {signal.Signals(-return_code).name}"
    except ValueError:
        return f"was killed by signal {-return_code}"


class Supervisor:
    """Runs the services of a plan. Use from one event loop."""

    def __init__(
        self,
        plans: Sequence[ServicePlan],
        *,
        say: Callable[[str], None],
        changed: Callable[[Mapping[str, Running]], None],
    ) -> None:
        """say: called with a line for people; changed: called whenever a process was replaced."""
        self._plans = tuple(plans)
        self._say = say
        self._changed = changed
        self.running: dict[str, Running] = {}

    async def start(self, *, timeout_seconds: float) -> None:
        """Starts every service and waits until each serves. Raises CliError where one dies or stays silent."""
        for plan in self._plans:
            self.running[plan.name] = await self._spawn(plan)
        async with asyncio.TaskGroup() as group:
            for service in self.running.values():
                group.create_task(self._await_serving(service, timeout_seconds))

    async def watch(self) -> None:
        """Restarts every service that ends. Never returns."""
        async with asyncio.TaskGroup() as group:
            for name in self.running:
                group.create_task(self._heal(name))

    async def stop(self) -> None:
        """Asks every service to drain, waits, and kills what is left. The retriever first: it calls the others."""
        first = [service for service in self.running.values() if service.plan.name == "retriever"]
        rest = [service for service in self.running.values() if service.plan.name != "retriever"]
        for group in (first, rest):
            await asyncio.gather(*(self._end(service) for service in group))

    def kill(self) -> None:
        """Ends every service at once."""
        for service in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                service.process.kill()

    async def _spawn(self, plan: ServicePlan) -> Running:
        plan.log_path.parent.mkdir(parents=True, exist_ok=True)
        if plan.log_path.exists() and plan.log_path.stat().st_size > MAX_LOG_BYTES:
            os.replace(plan.log_path, plan.log_path.with_suffix(".log.1"))
        with plan.log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kbmesh_cli.child",
                str(os.getpid()),
                plan.module,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **plan.environment},
                # A Ctrl-C of the terminal goes to its whole group; the services are stopped in order instead.
                start_new_session=True,
            )
            return Running(plan=plan, process=process, log_offset=log.tell(), started=time.monotonic())

    async def _await_serving(self, service: Running, timeout_seconds: float) -> None:
        end = time.monotonic() + timeout_seconds
        health = Health.UNREACHABLE
        async with health_channel(service.plan.endpoint, service.plan.tls) as channel:
            while health is not Health.SERVING:
                if service.process.returncode is not None:
                    raise _died(service)
                if time.monotonic() > end:
                    raise CliError(
                        "SERVICE_NOT_READY",
                        f"{service.plan.name} is {health} after {timeout_seconds:g} s{_last_words(service)}",
                        hint=f"the whole log is {service.plan.log_path}",
                    )
                health = await check_health_async(channel)
                if health is not Health.SERVING:
                    await asyncio.sleep(POLL_SECONDS)

    async def _heal(self, name: str) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            service = self.running[name]
            return_code = await service.process.wait()
            if time.monotonic() - service.started > STEADY_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            lines = [f"\n    {line}" for line in service.last_log_lines()]
            self._say(
                f"{name} (process {service.process.pid}) {describe_exit(return_code)}; starting it again in "
                f"{backoff:g} s" + (f"; its last log lines:{''.join(lines)}" if lines else "")
            )
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
            replacement = await self._spawn(service.plan)
            replacement.restarts = service.restarts + 1
            self.running[name] = replacement
            self._changed(self.running)
            try:
                await self._await_serving(replacement, timeout_seconds=120)
            except CliError as error:
                if error.reason != "SERVICE_DIED":  # the next turn tells of a death
                    self._say(error.message)
            else:
                self._say(f"{name} is back (process {replacement.process.pid}): SERVING")

    async def _end(self, service: Running) -> None:
        process = service.process
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._say(f"{service.plan.name} did not stop within {STOP_SECONDS:g} s and is killed")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _last_words(service: Running) -> str:
    lines = service.last_log_lines()
    return f"; its last log lines: {' | '.join(lines)}" if lines else ""


def _died(service: Running) -> CliError:
    return_code = service.process.returncode
    return CliError(
        "SERVICE_DIED",
        f"{service.plan.name} {describe_exit(return_code if return_code is not None else 0)} while starting"
        f"{_last_words(service)}",
        hint=f"the whole log is {service.plan.log_path}",
        metadata={"service": service.plan.name, "exit_code": str(return_code)},
    )
