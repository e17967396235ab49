"""A call has an id, a tenant and principals, from one service to the next."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.call import CallContext, current_call, optional_call, with_call
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import ChunkerApplication, Context, raising, settings, stub

REQUEST = chunker_pb2.ChunkRequest()
UNTRUSTED = {"trust_tenant_metadata": False}


class Witness:
    """A servicer that notes each call's context."""

    def __init__(self) -> None:
        self.calls: list[CallContext] = []

    async def chunk(self, _request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        self.calls.append(current_call())
        return chunker_pb2.ChunkResponse()

    async def chunk_stream(
        self, requests: AsyncIterator[chunker_pb2.ChunkStreamRequest], _context: Context
    ) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
        self.calls.append(current_call())
        async for _ in requests:
            yield chunker_pb2.ChunkStreamResponse()


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def application(witness: Witness) -> ChunkerApplication:
    return ChunkerApplication(chunk=witness.chunk, chunk_stream=witness.chunk_stream)


async def refused(application: ChunkerApplication, options: ServerSettings, metadata: dict[str, str]) -> Reason:
    async with running(application, options) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST, metadata=tuple(metadata.items()))
    return from_rpc_error(caught.value, dependency="chunker").reason


async def test_a_caller_that_names_nobody_is_the_default_tenant(
    application: ChunkerApplication, witness: Witness
) -> None:
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        call = stub(channel).Chunk(REQUEST)
        await call
        trailing = dict(await call.trailing_metadata())
    [seen] = witness.calls
    assert (seen.tenant, seen.principals) == ("default", ())
    assert trailing["kbmesh-request-id"] == seen.request_id == str(uuid.UUID(seen.request_id))


async def test_the_callers_request_id_tenant_and_principals_are_kept(
    application: ChunkerApplication, witness: Witness
) -> None:
    metadata = (
        ("kbmesh-request-id", "req-1"),
        ("kbmesh-tenant", "acme"),
        ("kbmesh-principals", "user:ann@example.org, group:staff,,"),
    )
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        call = stub(channel).Chunk(REQUEST, metadata=metadata)
        await call
        assert dict(await call.trailing_metadata())["kbmesh-request-id"] == "req-1"
    [seen] = witness.calls
    assert (seen.request_id, seen.tenant) == ("req-1", "acme")
    assert seen.principals == ("user:ann@example.org", "group:staff")


async def test_a_caller_may_be_in_hundreds_of_groups(application: ChunkerApplication, witness: Witness) -> None:
    groups = tuple(f"group:{number:03}-{'x' * 90}" for number in range(200))
    async with running(application, settings()) as address, open_channel(address) as channel:
        with with_call(CallContext(request_id="r", tenant="acme", principals=groups, deadline=None)):
            await stub(channel).Chunk(REQUEST)
    assert witness.calls[0].principals == groups


async def test_a_failed_call_tells_its_request_id_too() -> None:
    application = ChunkerApplication(chunk=raising(RuntimeError("secret")))
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-request-id", "req-1"),))
    assert dict(caught.value.trailing_metadata())["kbmesh-request-id"] == "req-1"


