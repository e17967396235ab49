"""Starts the retriever: `python -m kbmesh_retriever`."""

from kbmesh_rpc.server import run
from kbmesh_rpc.settings import load_settings

from kbmesh_retriever.application import make_application
from kbmesh_retriever.settings import RetrieverSettings

if __name__ == "__main__":
    run(make_application, load_settings(RetrieverSettings, service="retriever"))
