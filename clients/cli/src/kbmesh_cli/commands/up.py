"""`kbmesh up` and `kbmesh down`: a mesh on this machine."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from kbmesh_cli.errors import CliError
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.mesh import DEFAULT_MODEL, DEFAULT_PORT_BASE, SERVICES, plan_mesh, require_known, require_local_extra
from kbmesh_cli.models import ensure_model
from kbmesh_cli.output import messages, print_json, results
from kbmesh_cli.ports import require_free
from kbmesh_cli.processes import Running, ServicePlan, Supervisor
from kbmesh_cli.state import MeshState, ServiceState, home_lock, is_locked, read_state, write_state

START_SECONDS = 120.0


def up(
    context: typer.Context,
    port_base: Annotated[
        int, typer.Option(min=1, max=65_000, help="Port of the retriever; the other services take the next four.")
    ] = DEFAULT_PORT_BASE,
    model: Annotated[str, typer.Option(help="Embedding model; pulled where it is not there yet.")] = DEFAULT_MODEL,
    models: Annotated[Path | None, typer.Option(help="Folder of model folders. HOME/models by default.")] = None,
    service: Annotated[
        list[str] | None, typer.Option(help="Start only this service. May be given several times.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the mesh is ready; `kbmesh down` stops it.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Start a mesh on this machine and keep it running until Ctrl-C.

    Serves on the loopback only. A service that ends is started again.
    """
    options = invocation(context)
    services = tuple(service) if service else SERVICES
    require_known(services)
    require_local_extra(*(f"kbmesh_{name}" for name in services))
    if detach:
        _detach(options.home, json_output=json_output)
        return
    models_folder = models.expanduser().absolute() if models else options.models_folder
    with home_lock(options.home):
        plans = plan_mesh(
            home=options.home,
            models_folder=models_folder,
            model=model,
            port_base=port_base,
            services=services,
            tls=options.tls,
        )
        require_free(
            (purpose, port)
            for plan in plans
            for purpose, port in ((plan.name, plan.port), (f"{plan.name} metrics", plan.metrics_port))
        )
        (options.home / "data").mkdir(parents=True, exist_ok=True)
        if {"embedder", "reranker"} & set(services):
            ensure_model(model, models_folder)
        asyncio.run(_LocalMesh(home=options.home, plans=plans, json_output=json_output).run())


@dataclass(frozen=True, kw_only=True)
class _LocalMesh:
    home: Path
    plans: Sequence[ServicePlan]
    json_output: bool

    async def run(self) -> None:
        console = messages()
        stopping = asyncio.Event()
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        loop = asyncio.get_running_loop()

        def state_of(running: Mapping[str, Running]) -> MeshState:
            return MeshState(
                pid=os.getpid(),
                home=str(self.home),
                started_at=started_at,
                services={
                    name: ServiceState(
                        endpoint=running[name].plan.endpoint,
                        metrics=f"127.0.0.1:{running[name].plan.metrics_port}",
                        pid=running[name].process.pid,
                        log=str(running[name].plan.log_path),
                        restarts=running[name].restarts,
                    )
                    for name in SERVICES
                    if name in running
                },
            )

        supervisor = Supervisor(
            self.plans,
            say=lambda line: console.print(escape(line), soft_wrap=True),
            changed=lambda running: write_state(state_of(running)),
        )

        def ask_to_stop() -> None:
            if stopping.is_set():  # asked twice: no more patience
                supervisor.kill()
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, ask_to_stop)
        try:
            console.print(f"starting {', '.join(plan.name for plan in self.plans)} …")
            began = time.monotonic()
            if await _unless(stopping, supervisor.start(timeout_seconds=START_SECONDS)):
                state = state_of(supervisor.running)
                write_state(state)
                self._show_ready(state, seconds=time.monotonic() - began)
                await _unless(stopping, supervisor.watch())
        finally:
            if stopping.is_set():
                console.print("stopping …")
            await supervisor.stop()
        console.print("stopped")

    def _show_ready(self, state: MeshState, *, seconds: float) -> None:
        if self.json_output:
            print_json({"ready": True, "seconds": round(seconds, 2), **state.to_json()})
            return
        table = Table("service", "endpoint", "health", "metrics", "process", title="kbmesh", title_justify="left")
        for name, service in state.services.items():
            table.add_row(name, service.endpoint, "[green]SERVING[/]", service.metrics, str(service.pid))
        console = results()
        console.print(table)
        console.print(
            f"started in {seconds:.1f} s, logs in {self.home / 'logs'}; Ctrl-C stops the mesh",
            soft_wrap=True,
            markup=False,
        )
        console.print("[bold green]ready[/]")
        sys.stdout.flush()


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Runs the work until it ends or somebody asks to stop. True where it ended by itself."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            try:
                task.result()
            except BaseExceptionGroup as group:
                raise _first_error(group) from None
            return True
        return False
    finally:
        for unfinished in (task, waiter):
            unfinished.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    expected = group.subgroup(CliError)
    error: BaseException = expected or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _detach(home: Path, *, json_output: bool) -> None:
    """Starts the same command in a session of its own and waits until it is ready."""
    with home_lock(home):  # says so where a mesh runs already
        home.joinpath("logs").mkdir(exist_ok=True)
    log_path = home / "logs" / "up.log"
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--detach", "--json")]
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - this very command
            [sys.executable, "-m", "kbmesh_cli", *arguments, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while (state := read_state(home)) is None or state.pid != process.pid:
        if process.poll() is not None:
            raise CliError("SERVICE_DIED", "the mesh did not start", hint=f"the reason is at the end of {log_path}")
        time.sleep(0.1)
    if json_output:
        print_json({"ready": True, **state.to_json()})
    else:
        results().print(f"ready at {state.endpoint}, process {state.pid}; `kbmesh down` stops it", markup=False)


def down(context: typer.Context, json_output: JsonOption = False) -> None:
    """Stop the mesh that runs on this home."""
    options = invocation(context)
    state = read_state(options.home)
    if state is None:
        raise CliError("MESH_NOT_RUNNING", f"no mesh runs on {options.home}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    end = time.monotonic() + 60
    while is_locked(options.home):
        if time.monotonic() > end:
            raise CliError("MESH_STILL_RUNNING", f"process {state.pid} did not stop within 60 s")
        time.sleep(0.05)
    if json_output:
        print_json({"stopped": True, "pid": state.pid})
    else:
        results().print("stopped")
