"""The retriever is rolled out anew while documents go in: the SDK goes on where it was."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from cli.scripted_mesh import Script
from kbmesh_client import (
    AsyncKbmeshClient,
    ErrorDetails,
    IngestDocument,
    IngestResult,
    InvalidRequest,
    KbmeshClient,
    ServiceUnavailable,
)
from kbmesh_client.reconnection import Reconnection
from kbmesh_rpc.errors import InvalidField

NAMES = [f"d{number:02}" for number in range(20)]


def documents(names: list[str] = NAMES) -> Iterator[IngestDocument]:
    for name in names:
        yield IngestDocument(external_id=name, content=f"text of {name}")


async def documents_one_by_one(names: list[str] = NAMES) -> AsyncIterator[IngestDocument]:
    """They come from somewhere slow: the stream breaks off while the next is being waited for."""
    for name in names:
        await asyncio.sleep(0.005)
        yield IngestDocument(external_id=name, content=f"text of {name}")


async def take_in(endpoint: str, kind: str, *, reconnect_seconds: float = 60.0) -> list[IngestResult]:
    if kind == "sync":

        def ingest() -> list[IngestResult]:
            with KbmeshClient(endpoint) as client:
                return list(client.ingest("handbook", documents(), reconnect_seconds=reconnect_seconds))

        return await asyncio.to_thread(ingest)
    async with AsyncKbmeshClient(endpoint) as client:
        results = client.ingest("handbook", documents_one_by_one(), reconnect_seconds=reconnect_seconds)
        return [result async for result in results]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("breaks", [[3], [0], [7, 0, 2], [19]])
async def test_every_document_has_one_result_though_the_stream_breaks_off(
    script: Script, endpoint: str, kind: str, breaks: list[int]
) -> None:
    script.breaks_after = list(breaks)
    results = await take_in(endpoint, kind)
    assert sorted(result.external_id for result in results) == NAMES
    assert len(script.requests) == 1 + len(breaks)
    assert set(script.ingested) == set(NAMES)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_server_that_stays_away_is_given_up(script: Script, endpoint: str, kind: str) -> None:
    script.breaks_after = [5] + [0] * 100
    with pytest.raises(ServiceUnavailable) as caught:
        await take_in(endpoint, kind, reconnect_seconds=0.5)
    assert caught.value.reason in ("SHUTTING_DOWN", "DEPENDENCY_UNAVAILABLE")
    assert len(script.requests) > 2


async def test_a_caller_may_want_to_hear_of_it_at_once(script: Script, endpoint: str) -> None:
    script.breaks_after = [5]
    with pytest.raises(ServiceUnavailable):
        await take_in(endpoint, "async", reconnect_seconds=0)
    assert len(script.requests) == 1


async def test_what_another_call_would_not_mend_is_raised_at_once(script: Script, endpoint: str) -> None:
    script.error = InvalidField("options.knowledge_base", "no such name")
    with pytest.raises(InvalidRequest):
        await take_in(endpoint, "async")
    assert len(script.requests) == 1


async def test_two_versions_of_a_document_in_flight_both_go_again(script: Script, endpoint: str) -> None:
    script.breaks_after = [2]
    names = ["a", "b", "c", "c", "d"]
    async with AsyncKbmeshClient(endpoint) as client:
        results = [result async for result in client.ingest("handbook", documents_one_by_one(names))]
    assert [result.external_id for result in results] == names


async def test_the_error_of_the_callers_documents_comes_after_the_results_of_those_before(
    script: Script, endpoint: str
) -> None:
    script.breaks_after = [1]

    async def broken() -> AsyncIterator[IngestDocument]:
        async for document in documents_one_by_one(NAMES[:4]):
            yield document
        raise OSError("the disk is gone")

    found = []

    async def ingest(client: AsyncKbmeshClient) -> None:
        async for result in client.ingest("handbook", broken()):
            found.append(result.external_id)  # noqa: PERF401 - what came before the error is the point

    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(OSError, match="disk"):
            await ingest(client)
    assert sorted(found) == NAMES[:4]


def failure(reason: str, code: grpc.StatusCode) -> ServiceUnavailable:
    return ServiceUnavailable("gone", ErrorDetails(reason=reason, code=code))


def test_an_address_where_nobody_ever_answered_is_told_at_once() -> None:
    assert Reconnection(seconds=60).wait_after(failure("DEPENDENCY_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)) is None


def test_a_status_that_grpc_lost_is_asked_for_again_a_few_times() -> None:
    """grpc/grpc#36066: it says INTERNAL in place of what the server said."""
    reconnecting = Reconnection(seconds=60)
    lost = failure("DEPENDENCY_UNAVAILABLE", grpc.StatusCode.INTERNAL)
    waits = [reconnecting.wait_after(lost) for _ in range(4)]
    assert [wait is None for wait in waits] == [False, False, False, True]
