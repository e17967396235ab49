"""The services of a local mesh and their settings."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from kbmesh_client import TlsFiles

from kbmesh_cli.errors import CliError
from kbmesh_cli.ports import LOOPBACK, METRICS_OFFSET
from kbmesh_cli.processes import ServicePlan

SERVICES = ("retriever", "chunker", "embedder", "reranker", "edge")
"""In the order of their ports."""
DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PORT_BASE = 7400


def require_local_extra(*modules: str) -> None:
    """Raises CliError where the packages of the extra `local` are not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise CliError(
            "EXTRA_MISSING",
            f"this command runs services on this machine and needs {', '.join(missing)}",
            hint="`make setup` in a checkout of kbmesh installs all packages",
        )


def require_known(services: Sequence[str]) -> None:
    """Raises CliError for a service that there is not."""
    for name in services:
        if name not in SERVICES:
            raise CliError("USAGE", f"there is no service {name!r}", hint=f"there are {', '.join(SERVICES)}")


def plan_mesh(
    *,
    home: Path,
    models_folder: Path,
    model: str,
    port_base: int,
    services: Sequence[str] = SERVICES,
    tls: TlsFiles | None = None,
) -> list[ServicePlan]:
    """Gives the plan of each service that is asked for, in the order in which they start. With `tls` they all speak
    mutual TLS with the same certificate. Raises CliError where it is not whole."""
    protection = _protection(tls)
    endpoints = {name: f"{LOOPBACK}:{port_base + index}" for index, name in enumerate(SERVICES)}
    settings = {
        "edge": {"DATA_FOLDER": str(home / "data" / "edge")},
        "chunker": {"EMBEDDER_ADDRESS": endpoints["embedder"]},
        # On a laptop nobody waits for a model that cannot be loaded: the command says why, and ends.
        "embedder": {"MODELS": str(models_folder), "MODEL": model, "LOAD_RETRY_SECONDS": "0"},
        "reranker": {"MODELS": str(models_folder), "MODEL": model, "LOAD_RETRY_SECONDS": "0"},
        "retriever": {
            "CHUNKER_ADDRESS": endpoints["chunker"],
            "EMBEDDER_ADDRESS": endpoints["embedder"],
            "RERANKER_ADDRESS": endpoints["reranker"],
            "QDRANT_URL": f"{'https' if tls else 'http'}://{endpoints['edge']}",
            **{f"QDRANT_{name}": path for name, path in protection.items()},
        },
    }
    # The edge first, for its collections take the longest to open; the retriever last, for it needs all others.
    return [
        ServicePlan(
            name=name,
            module=f"kbmesh_{name}",
            port=port_base + SERVICES.index(name),
            metrics_port=port_base + SERVICES.index(name) + METRICS_OFFSET,
            environment={
                "KBMESH_HOME": str(home),
                "KBMESH_HOST": LOOPBACK,
                "KBMESH_PORT": str(port_base + SERVICES.index(name)),
                "KBMESH_METRICS_PORT": str(port_base + SERVICES.index(name) + METRICS_OFFSET),
                **{f"KBMESH_TLS_{field}": path for field, path in protection.items()},
                **{f"KBMESH_{field}": value for field, value in settings[name].items()},
            },
            log_path=home / "logs" / f"{name}.log",
            tls=tls,
        )
        for name in reversed(SERVICES)
        if name in services
    ]


def _protection(tls: TlsFiles | None) -> dict[str, str]:
    """The files that each service is given, by the ends of its settings' names."""
    if tls is None:
        return {}
    files = {"CA": tls.ca, "CERT": tls.cert, "KEY": tls.key}
    if None in files.values():
        raise CliError(
            "USAGE",
            "a mesh of one's own by TLS needs a certificate",
            hint=f"name all of --tls-ca, --tls-cert and --tls-key; the certificate must be for {LOOPBACK}",
        )
    return {name: str(path) for name, path in files.items()}
