"""Knowledge bases whose vectors are compared in other ways than by their cosine."""

from collections.abc import AsyncIterator

import grpc
import pytest
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh_retriever.stores.port import Distance
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.caller import Caller, text
from retriever.workshop import Workshop

VECTOR_ONLY = retriever_pb2.RETRIEVAL_STRATEGY_VECTOR_ONLY
DISTANCES = {
    pb.DISTANCE_COSINE: Distance.COSINE,
    pb.DISTANCE_EUCLIDEAN: Distance.EUCLIDEAN,
    pb.DISTANCE_DOT: Distance.DOT,
}


@pytest.fixture
async def caller(retriever_address: str) -> AsyncIterator[Caller]:
    async with open_channel(retriever_address) as channel:
        yield Caller(channel)


async def collection_of(workshop: Workshop, name: str) -> str:
    return str((await workshop.catalog.get_knowledge_base("default", name)).collection)


@pytest.mark.parametrize("placement", [pb.PLACEMENT_DEDICATED, pb.PLACEMENT_SHARED])
async def test_all_distances_find_the_same_by_scores_of_one_meaning(
    caller: Caller, workshop: Workshop, placement: pb.Placement.ValueType
) -> None:
    """Vectors of unit length: nearest by one is nearest by all, and thresholds mean the same."""
    texts = ["turbines and blades", "turbines", "blades of grass", "an unrelated remark"]
    answers = []
    for distance, stored in DISTANCES.items():
        name = f"kb-{stored}"
        made = await caller.create(name, distance=distance, placement=placement)
        assert made.distance == (await caller.show(name)).distance == distance
        await caller.send(name, *(text(each, each) for each in texts))
        info = await workshop.store.info(await collection_of(workshop, name))
        assert info.distance is stored
        answer = await caller.retrieve("turbines blades", name, strategy=VECTOR_ONLY)
        answers.append([(result.text, result.scores.vector) for result in answer.results])
    assert answers[0]
    for answer in answers[1:]:
        assert [found for found, _ in answer] == [found for found, _ in answers[0]]
        assert [score for _, score in answer] == pytest.approx([score for _, score in answers[0]], abs=1e-4)


async def test_the_cosine_is_what_nobody_chose(caller: Caller) -> None:
    assert (await caller.create("notes")).distance == pb.DISTANCE_COSINE


async def test_a_collection_is_shared_by_those_of_one_distance(caller: Caller, workshop: Workshop) -> None:
    for name, distance in (("a", pb.DISTANCE_COSINE), ("b", pb.DISTANCE_DOT), ("c", pb.DISTANCE_DOT)):
        await caller.create(name, distance=distance, placement=pb.PLACEMENT_SHARED)
        await caller.send(name, text(name, f"turbines of {name}"))
    a, b, c = [await collection_of(workshop, name) for name in "abc"]
    assert b == c != a
    assert await caller.sees("turbines", "a", "b", "c") == {"a", "b", "c"}
    assert await caller.sees("turbines", "b") == {"b"}


async def test_it_is_fixed_and_a_rebuild_keeps_it(caller: Caller, workshop: Workshop) -> None:
    await caller.create("notes", distance=pb.DISTANCE_EUCLIDEAN)
    await caller.send("notes", text("a", "turbines"))
    for rebuild in (False, True):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.update("notes", distance=pb.DISTANCE_DOT, rebuild=rebuild)
        refused = from_rpc_error(caught.value, dependency="retriever")
        assert [violation.field for violation in refused.field_violations] == ["knowledge_base.distance"]
    await caller.update("notes", rebuild=True, placement=pb.PLACEMENT_SHARED)
    await caller.send("notes", text("a", "turbines"), into_rebuild=True)
    await caller.finish_rebuild("notes")
    assert (await caller.show("notes")).distance == pb.DISTANCE_EUCLIDEAN
    info = await workshop.store.info(await collection_of(workshop, "notes"))
    assert info.distance is Distance.EUCLIDEAN
    assert await caller.sees("turbines", "notes", strategy=VECTOR_ONLY) == {"a"}


async def test_one_of_no_contract_is_refused(caller: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await caller.create("notes", distance=9)
    refused = from_rpc_error(caught.value, dependency="retriever")
    assert (refused.reason, refused.metadata["field"]) == (Reason.INVALID_FIELD, "knowledge_base.distance")
