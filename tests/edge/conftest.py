"""A running kbmesh-edge and its client, one process for a test module."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import edge_process
import pytest
from edge_points import DENSE, SPARSE
from qdrant_client import AsyncQdrantClient


@pytest.fixture(scope="module")
def edge_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with edge_process.edge_process(tmp_path_factory.mktemp("edge") / "data") as url:
        yield url


@pytest.fixture
async def client(edge_url: str) -> AsyncIterator[AsyncQdrantClient]:
    client = edge_process.client(edge_url)
    yield client
    await client.close()


@pytest.fixture
async def collection(client: AsyncQdrantClient) -> str:
    """An empty collection with the vectors of a knowledge base."""
    name = f"kb-{uuid4()}"
    await client.create_collection(name, vectors_config=DENSE, sparse_vectors_config=SPARSE)
    return name


@pytest.fixture
async def standing(client: AsyncQdrantClient) -> str:
    """A collection that stays the same: for calls that are refused."""
    if not await client.collection_exists("standing"):
        await client.create_collection("standing", vectors_config=DENSE, sparse_vectors_config=SPARSE)
    return "standing"
