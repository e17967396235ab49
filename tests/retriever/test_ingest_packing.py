"""Ten thousand notes of a line each go in: what they need is asked together, and none pays for another."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.document import IncomingDocument, IngestResult
from kbmesh_retriever.ingest.packing import Packer
from kbmesh_retriever.ingest.stream import ingest_stream
from kbmesh_retriever.mesh.port import Embedded
from kbmesh_retriever.stores.port import Scope
from kbmesh_rpc.errors import DependencyUnavailable, InvalidField, KbmeshError, QueueFull, RequestTooLarge
from retriever.mesh_fakes import always
from retriever.workshop import Workshop


async def notes(*texts: str) -> AsyncIterator[IncomingDocument]:
    for number, text in enumerate(texts):
        yield IncomingDocument(external_id=f"note-{number}", content=text)


async def stream(
    workshop: Workshop, knowledge_base: KnowledgeBase, *texts: str, concurrency: int = 64
) -> dict[str, IngestResult]:
    results = ingest_stream(
        workshop.ingester,
        workshop.catalog,
        knowledge_base,
        notes(*texts),
        concurrency=concurrency,
        request_id="r-1",
    )
    return {result.external_id: result async for result in results}


async def test_texts_of_many_documents_go_in_few_calls(workshop: Workshop) -> None:
    kb = await workshop.make()
    results = await stream(workshop, kb, *(f"Note number n{number}x." for number in range(100)))
    assert {result.outcome for result in results.values()} == {"new"}
    assert {(result.chunks, result.embedded, result.tokens) for result in results.values()} == {(1, 1, 3)}
    assert len(workshop.words.texts) == 100
    assert workshop.embedder.calls["embed"] < 40
    looked_up = workshop.catalog.calls["find_documents"]
    assert looked_up < 60

    again = await stream(workshop, kb, *(f"Note number n{number}x." for number in range(100)))
    assert {result.outcome for result in again.values()} == {"unchanged"}
    assert len(workshop.words.texts) == 100


async def test_each_document_gets_the_vectors_of_its_own_texts(workshop: Workshop) -> None:
    kb = await workshop.make()
    texts = [f"turbine t{number}\n\nblade b{number}" for number in range(30)]
    together = await stream(workshop, kb, *texts)
    alone = await workshop.make("alone")
    for number, text in enumerate(texts):
        result = await workshop.ingest(alone, f"note-{number}", text)
        assert result.tokens == together[f"note-{number}"].tokens
    for number in range(30):
        assert await vectors(workshop, kb, f"note-{number}") == await vectors(workshop, alone, f"note-{number}")


async def vectors(workshop: Workshop, knowledge_base: KnowledgeBase, external_id: str) -> list[list[float]]:
    document = await workshop.catalog.get_document(knowledge_base.id, external_id)
    scope = Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id)
    pages = workshop.store.read_generation(knowledge_base.collection, scope, document.id, document.generation)
    points = [point async for page in pages for point in page]
    return [point.dense.round(5).tolist() for point in sorted(points, key=lambda point: point.payload["index"])]


async def test_one_document_that_the_embedder_refuses_fails_alone(workshop: Workshop) -> None:
    kb = await workshop.make()
    embed = workshop.words.embed

    async def choosy(texts: Sequence[str], **named: object) -> Embedded:
        if any("forbidden" in text for text in texts):
            raise RequestTooLarge(field="texts", limit=1, actual=2)
        return await embed(texts, **named)

    workshop.words.embed = choosy
    texts = [f"Note number n{number}x." for number in range(20)]
    texts[7] = "A forbidden note."
    results = await stream(workshop, kb, *texts)
    failed = {name: result.error for name, result in results.items() if result.error is not None}
    assert [(name, type(error)) for name, error in failed.items()] == [("note-7", RequestTooLarge)]


async def test_an_embedder_that_is_down_is_asked_once_for_all(workshop: Workshop) -> None:
    kb = await workshop.make()
    workshop.embedder.before("embed", always(DependencyUnavailable("embedder", "down")))
    results = await stream(workshop, kb, *(f"Note number n{number}x." for number in range(50)))
    assert {type(result.error) for result in results.values()} == {DependencyUnavailable}
    assert workshop.embedder.calls["embed"] < 25


async def test_a_full_queue_holds_the_stream_and_loses_nothing(workshop: Workshop) -> None:
    kb = await workshop.make()
    full = QueueFull(queued_tokens=9, limit=9, retry_after_seconds=0.5)
    workshop.embedder.before("embed", lambda call: full if call % 3 == 0 else None)
    results = await stream(workshop, kb, *(f"Note number n{number}x." for number in range(50)))
    assert {result.outcome for result in results.values()} == {"new"}


async def test_documents_that_are_large_together_are_not_in_work_together(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = await workshop.make()
    monkeypatch.setattr("kbmesh_retriever.ingest.stream.BYTES_IN_WORK", 100)
    in_work = most = 0

    async def enter(_call: int) -> None:
        nonlocal in_work, most
        in_work += 1
        most = max(most, in_work)
        await asyncio.sleep(0)

    def leave(_call: int) -> None:
        nonlocal in_work
        in_work -= 1

    workshop.chunker.before("chunk", enter)
    workshop.chunker.after("chunk", leave)
    results = await stream(workshop, kb, *(f"Note number n{number}x of forty-five characters." for number in range(12)))
    assert {result.outcome for result in results.values()} == {"new"}
    assert most == 2


# The packer itself


async def test_the_first_is_served_at_once_and_the_rest_together() -> None:
    calls: list[list[int]] = []

    async def double(items: Sequence[int]) -> Sequence[int]:
        calls.append(list(items))
        await asyncio.sleep(0.01)
        return [2 * item for item in items]

    async with asyncio.TaskGroup() as group:
        packer = Packer[int, int](double, group, max_weight=4)
        answers = await asyncio.gather(*(packer.ask(item) for item in range(10)))
    assert answers == [2 * item for item in range(10)]
    assert [len(call) for call in calls] == [4, 4, 2]
    assert [item for call in calls for item in call] == list(range(10))


async def test_what_is_heavier_than_a_call_goes_alone() -> None:
    calls: list[list[int]] = []

    async def same(items: Sequence[int]) -> Sequence[int]:
        calls.append(list(items))
        return items

    async with asyncio.TaskGroup() as group:
        packer = Packer[int, int](same, group, max_weight=5)
        await asyncio.gather(*(packer.ask(item, weight=item) for item in (1, 9, 2, 3, 1)))
    assert calls == [[1], [9], [2, 3], [1]]


async def test_an_error_is_its_items_or_everybodys() -> None:
    async def picky(items: Sequence[int]) -> Sequence[int | KbmeshError]:
        if 99 in items:
            raise DependencyUnavailable("store", "down")
        return [InvalidField("item", "is odd") if item % 2 else item for item in items]

    async with asyncio.TaskGroup() as group:
        packer = Packer[int, int](picky, group, max_weight=100)
        mixed = await asyncio.gather(*(packer.ask(item) for item in range(4)), return_exceptions=True)
        assert [type(answer) for answer in mixed] == [int, InvalidField, int, InvalidField]
        all_down = await asyncio.gather(*(packer.ask(item) for item in (1, 99)), return_exceptions=True)
        assert [type(answer) for answer in all_down] == [DependencyUnavailable, DependencyUnavailable]
        assert await packer.ask(2) == 2, "and it goes on"


async def test_who_leaves_takes_nobody_with_him() -> None:
    free = asyncio.Event()

    async def slow(items: Sequence[int]) -> Sequence[int]:
        await free.wait()
        return items

    async with asyncio.TaskGroup() as group:
        packer = Packer[int, int](slow, group, max_weight=100)
        first, gone, last = (asyncio.create_task(packer.ask(item)) for item in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        free.set()
        assert await asyncio.gather(first, last) == [0, 2]
