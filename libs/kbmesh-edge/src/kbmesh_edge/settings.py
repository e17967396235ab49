"""Settings of kbmesh-edge."""

from pathlib import Path

from kbmesh_rpc.settings import ServerSettings


class EdgeSettings(ServerSettings):
    """Settings of kbmesh-edge."""

    port: int = 7404
    """Port that Qdrant's gRPC API is served on."""

    metrics_port: int = 7504
    """Port of the Prometheus metrics; 0 serves none."""

    data_folder: Path = Path("~/.kbmesh/edge")
    """Folder of the collections. One process serves a folder; it is made where there is none."""
