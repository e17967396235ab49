"""An error of the mesh arrives in the SDK typed, with everything that the server told."""

import asyncio
import pickle

import grpc
import pytest
from cli.scripted_mesh import Script
from kbmesh_client import (
    AsyncKbmeshClient,
    DeadlineExceeded,
    FeatureUnsupported,
    InvalidRequest,
    KbmeshClient,
    KbmeshError,
    KnowledgeBaseNotFound,
    NotFound,
    Overloaded,
    ServerFault,
    ServiceUnavailable,
)
from kbmesh_client.errors import BY_REASON
from kbmesh_rpc.errors import (
    DeadlineExceeded as ServerDeadlineExceeded,
)
from kbmesh_rpc.errors import (
    InvalidField,
    QueueFull,
    Reason,
    error_for,
)
from kbmesh_rpc.errors import (
    KnowledgeBaseNotFound as ServerKnowledgeBaseNotFound,
)


async def failure(endpoint: str) -> KbmeshError:
    """The error of one asynchronous call."""
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(KbmeshError) as caught:
            await client.retrieve("?", "handbook")
    return caught.value


async def test_every_reason_of_the_contract_has_a_class_of_its_own_kind(script: Script, endpoint: str) -> None:
    names = {reason.value.removeprefix("ERROR_REASON_") for reason in Reason}
    assert names - {"UNSPECIFIED"} == set(BY_REASON)
    async with AsyncKbmeshClient(endpoint) as client:
        for reason in Reason:
            name = reason.value.removeprefix("ERROR_REASON_")
            if name in ("UNSPECIFIED", "CANCELLED"):
                continue
            script.error = error_for(reason, "because", {"key": "value"})
            with pytest.raises(KbmeshError) as caught:
                await client.create_knowledge_base("handbook")  # is never retried
            assert caught.value.reason == name
            assert type(caught.value) is BY_REASON[name]
            assert caught.value.metadata["key"] == "value"


async def test_a_missing_knowledge_base_is_named(script: Script, endpoint: str) -> None:
    script.error = ServerKnowledgeBaseNotFound("handbok")
    error = await failure(endpoint)
    assert isinstance(error, KnowledgeBaseNotFound)
    assert isinstance(error, NotFound)
    assert error.metadata == {"knowledge_base": "handbok"}
    assert error.code is grpc.StatusCode.NOT_FOUND


async def test_wrong_fields_are_named(script: Script, endpoint: str) -> None:
    script.error = InvalidField("top_k", "must be at most 100")
    error = await failure(endpoint)
    assert isinstance(error, InvalidRequest)
    assert [violation.field for violation in error.field_violations] == ["top_k"]


async def test_overload_tells_when_to_come_back(script: Script, endpoint: str) -> None:
    script.error = QueueFull(queued_tokens=9, limit=8, retry_after_seconds=1.5)
    error = await failure(endpoint)
    assert isinstance(error, Overloaded)
    assert error.retry_after_seconds == pytest.approx(1.5)


async def test_a_fault_carries_the_request_id_and_no_detail(script: Script, endpoint: str) -> None:
    script.error = RuntimeError("the password is hunter2")
    error = await failure(endpoint)
    assert isinstance(error, ServerFault)
    assert error.reason == "INTERNAL"
    assert error.request_id == script.calls[0].request_id
    assert "hunter2" not in str(error)


async def test_the_synchronous_client_decodes_alike(script: Script, endpoint: str) -> None:
    script.error = ServerDeadlineExceeded("search")

    def call() -> KbmeshError:
        with KbmeshClient(endpoint) as client, pytest.raises(KbmeshError) as caught:
            client.retrieve("?", "handbook")
        return caught.value

    error = await asyncio.to_thread(call)
    assert isinstance(error, DeadlineExceeded)
    assert error.metadata == {"stage": "search"}


async def test_an_error_survives_pickling(script: Script, endpoint: str) -> None:
    script.error = ServerKnowledgeBaseNotFound("handbok")
    error = await failure(endpoint)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.reason, copied.metadata) == (type(error), error.reason, error.metadata)


async def test_an_unreachable_server_is_named() -> None:
    async with AsyncKbmeshClient("127.0.0.1:1") as client:
        with pytest.raises(ServiceUnavailable) as caught:
            await client.get_knowledge_base("handbook")
    assert caught.value.metadata == {"dependency": "127.0.0.1:1"}
    assert caught.value.reason == "DEPENDENCY_UNAVAILABLE"


async def test_a_call_that_the_server_does_not_know_is_told_apart(endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(FeatureUnsupported):
            await client.get_document("handbook", "a.md")


async def test_a_stream_that_fails_raises_from_its_loop(script: Script, endpoint: str) -> None:
    script.error = ServerKnowledgeBaseNotFound("handbok")
    async with AsyncKbmeshClient(endpoint) as client:
        with pytest.raises(KnowledgeBaseNotFound):
            await anext(client.ingest("handbok", []))
        with pytest.raises(KnowledgeBaseNotFound):
            await anext(client.retrieve_stream("?", "handbok"))
