"""`python -m kbmesh_chunker` serves the chunker."""

from kbmesh_rpc.server import run
from kbmesh_rpc.settings import load_settings

from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.settings import ChunkerSettings


def main() -> None:
    """Reads the settings and serves until SIGTERM."""
    run(ChunkerApplication.make, load_settings(ChunkerSettings, service="chunker"))


if __name__ == "__main__":
    main()
