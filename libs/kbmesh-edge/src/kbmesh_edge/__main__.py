"""`python -m kbmesh_edge`: serve a data folder."""

import sys

from kbmesh_rpc.server import run
from kbmesh_rpc.settings import load_settings

from kbmesh_edge.application import EdgeApplication
from kbmesh_edge.errors import FolderInUse
from kbmesh_edge.folder import DataFolder
from kbmesh_edge.settings import EdgeSettings


def main() -> None:
    settings = load_settings(EdgeSettings, service="edge")
    try:
        folder = DataFolder.claim(settings.collections_folder)
    except (FolderInUse, OSError) as error:
        sys.exit(f"kbmesh-edge: {error}")

    async def make_application(_: EdgeSettings) -> EdgeApplication:
        return EdgeApplication(folder)

    run(make_application, settings)


if __name__ == "__main__":
    main()
