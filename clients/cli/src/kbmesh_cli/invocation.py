"""What a command was called with, common to all commands."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import DEFAULT_ENDPOINT, KbmeshClient, TlsFiles
from kbmesh_client.connection import is_loopback

from kbmesh_cli.errors import CliError
from kbmesh_cli.state import MeshState, read_state

GLOBAL_OPTIONS = (
    *("--endpoint", "--tenant", "--home"),
    *("--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"),
)
GLOBAL_FLAGS = ("--plaintext",)
PUBLIC_AUTHORITIES = "system"
"""What stands for the public authorities in place of a file."""

_PRINCIPAL = re.compile(r"[!-+\--~]{1,256}")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and errors as JSON too.")]


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """The options that every command takes."""

    endpoint: str | None
    """host:port of the retriever, where it was named."""
    tenant: str
    """Whose knowledge bases are meant."""
    home: Path
    """Folder of the local mesh: models, data, logs and state."""
    home_named: bool
    """Whether the home was named, by option or environment."""
    tls: TlsFiles | None = None
    """How the mesh is called by TLS. None: plain text."""
    plaintext: bool = False
    """Whether plain text may go to another machine."""

    @property
    def models_folder(self) -> Path:
        """Folder of model folders: KBMESH_MODELS, or `models` in the home."""
        named = os.environ.get("KBMESH_MODELS")
        return Path(named).expanduser().absolute() if named else self.home / "models"

    def running_mesh(self) -> MeshState | None:
        """The mesh that `kbmesh up` runs on this home, unless an endpoint was named."""
        return None if self.endpoint else read_state(self.home)

    def resolved_endpoint(self) -> str:
        """The named endpoint, else that of the running mesh, else the default one."""
        mesh = self.running_mesh()
        return self.endpoint or (mesh.endpoint if mesh else None) or DEFAULT_ENDPOINT

    def client(self, *, principals: Sequence[str] = ()) -> KbmeshClient:
        """A client of the mesh. `principals` are who asks. Raises CliError for names that cannot be sent."""
        return self.client_at(self.resolved_endpoint(), principals=principals)

    def client_at(
        self,
        endpoint: str,
        *,
        chunker_endpoint: str | None = None,
        principals: Sequence[str] = (),
        private: bool = False,
    ) -> KbmeshClient:
        """A client of another mesh, as the same tenant. `private` is a mesh of this command alone, without TLS."""
        if wrong := [name for name in principals if not _PRINCIPAL.fullmatch(name)]:
            raise CliError("USAGE", f"{wrong[0]!r} is no principal: 1 to 256 visible ASCII characters without commas")
        if self.tls is None and not self.plaintext and not is_loopback(endpoint):
            raise CliError(
                "USAGE",
                f"plain text would go to {endpoint}, which is not this machine",
                hint="--tls-ca FILE speaks TLS; --plaintext lets it go where the network between is trusted",
            )
        return KbmeshClient(
            endpoint,
            chunker_endpoint=chunker_endpoint,
            tenant=self.tenant,
            principals=principals,
            timeout_seconds=30.0,
            tls=None if private else self.tls,
            plaintext=self.plaintext,
        )


def tls_of(*, ca: str | None, cert: str | None, key: str | None, server_name: str | None) -> TlsFiles | None:
    """What the options and the environment say of TLS; None where they say nothing. Raises CliError."""
    if not (ca or cert or key or server_name):
        return None
    if not ca:
        raise CliError(
            "USAGE",
            "of TLS everything is named but whom to trust",
            hint="--tls-ca FILE names the authorities; `--tls-ca system` means the public ones",
        )
    if bool(cert) != bool(key):
        raise CliError("USAGE", "--tls-cert and --tls-key belong together: one of them is missing")
    return TlsFiles(
        ca=None if ca == PUBLIC_AUTHORITIES else _absolute(ca),
        cert=_absolute(cert) if cert else None,
        key=_absolute(key) if key else None,
        server_name=server_name or "",
    )


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))


def invocation(context: typer.Context) -> Invocation:
    """The options that a command was called with."""
    found = context.find_object(Invocation)
    if found is None:
        raise LookupError("a command ran outside the kbmesh application")
    return found


def hoist_global_options(arguments: Sequence[str]) -> list[str]:
    """Moves the global options to the front and `--json` to the end, so that they may stand anywhere."""
    front: list[str] = []
    rest: list[str] = []
    literal: list[str] = []
    json_wanted = False
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if argument == "--":
            literal = [argument, *remaining]
            break
        if argument == "--json":
            json_wanted = True
            continue
        if argument in GLOBAL_FLAGS:
            front.append(argument)
        elif argument in GLOBAL_OPTIONS and remaining:
            front += [argument, remaining.pop(0)]
        elif argument.startswith(tuple(f"{option}=" for option in GLOBAL_OPTIONS)):
            front.append(argument)
        else:
            rest.append(argument)
    return [*front, *rest, *(["--json"] if json_wanted else []), *literal]


def wants_json(arguments: Sequence[str]) -> bool:
    """Tells whether `--json` is among the options."""
    options = list(arguments)
    if "--" in options:
        options = options[: options.index("--")]
    return "--json" in options
