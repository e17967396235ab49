"""Settings of kbmesh-edge."""

from pathlib import Path

from kbmesh_rpc.settings import ServerSettings


class EdgeSettings(ServerSettings):
    """Settings of kbmesh-edge."""

    port: int = 7404
    """Port that Qdrant's gRPC API is served on."""

    metrics_port: int = 7504
    """Port of the Prometheus metrics; 0 serves none."""

    home: Path = Path("~/.kbmesh")
    """Folder of this machine's kbmesh. Used for the collections where `data_folder` is unset."""

    data_folder: Path | None = None
    """Folder of the collections. One process serves a folder; it is made where there is none. Unset: HOME/data/edge."""

    @property
    def collections_folder(self) -> Path:
        """`data_folder`, or the default's."""
        return (self.data_folder or self.home / "data" / "edge").expanduser()
