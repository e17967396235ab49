"""A mesh for the duration of one command: `kbmesh up` as a child, on a temporary home and free ports."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kbmesh_cli.errors import CliError
from kbmesh_cli.mesh import DEFAULT_MODEL, SERVICES, require_local_extra
from kbmesh_cli.output import messages
from kbmesh_cli.ports import free_port_base
from kbmesh_cli.state import MeshState, ServiceState

START_ATTEMPTS = 3
STOP_SECONDS = 60.0


@contextlib.contextmanager
def private_mesh(
    *,
    models_folder: Path,
    home: Path | None = None,
    model: str = DEFAULT_MODEL,
    services: Sequence[str] = SERVICES,
    show_progress: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[MeshState]:
    """Runs a mesh of these services until the block ends. Its data go with it unless a home is named. `environment` is
    set for its services besides that of this process. They speak plain text, on the loopback.

    Raises CliError where it cannot be started.
    """
    require_local_extra(*(f"kbmesh_{name}" for name in services))
    with contextlib.ExitStack() as stack:
        folder = home or Path(stack.enter_context(TemporaryDirectory(prefix="kbmesh-", ignore_cleanup_errors=True)))
        process, state = _start(
            folder, models_folder, model, services, show_progress=show_progress, environment=environment or {}
        )
        try:
            yield state
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            finally:
                if process.stdout:
                    process.stdout.close()


def _start(
    home: Path,
    models_folder: Path,
    model: str,
    services: Sequence[str],
    *,
    show_progress: bool,
    environment: Mapping[str, str],
) -> tuple[subprocess.Popen[str], MeshState]:
    for attempt in range(1, START_ATTEMPTS + 1):
        process = subprocess.Popen(  # noqa: S603 - this very command
            [
                *(sys.executable, "-m", "kbmesh_cli.child", str(os.getpid()), "kbmesh_cli"),
                *("--home", str(home), "up", "--json", "--models", str(models_folder), "--model", model),
                *("--port-base", str(free_port_base(len(SERVICES)))),
                *(argument for service in services for argument in ("--service", service)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if show_progress else subprocess.DEVNULL,
            text=True,
            env={**_without_tls(os.environ), **environment},
            # Ctrl-C goes to this command alone, which stops the mesh once it has cleaned up.
            start_new_session=True,
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
        except BaseException:
            process.kill()
            process.wait()
            raise
        answer = json.loads(line) if line else {}
        if answer.get("ready"):
            return process, MeshState(
                pid=answer["pid"],
                home=answer["home"],
                started_at=answer["started_at"],
                services={name: ServiceState(**service) for name, service in answer["services"].items()},
            )
        process.wait()
        if process.stdout:
            process.stdout.close()
        error = answer.get("error", {"reason": "SERVICE_DIED", "message": "the mesh did not start", "metadata": {}})
        if error["reason"] != "PORT_TAKEN" or attempt == START_ATTEMPTS:
            raise CliError(
                error["reason"], error["message"], hint=error.get("hint", ""), metadata=error.get("metadata")
            )
        messages().print("another program took a port meanwhile; trying others")
    raise AssertionError("the loop returns or raises")


def _without_tls(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says of TLS is meant for the mesh that stays, not for this one on the loopback."""
    return {name: value for name, value in environment.items() if not name.startswith("KBMESH_TLS_")}
