"""A world to ask questions in: a real engine, a SQL catalog and an embedder service."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from edge_process import edge_process
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.pull import pull_model
from retrieval_world import World, embedder_service, world_of

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with edge_process(tmp_path_factory.mktemp("edge") / "data") as url:
        yield url


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    pull_model(MINILM, folder)
    return folder


@pytest.fixture
async def world(edge_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """With the embedder's weightless backend: texts that share words are near."""
    settings = EmbedderSettings(port=0, metrics_port=0, backend="fake", model="words")
    async with embedder_service(settings) as embedder, world_of(edge_url, tmp_path, embedder) as made:
        yield made


@pytest.fixture
async def minilm_world(edge_url: str, tmp_path: Path, models_folder: Path) -> AsyncIterator[World]:
    """With the real model."""
    settings = EmbedderSettings(port=0, metrics_port=0, models=models_folder, model=MINILM, device="cpu")
    async with embedder_service(settings) as embedder, world_of(edge_url, tmp_path, embedder) as made:
        yield made
