"""A world to ask questions in: a real engine, a SQL catalog and an embedder service."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.pull import pull_model
from kbmesh_retriever.catalog.sql import SqlCatalog
from retrieval_world import World, embedder_service, world_of

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    pull_model(MINILM, folder)
    return folder


@pytest.fixture(scope="session")
def migrated_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty catalog with its tables: copying it is faster than making them for each test."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"

    async def migrate() -> None:
        catalog = SqlCatalog(f"sqlite:///{path}")
        await catalog.open()
        await catalog.close()

    asyncio.run(migrate())
    return path


@pytest.fixture
def catalog_url(migrated_catalog: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated_catalog, tmp_path / 'catalog.db')}"


@pytest.fixture
async def world(edge_url: str, catalog_url: str) -> AsyncIterator[World]:
    """With the embedder's weightless backend: texts that share words are near."""
    settings = EmbedderSettings(port=0, metrics_port=0, backend="fake", model="words")
    async with embedder_service(settings) as embedder, world_of(edge_url, catalog_url, embedder) as made:
        yield made


@pytest.fixture
async def minilm_world(edge_url: str, catalog_url: str, models_folder: Path) -> AsyncIterator[World]:
    """With the real model."""
    settings = EmbedderSettings(port=0, metrics_port=0, models=models_folder, model=MINILM, device="cpu")
    async with embedder_service(settings) as embedder, world_of(edge_url, catalog_url, embedder) as made:
        yield made
