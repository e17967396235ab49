"""`kbmesh doctor`: what stands in the way."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from kbmesh_client import TlsFiles, TlsFilesError
from rich.markup import escape
from rich.table import Column, Table

from kbmesh_cli.health import Health, check_health
from kbmesh_cli.invocation import Invocation, JsonOption, invocation
from kbmesh_cli.mesh import DEFAULT_MODEL, SERVICES
from kbmesh_cli.output import counted, print_json, results

PACKAGES = (
    *("kbmesh-cli", "kbmesh-client", "kbmesh-protos", "kbmesh-rpc", "kbmesh-onnx"),
    *(f"kbmesh-{name}" for name in SERVICES),
)
"""All packages of kbmesh. The first three are enough for a mesh elsewhere."""
MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2 * 1024**3
"""A model folder is some 200 MB; collections and logs need the rest."""


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found."""

    check: str
    verdict: Verdict
    detail: str
    hint: str = ""


def doctor(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Model whose folder is checked.")] = DEFAULT_MODEL,
    json_output: JsonOption = False,
) -> None:
    """Check this machine and the mesh. Exit code 1 where something is wrong."""
    options = invocation(context)
    findings = [
        python_version(sys.version_info[:3]),
        home_writable(options.home),
        disk_space(options.home),
        *packages(),
        model_folder(options.models_folder / model),
        *services(options),
    ]
    wrong = any(finding.verdict is Verdict.ERROR for finding in findings)
    if json_output:
        print_json({"ok": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        colours = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.ERROR: "red"}
        table = Table("check", "verdict", Column("detail", overflow="fold"), "hint")
        for finding in findings:
            table.add_row(
                finding.check,
                f"[{colours[finding.verdict]}]{finding.verdict.value}[/]",
                escape(finding.detail),
                escape(finding.hint),
            )
        results().print(table)
    if wrong:
        raise typer.Exit(1)


def python_version(version: tuple[int, int, int]) -> Finding:
    """Whether this Python is new enough."""
    return Finding(
        check="python",
        verdict=Verdict.OK if version >= MIN_PYTHON else Verdict.ERROR,
        detail=".".join(map(str, version)),
        hint="" if version >= MIN_PYTHON else "kbmesh needs Python 3.11 or newer",
    )


def home_writable(home: Path) -> Finding:
    """Whether the home can be written to, or be made."""
    folder = _nearest(home)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".kbmesh-doctor-"):
            return Finding(check="home", verdict=Verdict.OK, detail=str(home))
    except OSError as error:
        return Finding(
            check="home",
            verdict=Verdict.ERROR,
            detail=f"{home} cannot be written to: {error.strerror}",
            hint="choose another with --home or KBMESH_HOME",
        )


def disk_space(home: Path) -> Finding:
    """Whether there is room for models and data."""
    free = shutil.disk_usage(_nearest(home)).free
    return Finding(
        check="disk",
        verdict=Verdict.OK if free >= MIN_FREE_BYTES else Verdict.WARNING,
        detail=f"{free / 1024**3:.1f} GiB free",
        hint="" if free >= MIN_FREE_BYTES else "models and data need some 2 GiB",
    )


def packages() -> Iterator[Finding]:
    """Which kbmesh packages there are, and whether they belong together."""
    versions: dict[str, str] = {}
    missing = []
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    alike = len(set(versions.values())) == 1
    yield Finding(
        check="versions",
        verdict=Verdict.OK if alike else Verdict.ERROR,
        detail=(
            f"{counted(len(versions), 'package')}, {versions['kbmesh-cli']}"
            if alike
            else ", ".join(f"{name} {version}" for name, version in versions.items())
        ),
        hint="" if alike else "install all kbmesh packages in one version",
    )
    if missing:
        yield Finding(
            check="packages",
            verdict=Verdict.WARNING,
            detail=f"not installed: {', '.join(missing)}",
            hint="`kbmesh up` needs them; `make setup` installs them in the checkout",
        )


def model_folder(folder: Path) -> Finding:
    """Whether the model is there and complete."""
    if importlib.util.find_spec("kbmesh_onnx") is None:
        return Finding(check="model", verdict=Verdict.OK, detail="not needed without the local services")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.folder import load_card

    if not folder.is_dir():
        return Finding(
            check="model",
            verdict=Verdict.WARNING,
            detail=f"{folder} is not there yet",
            hint=f"`kbmesh up` or `kbmesh models pull {folder.name}` fetches it",
        )
    try:
        card = load_card(folder)
    except OnnxError as error:
        return Finding(
            check="model",
            verdict=Verdict.ERROR,
            detail=str(error),
            hint=f"`kbmesh models pull {folder.name}` makes it anew",
        )
    return Finding(
        check="model", verdict=Verdict.OK, detail=f"{card.name}, {card.dimension} numbers, {card.fingerprint[:12]}"
    )


def services(options: Invocation) -> Iterator[Finding]:
    """Whether each service serves."""
    mesh = options.running_mesh()
    if mesh is None:
        endpoint = options.resolved_endpoint()
        asked = "with this certificate" if options.tls else "in plain text (--tls-ca speaks TLS)"
        hint = f"is the address right, is the mesh running there, and does it let you in {asked}?"
        finding = _service("retriever", endpoint, hint, options.tls)
        if finding.verdict is not Verdict.OK and not options.endpoint:
            finding = Finding(
                check="mesh",
                verdict=Verdict.ERROR,
                detail=f"not running: no mesh on this home, and nobody serves at {endpoint}",
                hint="`kbmesh up` starts one",
            )
        yield finding
        return
    for name, service in mesh.services.items():
        finding = _service(name, service.endpoint, f"its log is {service.log}", options.tls)
        times = "once" if service.restarts == 1 else f"{service.restarts} times"
        restarts = f", restarted {times}" if service.restarts else ""
        yield Finding(check=name, verdict=finding.verdict, detail=finding.detail + restarts, hint=finding.hint)


def _service(name: str, endpoint: str, hint: str, tls: TlsFiles | None) -> Finding:
    try:
        health = check_health(endpoint, tls=tls)
    except TlsFilesError as error:
        return Finding(check=name, verdict=Verdict.ERROR, detail=f"{endpoint} is not asked: {error}")
    serving = health is Health.SERVING
    return Finding(
        check=name,
        verdict=Verdict.OK if serving else Verdict.ERROR,
        detail=f"{endpoint} is {health.value}",
        hint="" if serving else hint,
    )


def _nearest(folder: Path) -> Path:
    """The folder, or the closest one above it that there is."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder if os.path.isdir(folder) else Path.cwd()
