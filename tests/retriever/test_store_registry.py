"""Which store is opened, by its name in the settings."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from importlib.util import find_spec
from uuid import uuid4

import pytest
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores import registry
from kbmesh_retriever.stores.pinecone import PineconeStore
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_retriever.stores.registry import open_store, register_store
from kbmesh_rpc.errors import FeatureUnsupported
from memory_store import MemoryStore
from pydantic import SecretStr


async def test_qdrant_is_the_default() -> None:
    store = open_store(RetrieverSettings())
    assert isinstance(store, QdrantStore)
    await store.close()


@pytest.mark.skipif(find_spec("pinecone") is None, reason="kbmesh-retriever[pinecone] is not installed")
async def test_pinecone_is_opened_with_a_key_and_refused_without() -> None:
    store = open_store(RetrieverSettings(vector_store="pinecone", pinecone_api_key=SecretStr("pc-key")))
    assert isinstance(store, PineconeStore)
    await store.close()
    with pytest.raises(ValueError):
        open_store(RetrieverSettings(vector_store="pinecone"))


def test_pinecone_without_its_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pinecone", None)
    with pytest.raises(FeatureUnsupported):
        open_store(RetrieverSettings(vector_store="pinecone", pinecone_api_key=SecretStr("pc-key")))


def test_a_store_of_ones_own_is_opened_by_its_name() -> None:
    name, made = f"memory-{uuid4()}", MemoryStore()
    with pytest.raises(ValueError):
        open_store(RetrieverSettings(vector_store=name))
    register_store(name, lambda settings: made)
    assert open_store(RetrieverSettings(vector_store=name)) is made


@pytest.mark.parametrize("name", ["qdrant", "pinecone", ""])
def test_a_name_that_is_taken_or_empty_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        register_store(name, lambda settings: MemoryStore())


def test_a_package_brings_a_store_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = EntryPoints([EntryPoint(name="mine", value="memory_store:of_settings", group=registry.ENTRY_POINTS)])
    monkeypatch.setattr(registry, "entry_points", lambda group: brought.select(group=group))
    store = open_store(RetrieverSettings(vector_store="mine"))
    assert isinstance(store, MemoryStore)
