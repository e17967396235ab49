"""kbmesh-edge as a gRPC process."""

from collections.abc import Sequence

from kbmesh_rpc.server import Registration

from kbmesh_edge.engine import Engine
from kbmesh_edge.folder import DataFolder
from kbmesh_edge.servicer import registrations


class EdgeApplication:
    """Serves the collections of one folder. SERVING once all are open and compacted."""

    def __init__(self, folder: DataFolder) -> None:
        self._engine = Engine(folder)
        self.registrations: Sequence[Registration] = registrations(self._engine)

    async def warm_up(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()
