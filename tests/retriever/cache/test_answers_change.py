"""Whatever changes, the next question sees it; who may not see, is not given what was kept for others."""

import asyncio

import pytest
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_retriever.catalog.port import RetrievalDefaults
from retriever.cache.conftest import Desk, texts
from retriever.workshop import Workshop

RESTART = "Restart the payment service."
ROLLBACK = "Roll the payment service back."
HIT, MISS = pb.CACHE_STATE_HIT, pb.CACHE_STATE_MISS


@pytest.fixture(autouse=True)
async def handbook(workshop: Workshop) -> None:
    knowledge_base = await workshop.make()
    await workshop.ingest(knowledge_base, "a", RESTART)


async def primed(desk: Desk, **who: str) -> pb.RetrieveResponse:
    """Asked twice: the second answer was kept."""
    first = await desk.ask(**who)
    assert first.cache == MISS
    second = await desk.ask(**who)
    assert second.cache == HIT
    return second


async def test_a_kept_answer_is_the_same_but_for_whose_call_it_is(desk: Desk, workshop: Workshop) -> None:
    first = await desk.ask(request_id="one")
    searches = workshop.store.calls["search"]
    second = await desk.ask(request_id="two")
    assert (first.cache, second.cache) == (MISS, HIT)
    assert (first.request_id, second.request_id) == ("one", "two")
    assert texts(first) == [RESTART]
    assert workshop.store.calls["search"] == searches
    assert set(second.timings) == {"resolve", "total"}
    assert second.timings["total"] >= second.timings["resolve"] > 0
    assert second.knowledge_bases[0].milliseconds == 0
    for response in (first, second):
        response.ClearField("timings")
        response.ClearField("cache")
        response.ClearField("request_id")
        response.knowledge_bases[0].ClearField("milliseconds")
    assert first == second


async def test_a_new_document_is_found_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    await workshop.ingest(knowledge_base, "b", ROLLBACK)
    after = await desk.ask()
    assert after.cache == MISS
    assert set(texts(after)) == {RESTART, ROLLBACK}


async def test_a_changed_document_is_seen_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    await workshop.ingest(knowledge_base, "a", "Restart the payment service twice.")
    assert texts(await desk.ask()) == ["Restart the payment service twice."]


async def test_another_link_is_seen_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    await workshop.ingest(knowledge_base, "a", RESTART, uri="https://docs.example/new")
    assert (await desk.ask()).results[0].document.uri == "https://docs.example/new"


async def test_a_deleted_document_is_gone_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    await workshop.catalog.delete_document(knowledge_base.id, "a")
    assert texts(await desk.ask()) == []


async def test_other_settings_hold_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    await workshop.catalog.update_knowledge_base(
        "default", "handbook", description=None, retrieval=RetrievalDefaults(min_vector_score=0.99)
    )
    assert (await desk.ask()).cache == MISS


async def test_a_rebuild_takes_its_place_at_once(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    before = await desk.ask()
    rebuild = await workshop.rebuilds.start(knowledge_base)
    await workshop.ingest(rebuild, "a", RESTART)
    assert (await desk.ask()).cache == HIT, "nobody sees it yet"
    await workshop.catalog.finish_rebuild(knowledge_base, drop_outstanding=False)
    after = await desk.ask()
    assert after.cache == MISS
    assert after.results[0].chunk_id != before.results[0].chunk_id


async def test_one_that_is_deleted_and_made_again_is_another(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    await workshop.catalog.delete_knowledge_base("default", "handbook")
    await workshop.make()
    after = await desk.ask()
    assert (after.cache, texts(after)) == (MISS, [])


async def test_another_tenant_never_gets_it(desk: Desk, workshop: Workshop) -> None:
    await primed(desk)
    theirs = await workshop.make(tenant="other")
    await workshop.ingest(theirs, "a", ROLLBACK)
    answer = await desk.ask(tenant="other")
    assert (answer.cache, texts(answer)) == (MISS, [ROLLBACK])
    assert texts(await desk.ask()) == [RESTART]


async def test_who_lost_the_right_to_read_is_not_served(desk: Desk, workshop: Workshop) -> None:
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    await workshop.ingest(knowledge_base, "a", RESTART, principals=("ada", "ops"))
    assert texts(await primed(desk, principals="ada")) == [RESTART]
    assert texts(await desk.ask(principals="bob")) == [], "nor does anybody else get what was kept for ada"
    await workshop.ingest(knowledge_base, "a", RESTART, principals=("ops",))
    revoked = await desk.ask(principals="ada")
    assert (revoked.cache, texts(revoked)) == (MISS, [])
    assert texts(await desk.ask(principals="ops,ada")) == [RESTART]
    again = await desk.ask(principals="ada,ops")
    assert (again.cache, texts(again)) == (HIT, [RESTART]), "the same person, named in another order"


async def test_readers_of_a_knowledge_base_lose_it_at_once(desk: Desk, workshop: Workshop) -> None:
    await workshop.catalog.update_knowledge_base(
        "default", "handbook", description=None, retrieval=None, readers=("ada",)
    )
    await primed(desk, principals="ada")
    await workshop.catalog.update_knowledge_base(
        "default", "handbook", description=None, retrieval=None, readers=("bob",)
    )
    denied = await desk.ask(principals="ada")
    assert denied.knowledge_bases[0].status == pb.KNOWLEDGE_BASE_STATUS_DENIED
    assert (denied.cache, texts(denied)) == (MISS, [])


async def test_a_change_while_it_is_computed_is_not_hidden(desk: Desk, workshop: Workshop) -> None:
    """The answer of a search that began before belongs to the time before."""
    knowledge_base = await workshop.catalog.get_knowledge_base("default", "handbook")
    searching, go_on = asyncio.Event(), asyncio.Event()

    async def hold(call: int) -> None:
        searching.set()
        await go_on.wait()

    workshop.store.before("search", hold)
    early = asyncio.create_task(desk.ask())
    await searching.wait()
    await workshop.ingest(knowledge_base, "a", ROLLBACK)
    late = asyncio.create_task(desk.ask())
    await asyncio.sleep(0.05)
    go_on.set()
    assert texts(await early) == [RESTART]
    assert texts(await late) == [ROLLBACK]
    assert texts(await desk.ask()) == [ROLLBACK]