async def test_a_servicers_own_trailing_metadata_stands_beside_the_request_id() -> None:
    async def chunk(_request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        context.set_trailing_metadata((("x-cost", "3"),))
        return chunker_pb2.ChunkResponse()

    async with (
        running(ChunkerApplication(chunk=chunk), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = stub(channel).Chunk(REQUEST, metadata=(("kbmesh-request-id", "req-1"),))
        await call
        assert dict(await call.trailing_metadata()) == {"x-cost": "3", "kbmesh-request-id": "req-1"}


@pytest.mark.parametrize("hostile", ["a b", "x" * 129, '{"json": 1}', "-dash", ""])
async def test_a_request_id_that_cannot_be_logged_safely_is_replaced(
    hostile: str, application: ChunkerApplication, witness: Witness
) -> None:
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-request-id", hostile),))
    assert uuid.UUID(witness.calls[0].request_id)


@pytest.mark.parametrize("metadata", [{"kbmesh-tenant": "acme"}, {"kbmesh-principals": "user:root"}])
async def test_where_metadata_is_not_trusted_it_is_refused_not_ignored(
    metadata: dict[str, str], application: ChunkerApplication, witness: Witness
) -> None:
    assert await refused(application, settings(**UNTRUSTED), metadata) is Reason.UNAUTHENTICATED
    assert witness.calls == []


async def test_where_metadata_is_not_trusted_an_anonymous_call_is_the_default_tenants(
    application: ChunkerApplication, witness: Witness
) -> None:
    async with running(application, settings(**UNTRUSTED)) as address, grpc.aio.insecure_channel(address) as channel:
        await stub(channel).Chunk(REQUEST)
    assert witness.calls[0].tenant == "default"


async def test_where_metadata_is_not_trusted_the_default_tenant_may_be_named_all_the_same(
    application: ChunkerApplication, witness: Witness
) -> None:
    """The SDK always names one."""
    async with running(application, settings(**UNTRUSTED)) as address, grpc.aio.insecure_channel(address) as channel:
        await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-tenant", "default"),))
    assert (witness.calls[0].tenant, witness.calls[0].principals) == ("default", ())
    metadata = {"kbmesh-tenant": "default", "kbmesh-principals": "ann"}
    assert await refused(application, settings(**UNTRUSTED), metadata) is Reason.UNAUTHENTICATED


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost", "::1"])
def test_on_loopback_metadata_is_trusted(host: str) -> None:
    assert settings(host=host).caller_policy.trusts(())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "kbmesh.example.org"])
def test_elsewhere_metadata_is_trusted_by_setting_only(host: str) -> None:
    assert not settings(host=host).caller_policy.trusts(())
    assert settings(host=host, trust_tenant_metadata=True).caller_policy.trusts(())


@pytest.mark.parametrize(
    "metadata",
    [
        {"kbmesh-tenant": "a/b"},
        {"kbmesh-tenant": ""},
        {"kbmesh-tenant": "x" * 65},
        {"kbmesh-principals": "user:a b"},
        {"kbmesh-principals": ",".join(f"group:{n}" for n in range(257))},
    ],
    ids=["slash", "empty", "long", "space", "many"],
)
async def test_malformed_names_are_refused(metadata: dict[str, str], application: ChunkerApplication) -> None:
    assert await refused(application, settings(), metadata) is Reason.INVALID_FIELD


async def test_two_tenants_are_one_too_many(application: ChunkerApplication) -> None:
    async with running(application, settings()) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-tenant", "a"), ("kbmesh-tenant", "b")))
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.INVALID_FIELD


async def test_identity_travels_through_a_service_to_the_next(
    application: ChunkerApplication, witness: Witness
) -> None:
    async with running(application, settings()) as inner_address, open_channel(inner_address) as inner:

        async def forward(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(unary())
                tasks.create_task(streaming())
            return chunker_pb2.ChunkResponse()

        async def unary() -> None:
            await stub(inner).Chunk(REQUEST)

        async def streaming() -> None:
            assert [each async for each in stub(inner).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()]))]

        async with (
            running(ChunkerApplication(chunk=forward), settings()) as outer_address,
            grpc.aio.insecure_channel(outer_address) as outer,
        ):
            metadata = (("kbmesh-request-id", "r"), ("kbmesh-tenant", "acme"), ("kbmesh-principals", "a,b"))
            await stub(outer).Chunk(REQUEST, metadata=metadata)
    assert len(witness.calls) == 2
    assert {(seen.request_id, seen.tenant, seen.principals) for seen in witness.calls} == {("r", "acme", ("a", "b"))}


async def test_what_the_code_names_itself_is_not_overwritten(application: ChunkerApplication, witness: Witness) -> None:
    current = CallContext(request_id="r", tenant="acme", principals=(), deadline=None)
    async with running(application, settings()) as address, open_channel(address) as channel:
        with with_call(current):
            await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-tenant", "other"),))
    assert (witness.calls[0].request_id, witness.calls[0].tenant) == ("r", "other")


def test_outside_a_call_there_is_no_call() -> None:
    assert optional_call() is None
    with pytest.raises(LookupError):
        current_call()
