"""Starting, stopping and crashing: what was acknowledged is there, and nothing half made is."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import edge_process
import grpc
import pytest
import qdrant_edge
from edge_points import AXES, DENSE, SPARSE, field, numbered, point
from kbmesh_edge.config import CollectionConfig, DenseVector, SparseVector
from kbmesh_edge.engine import Collection, Engine
from kbmesh_edge.errors import CollectionNotFound, EngineFailed, FolderInUse, StillOpening
from kbmesh_edge.folder import DataFolder
from qdrant_client import models

CONFIG = CollectionConfig(
    dense={"dense": DenseVector(size=4, distance="Cosine")}, sparse={"bm25": SparseVector(idf=True)}
)


@contextmanager
def killed_at_the_end(data: Path) -> Iterator[str]:
    """A served folder whose process gets no chance to flush or close anything."""
    port = edge_process.free_port()
    process = edge_process.start_edge(data, port)
    try:
        edge_process.wait_until_serving(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with killed_at_the_end(data) as url:
        client = edge_process.client(url)
        await client.create_collection("kb-1", vectors_config=DENSE, sparse_vectors_config=SPARSE)
        await client.create_payload_index("kb-1", "half", models.PayloadSchemaType.KEYWORD)
        for start in range(0, 1_000, 100):
            points = [
                point(number, AXES[number % 4], [number % 7, 100 + number], {"half": "low" if number < 500 else "high"})
                for number in range(start, start + 100)
            ]
            await client.upsert("kb-1", points, wait=True)
        low = models.Filter(must=[field("half", match=models.MatchValue(value="low"))])
        await client.delete("kb-1", models.FilterSelector(filter=low), wait=True)
        await client.create_collection("kb-2", vectors_config=DENSE)
        await client.create_collection("kb-3", vectors_config=DENSE)
        await client.delete_collection("kb-3")
        await client.close()

    with edge_process.edge_process(data) as url:
        client = edge_process.client(url)
        assert {described.name for described in (await client.get_collections()).collections} == {"kb-1", "kb-2"}
        records, rest = await client.scroll("kb-1", limit=2_000)
        assert rest is None
        assert [record.id for record in records] == [numbered(number) for number in range(500, 1_000)]
        assert set((await client.get_collection("kb-1")).payload_schema) == {"half"}
        word = models.SparseVector(indices=[100 + 777], values=[1.0])
        assert [hit.id for hit in (await client.query_points("kb-1", word, using="bm25")).points] == [numbered(777)]
        await client.close()


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with edge_process.edge_process(data) as url:
        second = edge_process.start_edge(data, edge_process.free_port())
        assert second.wait(timeout=edge_process.START_SECONDS) == 1
        assert "is in use by another kbmesh-edge process" in (tmp_path / "data.log").read_text()
        with grpc.insecure_channel(url.removeprefix("http://")) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)


def test_a_folder_is_free_again_once_it_is_released(tmp_path: Path) -> None:
    first = DataFolder.claim(tmp_path)
    with pytest.raises(FolderInUse):
        DataFolder.claim(tmp_path)
    first.release()
    DataFolder.claim(tmp_path).release()


async def test_what_a_crash_left_half_made_is_gone_at_the_next_start(tmp_path: Path) -> None:
    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    await engine.create("whole", CONFIG)
    await engine.close()
    half_made = tmp_path / "unfinished" / uuid4().hex
    shutil.copytree(tmp_path / "collections" / "whole", half_made)
    (half_made / "collection.json").unlink()

    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    assert await engine.names() == ["whole"]
    assert list((tmp_path / "unfinished").iterdir()) == []
    await engine.create("other", CONFIG)
    await engine.close()


async def test_a_broken_collection_does_not_keep_the_others_from_being_served(tmp_path: Path) -> None:
    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    for name in ("broken-config", "broken-shard", "whole"):
        await engine.create(name, CONFIG)
    await engine.close()
    (tmp_path / "collections" / "broken-config" / "collection.json").write_text('{"format": 1')
    shutil.rmtree(tmp_path / "collections" / "broken-shard" / "shard")

    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    assert await engine.names() == ["broken-config", "broken-shard", "whole"]
    assert await engine.run("whole", _count) == 0
    for name in ("broken-config", "broken-shard"):
        with pytest.raises(EngineFailed):
            await engine.run(name, _count)
        assert await engine.delete(name)
    assert await engine.names() == ["whole"]
    await engine.close()


async def test_a_panic_of_the_engine_does_not_cost_the_collection(tmp_path: Path) -> None:
    """The engine stops on a sparse vector with fewer values than indices, and would stop again at every start, because
    the write is in its log. The servicer lets no such vector through; here it gets there."""
    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    await engine.create("kb", CONFIG)

    def write(id_: int, indices: list[int], values: list[float]) -> qdrant_edge.UpdateOperation:
        vector = {"dense": AXES[0], "bm25": qdrant_edge.SparseVector(indices, values)}
        return qdrant_edge.UpdateOperation.upsert_points([qdrant_edge.Point(id=id_, vector=vector, payload={})])

    await engine.run("kb", lambda collection: collection.update(write(1, [1, 2], [1.0, 1.0])))
    with pytest.raises(EngineFailed):
        await engine.run("kb", lambda collection: collection.update(write(2, [7, 8], [1.0])))
    await engine.run("kb", lambda collection: collection.update(write(3, [1, 2], [1.0, 1.0])))
    assert {1, 3} <= await engine.run("kb", _ids)
    await engine.close()

    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    assert {1, 3} <= await engine.run("kb", _ids)
    await engine.close()


async def test_deleted_points_are_compacted_at_the_next_start(tmp_path: Path) -> None:
    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    await engine.create("kb", CONFIG)
    points = [
        qdrant_edge.Point(id=number, vector={"dense": AXES[number % 4]}, payload={"text": "x" * 2_000})
        for number in range(4_000)
    ]
    await engine.run("kb", lambda collection: collection.update(qdrant_edge.UpdateOperation.upsert_points(points)))
    delete = qdrant_edge.UpdateOperation.delete_points(list(range(3_000)))
    await engine.run("kb", lambda collection: collection.update(delete))
    await engine.close()
    stored = tmp_path / "collections" / "kb" / "shard" / "segments"
    before = {segment.name for segment in stored.iterdir()}

    engine = Engine(DataFolder.claim(tmp_path))
    await engine.open()
    assert await engine.run("kb", _count) == 1_000
    assert before.isdisjoint(segment.name for segment in stored.iterdir())
    await engine.close()


async def test_writes_are_flushed_soon_without_another_call(tmp_path: Path) -> None:
    """A power cut costs what was not flushed."""
    engine = Engine(DataFolder.claim(tmp_path), flush_after_seconds=0.05)
    await engine.open()
    await engine.create("kb", CONFIG)
    written: list[Collection] = []

    def write(collection: Collection) -> None:
        written.append(collection)
        point = qdrant_edge.Point(id=1, vector={"dense": AXES[0]}, payload={})
        collection.update(qdrant_edge.UpdateOperation.upsert_points([point]))

    await engine.run("kb", write)
    async with asyncio.timeout(20):
        while written[0].unflushed_points:  # noqa: ASYNC110 - the engine's thread tells nobody when it has flushed
            await asyncio.sleep(0.01)
    await engine.close()


async def test_calls_before_the_collections_are_open_are_told_to_wait(tmp_path: Path) -> None:
    """To say that a collection does not exist would be to say that a knowledge base is empty."""
    engine = Engine(DataFolder.claim(tmp_path))
    with pytest.raises(StillOpening):
        await engine.run("kb", _count)
    with pytest.raises(StillOpening):
        await engine.names()
    await engine.open()
    with pytest.raises(CollectionNotFound):
        await engine.run("kb", _count)
    await engine.close()


def test_settings_are_explained() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "kbmesh_edge", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "KBMESH_DATA_FOLDER" in shown.stdout


def _count(collection: Collection) -> int:
    return collection.shard.count(qdrant_edge.CountRequest())


def _ids(collection: Collection) -> set[object]:
    records, _ = collection.shard.scroll(qdrant_edge.ScrollRequest(limit=100))
    return {record.id for record in records}
