"""Ports of a local mesh."""

import socket
from collections.abc import Iterable

from kbmesh_cli.errors import CliError

LOOPBACK = "127.0.0.1"
METRICS_OFFSET = 100
"""A service's metrics are on its port plus this."""


def is_free(port: int) -> bool:
    """Tells whether nobody listens on the port of this machine's loopback."""
    with socket.socket() as listener:
        # Connections of a server that has just ended do not count; a listener does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def require_free(ports: Iterable[tuple[str, int]]) -> None:
    """Raises CliError that names each port that is taken, given (what it is for, port)."""
    taken = [(purpose, port) for purpose, port in ports if not is_free(port)]
    if taken:
        raise CliError(
            "PORT_TAKEN",
            "; ".join(f"port {port} ({purpose}) is taken" for purpose, port in taken),
            hint="stop what listens there, or choose others with --port-base",
            metadata={"ports": ",".join(str(port) for _, port in taken)},
        )


def free_port_base(count: int) -> int:
    """Finds `count` ports in a row that are free, along with their metrics ports.

    Looks below the range that the kernel gives to outgoing connections. Raises CliError where there are none.
    """
    # The kernel's own choice is a seed that differs from process to process.
    with socket.socket() as chooser:
        chooser.bind((LOOPBACK, 0))
        seed = int(chooser.getsockname()[1])
    for attempt in range(200):
        base = 20_000 + (seed * 7 + attempt * 211) % 12_000
        if all(is_free(base + offset) and is_free(base + offset + METRICS_OFFSET) for offset in range(count)):
            return base
    raise CliError("PORT_TAKEN", "no row of free ports was found", hint="choose one with --port-base")
