"""A running embedder, with weights and without."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from embedder.calls import Embedder
from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.pull import pull_model
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds all-MiniLM-L6-v2."""
    folder = tmp_path_factory.mktemp("models")
    pull_model(MINILM, folder)
    return folder


@pytest.fixture
async def embedder(models_folder: Path) -> AsyncIterator[Embedder]:
    """An embedder with the real model."""
    settings = EmbedderSettings(port=0, metrics_port=0, models=models_folder, device="cpu")
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        yield Embedder(channel)


@pytest.fixture
async def fake_embedder() -> AsyncIterator[Embedder]:
    """An embedder without weights."""
    settings = EmbedderSettings(port=0, metrics_port=0, backend="fake", model="first,second")
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        yield Embedder(channel)
