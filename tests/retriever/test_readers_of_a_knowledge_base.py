"""Knowledge bases that are not for everybody."""

from collections.abc import AsyncIterator, Awaitable

import grpc
import pytest
from kbmesh.errors.v1.errors_pb2 import ERROR_REASON_PERMISSION_DENIED
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.caller import Caller, documents_of, statuses_of, text

QUERY = "turbines"


@pytest.fixture
async def caller(retriever_address: str) -> AsyncIterator[Caller]:
    async with open_channel(retriever_address) as channel:
        yield Caller(channel)


async def refusal(call: Awaitable[object]) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, dependency="retriever")


async def test_one_who_is_no_reader_is_denied_and_the_others_answer(caller: Caller) -> None:
    """RET-19: each has a status of its own; nothing is told of what was denied."""
    await caller.create("open")
    closed = await caller.create("closed", readers=["group:ops", "ann"])
    for name in ("open", "closed"):
        await caller.send(name, text(name, f"All about {QUERY}"))
    asked = ("open", "closed", "unknown")
    for who in (caller, caller.known_as("bob", "group:dev")):
        answer = await who.retrieve(QUERY, *asked)
        assert statuses_of(answer) == {"open": "OK", "closed": "DENIED", "unknown": "NOT_FOUND"}
        assert documents_of(answer) == {"open"}
        denied = answer.knowledge_bases[1]
        assert (denied.hits, denied.id, denied.error.reason) == (0, "", ERROR_REASON_PERMISSION_DENIED)
    for who in (caller.known_as("ann"), caller.known_as("bob", "group:ops")):
        answer = await who.retrieve(QUERY, *asked)
        assert statuses_of(answer) == {"open": "OK", "closed": "OK", "unknown": "NOT_FOUND"}
        assert documents_of(answer) == {"open", "closed"}
    assert statuses_of(await caller.retrieve(QUERY, closed.id)) == {closed.id: "DENIED"}


async def test_where_all_are_denied_there_still_is_an_answer(caller: Caller) -> None:
    for name in ("one", "two"):
        await caller.create(name, readers=["ann"])
        await caller.send(name, text(name, QUERY))
    answer = await caller.retrieve(QUERY, "one", "two", "unknown")
    assert statuses_of(answer) == {"one": "DENIED", "two": "DENIED", "unknown": "NOT_FOUND"}
    assert (list(answer.results), answer.context.text) == ([], "")
    [last] = await caller.streamed(QUERY, "one")
    assert statuses_of(last) == {"one": "DENIED"}
    assert (await refusal(caller.retrieve(QUERY, "unknown"))).reason is Reason.KNOWLEDGE_BASE_NOT_FOUND


async def test_readers_change_at_once_and_only_where_they_are_named(caller: Caller) -> None:
    made = await caller.create("notes")
    await caller.send("notes", text("a", QUERY))
    changed = await caller.update("notes", "readers", readers=["ann", "ann", "bob"])
    assert list(changed.readers) == ["ann", "bob"]
    assert changed.generation > made.generation
    assert statuses_of(await caller.retrieve(QUERY, "notes")) == {"notes": "DENIED"}

    # Somebody who knows nothing of readers, and somebody who forgot the mask.
    await caller.update("notes", description="Notes")
    assert list((await caller.show("notes")).readers) == ["ann", "bob"]
    forgotten = await refusal(caller.update("notes", readers=["eve"]))
    assert [violation.field for violation in forgotten.field_violations] == ["knowledge_base.readers"]
    await caller.update("notes", description="Sent back as it was read", readers=["bob", "ann"])

    await caller.update("notes", "readers")
    assert await caller.sees(QUERY, "notes") == {"a"}


async def test_readers_stay_over_a_rebuild(caller: Caller) -> None:
    await caller.create("notes", readers=["ann"])
    await caller.send("notes", text("a", QUERY))
    await caller.update("notes", rebuild=True)
    await caller.update("notes", "readers", readers=["bob"])
    await caller.send("notes", text("a", QUERY), into_rebuild=True)
    await caller.finish_rebuild("notes")
    assert list((await caller.show("notes")).readers) == ["bob"]
    assert statuses_of(await caller.known_as("ann").retrieve(QUERY, "notes")) == {"notes": "DENIED"}
    assert await caller.known_as("bob").sees(QUERY, "notes") == {"a"}


async def test_readers_are_checked(caller: Caller) -> None:
    await caller.create("notes")
    for readers in ([""], [" "], ["x" * 257], ["a\0"], ["a,b"], ["é"], [f"user-{number}" for number in range(1001)]):
        for call in (caller.create("more", readers=readers), caller.update("notes", "readers", readers=readers)):
            refused = await refusal(call)
            assert (refused.reason, refused.metadata["field"]) == (Reason.INVALID_FIELD, "knowledge_base.readers")


async def test_readers_of_one_tenant_are_nothing_to_another(caller: Caller) -> None:
    acme, rival = Caller(caller.channel, "acme", ("ann",)), Caller(caller.channel, "rival", ("ann",))
    for tenant in (acme, rival):
        await tenant.create(f"of-{tenant.tenant}", readers=["ann"])
        await tenant.send(f"of-{tenant.tenant}", text(tenant.tenant, QUERY))
    answer = await rival.retrieve(QUERY, "of-acme", "of-rival")
    assert statuses_of(answer) == {"of-acme": "NOT_FOUND", "of-rival": "OK"}
    assert documents_of(answer) == {"rival"}
