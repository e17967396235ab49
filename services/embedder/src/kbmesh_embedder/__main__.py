"""`python -m kbmesh_embedder` serves until SIGTERM."""

from kbmesh_rpc.server import run
from kbmesh_rpc.settings import load_settings

from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings


def main() -> None:
    """Reads the settings and serves."""
    run(make_application, load_settings(EmbedderSettings, service="embedder"))


if __name__ == "__main__":
    main()
