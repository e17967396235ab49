"""`python -m kbmesh_reranker` serves until SIGTERM."""

from kbmesh_rpc.server import run
from kbmesh_rpc.settings import load_settings

from kbmesh_reranker.application import make_application
from kbmesh_reranker.settings import RerankerSettings


def main() -> None:
    """Reads the settings and serves."""
    run(make_application, load_settings(RerankerSettings, service="reranker"))


if __name__ == "__main__":
    main()
