"""What a running `kbmesh up` writes down, so that the other commands find it."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kbmesh_cli.errors import CliError


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """A service of a running mesh."""

    endpoint: str
    """host:port of its gRPC server."""
    metrics: str
    """host:port of its metrics."""
    pid: int
    """Its process."""
    log: str
    """Path of its log."""
    restarts: int = 0
    """How often it was started again."""


@dataclass(frozen=True, kw_only=True)
class MeshState:
    """A running mesh."""

    pid: int
    """The process of `kbmesh up`."""
    home: str
    """Its home folder."""
    started_at: str
    """When it was started, ISO 8601 in UTC."""
    services: Mapping[str, ServiceState]
    """Its services by name."""

    @property
    def endpoint(self) -> str | None:
        """host:port of the retriever."""
        return self.endpoint_of("retriever")

    def endpoint_of(self, service: str) -> str | None:
        """host:port of a service. None where this mesh has none."""
        state = self.services.get(service)
        return state.endpoint if state else None

    def to_json(self) -> dict[str, object]:
        """The object that is written down and printed."""
        return {"endpoint": self.endpoint, **asdict(self)}


def state_path(home: Path) -> Path:
    """Path of the state file."""
    return home / "run" / "mesh.json"


def write_state(state: MeshState) -> None:
    """Writes it at once or not at all: a reader sees the old state or the new one."""
    path = state_path(Path(state.home))
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(state.to_json(), indent=2) + "\n")
    os.replace(partial, path)


def read_state(home: Path) -> MeshState | None:
    """Gives the mesh that runs on this home. None where none does, whatever a killed one left behind."""
    if not is_locked(home):
        return None
    try:
        value = json.loads(state_path(home).read_text())
        return MeshState(
            pid=value["pid"],
            home=value["home"],
            started_at=value["started_at"],
            services={name: ServiceState(**service) for name, service in value["services"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is just being started, or was written by another version


def is_locked(home: Path) -> bool:
    """Tells whether a `kbmesh up` holds this home."""
    try:
        with (home / "run" / "mesh.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def home_lock(home: Path) -> Iterator[None]:
    """Holds the home for one mesh. The kernel lets go when the process ends, however it ends.

    Raises CliError where another mesh holds it, or where the home cannot be written to.
    """
    folder = home / "run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "mesh.lock").open("ab")
    except OSError as error:
        raise CliError(
            "HOME_NOT_WRITABLE", f"{folder} cannot be written to: {error.strerror}", hint="choose another with --home"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            state = read_state(home)
            where = f" (process {state.pid}, {state.endpoint})" if state else ""
            raise CliError(
                "MESH_ALREADY_RUNNING",
                f"a mesh already runs on {home}{where}",
                hint="`kbmesh down` stops it; --home and --port-base start a second one beside it",
            ) from error
        try:
            yield
        finally:
            state_path(home).unlink(missing_ok=True)
