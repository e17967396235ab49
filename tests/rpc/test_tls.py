"""Services talk to each other by mutual TLS, and whoever has no right to is refused before a call begins."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from authority import DAY, Authority, Mounted
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc.call import CallContext, current_call
from kbmesh_rpc.certificates import CertificateFiles, CertificateFilesError, Certificates, certificates_at
from kbmesh_rpc.channel import calling_certificates, open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.scaler.peer_calls import PeerCalls
from kbmesh_rpc.scaler.registrations import make_scaling
from kbmesh_rpc.scaler.trigger import Peers
from kbmesh_rpc.server import RunningServer, running
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.status import from_rpc_error
from rpc.chunker_application import CHUNKER, ChunkerApplication, Context, settings, stub
from rpc.conftest import Start

REQUEST = chunker_pb2.ChunkRequest()
SPIFFE = "spiffe://cluster.local/ns/search/sa/retriever"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def chunker(authority: Authority, tmp_path: Path) -> Mounted:
    """What the chunker mounts."""
    return authority.issue(tmp_path / "chunker", "chunker")


@pytest.fixture
def retriever(authority: Authority, tmp_path: Path) -> Mounted:
    """What the retriever mounts, which calls the chunker."""
    return authority.issue(tmp_path / "retriever", "retriever", SPIFFE)


def by(mounted: Mounted, *, shows: bool = True) -> Certificates:
    """What a caller uses of its mount."""
    return certificates_at(
        CertificateFiles(
            certificate=mounted.cert if shows else None, key=mounted.key if shows else None, authorities=mounted.ca
        )
    )


async def failure(channel: grpc.aio.Channel, **metadata: str) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(channel).Chunk(REQUEST, timeout=20, metadata=tuple(metadata.items()))
    return from_rpc_error(caught.value, dependency="chunker")


async def test_services_that_show_each_other_their_certificates_talk(chunker: Mounted, retriever: Mounted) -> None:
    seen: list[dict[str, Any]] = []

    async def chunk(_request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        seen.append(dict(context.auth_context()))
        return chunker_pb2.ChunkResponse()

    async with (
        running(ChunkerApplication(chunk=chunk), settings(**chunker.settings)) as address,
        open_channel(address, certificates=by(retriever)) as channel,
    ):
        assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()
        assert [each async for each in stub(channel).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()]))]
    assert seen[0]["transport_security_type"] == [b"ssl"]
    assert seen[0]["peer_uri"] == [SPIFFE.encode()]


async def test_a_service_calls_with_the_files_of_its_settings(chunker: Mounted, retriever: Mounted) -> None:
    certificates = calling_certificates(settings(**retriever.settings))
    async with (
        running(ChunkerApplication(), settings(**chunker.settings)) as address,
        open_channel(address, certificates=certificates) as channel,
    ):
        assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()
    assert calling_certificates(settings()) is None


async def test_without_authorities_nobody_is_asked_for_a_certificate(chunker: Mounted) -> None:
    options = settings(tls_cert=chunker.cert, tls_key=chunker.key)
    for each in (options, settings(**chunker.settings, tls_require_client_cert=False)):
        async with (
            running(ChunkerApplication(), each) as address,
            open_channel(address, certificates=by(chunker, shows=False)) as channel,
        ):
            assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()


class Refusals:
    """Callers, or servers, that do not get as far as a call."""

    @staticmethod
    async def told(server: Mounted, caller: Certificates | None, **options: Any) -> KbmeshError:
        async with (
            running(ChunkerApplication(), settings(**server.settings)) as address,
            open_channel(address, certificates=caller, **options) as channel,
        ):
            return await failure(channel)


@pytest.mark.parametrize(
    ("caller", "cause"),
    [
        ({"other": True}, "Socket closed"),
        ({"ends": -timedelta(minutes=5)}, "Socket closed"),
        ({"begins": timedelta(minutes=5)}, "Socket closed"),
        ({"trusts_other": True}, "CERTIFICATE_VERIFY_FAILED"),
        ({"shows": False}, "Socket closed"),
    ],
    ids=["another authority's", "expired", "not valid yet", "trusts another authority", "shows none"],
)
async def test_callers_without_a_valid_certificate_are_refused(
    authority: Authority, chunker: Mounted, tmp_path: Path, caller: dict[str, Any], cause: str
) -> None:
    other = Authority("another")
    shows, signed_by_other, trusts_other = (
        caller.pop(name, default) for name, default in (("shows", True), ("other", False), ("trusts_other", False))
    )
    mounted = (other if signed_by_other else authority).issue(
        tmp_path / "caller", "caller", trusts=other.pem if trusts_other else authority.pem, **caller
    )
    error = await Refusals.told(chunker, by(mounted, shows=shows))
    assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
    assert cause in error.message


@pytest.mark.parametrize(
    ("served", "cause"),
    [
        ({"ends": -timedelta(minutes=5)}, "certificate has expired"),
        ({"begins": timedelta(minutes=5)}, "certificate is not yet valid"),
        ({"addresses": ()}, "Hostname Verification"),
    ],
    ids=["expired", "not valid yet", "of another name"],
)
async def test_servers_without_a_valid_certificate_are_not_called(
    authority: Authority, retriever: Mounted, tmp_path: Path, served: dict[str, Any], cause: str
) -> None:
    mounted = authority.issue(tmp_path / "served", "chunker", **served)
    error = await Refusals.told(mounted, by(retriever))
    assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
    assert cause in error.message


async def test_the_name_in_the_certificate_may_be_another_than_the_address(
    authority: Authority, retriever: Mounted, tmp_path: Path
) -> None:
    mounted = authority.issue(tmp_path / "served", "chunker-headless", addresses=())
    async with (
        running(ChunkerApplication(), settings(**mounted.settings)) as address,
        open_channel(address, certificates=by(retriever), server_name="chunker-headless") as channel,
    ):
        assert await stub(channel).Chunk(REQUEST) == chunker_pb2.ChunkResponse()


async def test_plain_text_is_no_way_in(chunker: Mounted) -> None:
    assert (await Refusals.told(chunker, None)).reason is Reason.DEPENDENCY_UNAVAILABLE


async def test_a_server_of_plain_text_is_not_called_by_tls(retriever: Mounted) -> None:
    async with (
        running(ChunkerApplication(), settings()) as address,
        open_channel(address, certificates=by(retriever)) as channel,
    ):
        error = await failure(channel)
    assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
    assert "WRONG_VERSION_NUMBER" in error.message


ALLOWED = [
    ("retriever", True),
    ("RETRIEVER", True),
    (SPIFFE, True),
    ("spiffe://cluster.local/ns/search/*", True),
    ("agent, retriever", True),
    ("agent", False),
    ("spiffe://cluster.local/ns/search/sa/retriever2", False),
    ("spiffe://cluster.local/ns/sea/*", False),
    ("*.retriever", False),
]


@pytest.mark.parametrize(("allowed", "may"), ALLOWED)
async def test_only_callers_of_allowed_names_may_call(
    chunker: Mounted, retriever: Mounted, allowed: str, may: bool
) -> None:
    async with (
        running(ChunkerApplication(), settings(**chunker.settings, tls_allowed_callers=allowed)) as address,
        open_channel(address, certificates=by(retriever)) as channel,
    ):
        if may:
            await stub(channel).Chunk(REQUEST)
            return
        error = await failure(channel)
        assert error.reason is Reason.PERMISSION_DENIED
        assert "retriever" in error.message
        assert "agent" not in error.message, "who may call is nobody's business"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub(channel).ChunkStream(iter([chunker_pb2.ChunkStreamRequest()])):
                pass
        assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.PERMISSION_DENIED


async def test_a_caller_who_may_not_call_learns_health_and_no_contracts(chunker: Mounted, retriever: Mounted) -> None:
    """A channel that watches health must be answered, or it would never call anybody; it tells nothing else."""
    async with (
        running(ChunkerApplication(), settings(**chunker.settings, tls_allowed_callers="agent")) as address,
        open_channel(address, certificates=by(retriever)) as channel,
    ):
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=CHUNKER))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        listing = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in reflection.ServerReflectionInfo(listing):
                pass
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.PERMISSION_DENIED


async def test_a_caller_who_may_call_learns_the_contracts(chunker: Mounted, retriever: Mounted) -> None:
    async with (
        running(ChunkerApplication(), settings(**chunker.settings, tls_allowed_callers="retriever")) as address,
        open_channel(address, certificates=by(retriever)) as channel,
    ):
        listing = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        [answer] = [each async for each in reflection.ServerReflectionInfo(listing)]
    assert CHUNKER in {service.name for service in answer.list_services_response.service}


@pytest.fixture
def calls() -> list[CallContext]:
    return []


async def tenant_of(options: ServerSettings, caller: Certificates, calls: list[CallContext]) -> str | Reason:
    """For whom a call of tenant acme is served, or why not."""

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        calls.append(current_call())
        return chunker_pb2.ChunkResponse()

    async with (
        running(ChunkerApplication(chunk=chunk), options) as address,
        open_channel(address, certificates=caller) as channel,
    ):
        try:
            await stub(channel).Chunk(REQUEST, metadata=(("kbmesh-tenant", "acme"),))
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error, dependency="chunker").reason
    return calls[-1].tenant


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"tls_trusted_callers": "retriever"}, "acme"),
        ({"tls_trusted_callers": "retriever", "tls_allowed_callers": "other"}, "acme"),
        ({"tls_trusted_callers": "gateway"}, Reason.UNAUTHENTICATED),
        ({"tls_trusted_callers": "gateway", "tls_allowed_callers": "retriever"}, Reason.UNAUTHENTICATED),
        ({"tls_trusted_callers": "gateway", "tls_allowed_callers": "other"}, Reason.PERMISSION_DENIED),
        ({"trust_tenant_metadata": False}, Reason.UNAUTHENTICATED),
        ({"trust_tenant_metadata": True}, "acme"),
        ({}, "acme"),
    ],
    ids=[
        "trusted",
        "trusted callers need not be allowed too",
        "another one is trusted",
        "allowed, and not trusted",
        "neither",
        "nobody is trusted",
        "everybody is trusted",
        "on loopback",
    ],
)
async def test_only_trusted_callers_name_a_tenant(
    chunker: Mounted, retriever: Mounted, options: dict[str, Any], outcome: str | Reason, calls: list[CallContext]
) -> None:
    assert await tenant_of(settings(**chunker.settings, **options), by(retriever), calls) == outcome


def test_trust_stays_on_loopback_with_tls_too(chunker: Mounted) -> None:
    assert not settings(host="0.0.0.0", **chunker.settings).caller_policy.trusts(("retriever",))
    trusting = settings(host="0.0.0.0", tls_trusted_callers="retriever", **chunker.settings)
    assert trusting.caller_policy.trusts(("retriever",))
    assert not trusting.caller_policy.trusts(("chunker",))


async def test_the_kubelet_asks_health_in_plain_text_on_a_port_of_its_own(chunker: Mounted, free_port: int) -> None:
    application = ChunkerApplication()
    server = await RunningServer.start(application, settings(health_port=free_port, **chunker.settings))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.health_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status(name: str) -> int:
            return (await health.Check(health_pb2.HealthCheckRequest(service=name))).status

        assert await status(CHUNKER) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await status("liveness") == health_pb2.HealthCheckResponse.SERVING
        await server.ready()
        assert await status(CHUNKER) == health_pb2.HealthCheckResponse.SERVING
        watch = aiter(health.Watch(health_pb2.HealthCheckRequest(service=CHUNKER)))
        assert (await anext(watch)).status == health_pb2.HealthCheckResponse.SERVING
        # Nothing else is there: no service, and no list of them.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(REQUEST)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest()])):
                pass
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        draining = asyncio.create_task(server.drain())
        assert (await anext(watch)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await draining


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    def told(mounted: Mounted) -> str:
        with pytest.raises(CertificateFilesError) as caught:
            Certificates(CertificateFiles(certificate=mounted.cert, key=mounted.key, authorities=mounted.ca))
        return str(caught.value)

    good = authority.issue(tmp_path / "good", "a")
    key = good.key.read_text().splitlines()[1]
    cases = {
        "tls.key": (good.cert.read_bytes(), authority.pair("b").key, authority.pem),
        "tls.crt: a certificate in it is broken off": (good.cert.read_bytes()[:-30], good.key.read_bytes(), b""),
        "tls.crt: there is no certificate in it": (b"", good.key.read_bytes(), authority.pem),
        "ca.crt: there is no certificate in it": (good.cert.read_bytes(), good.key.read_bytes(), b"x"),
        "no certificate and key": (good.cert.read_bytes(), good.key.read_bytes()[:100], authority.pem),
        "has a password": (good.cert.read_bytes(), b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n", authority.pem),
    }
    for number, (said, contents) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in zip(("tls.crt", "tls.key", "ca.crt"), contents, strict=True):
            (folder / name).write_bytes(content)
        message = told(Mounted(folder=folder))
        assert said in message
        assert key not in message
    good.key.unlink()
    assert "No such file" in told(good)


def test_expiry_is_read_from_the_certificate(authority: Authority, tmp_path: Path) -> None:
    for ends in (DAY, 365 * 40 * DAY):  # UTCTime ends in 2049
        pair = authority.pair("a", ends=ends)
        mounted = Mounted(folder=tmp_path / str(ends.days))
        mounted.write(pair, authority.pem)
        files = CertificateFiles(certificate=mounted.cert, key=mounted.key, authorities=mounted.ca)
        assert Certificates(files).pems.expires == pair.expires.timestamp()


async def test_several_names_are_separated_by_commas(chunker: Mounted) -> None:
    for wrong in ("a b", "spiffe://a/*/b", "*", "a/*", "a.*.b"):
        with pytest.raises(ValueError, match=r"no DNS name|may stand"):
            settings(**chunker.settings, tls_allowed_callers=wrong)


def test_settings_that_do_not_belong_together_are_refused(chunker: Mounted) -> None:
    for wrong in (
        {"tls_cert": chunker.cert},
        {"tls_key": chunker.key},
        {"tls_allowed_callers": "a"},
        {"tls_cert": chunker.cert, "tls_key": chunker.key, "tls_trusted_callers": "a"},
        {**chunker.settings, "tls_require_client_cert": False, "tls_allowed_callers": "a"},
    ):
        with pytest.raises(ValueError, match="KBMESH_TLS"):
            settings(**wrong)


async def test_plain_text_that_would_leave_the_machine_is_refused_at_the_start(start: Start) -> None:
    server = await start(host="0.0.0.0")
    assert await server.exit_code() == 1
    [refusal] = [event["event"] for event in server.events if event["level"] == "error"]
    assert "KBMESH_HOST=0.0.0.0 without KBMESH_TLS_CERT" in refusal
    assert "KBMESH_ALLOW_PLAINTEXT" in refusal
    assert not any(event["event"] == "listening" for event in server.events)


async def test_plain_text_that_is_allowed_is_warned_of(start: Start) -> None:
    server = await start(host="0.0.0.0", allow_plaintext=True)
    await server.address()
    [warning] = [event for event in server.events if event["level"] == "warning"]
    assert warning["connections"] == ["KBMESH_HOST=0.0.0.0 without KBMESH_TLS_CERT"]
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0


async def test_with_tls_a_server_listens_everywhere(start: Start, chunker: Mounted, retriever: Mounted) -> None:
    server = await start(host="0.0.0.0", **chunker.settings)
    server.allow("warm")
    server.allow("answer")
    address = await server.address()
    assert next(event for event in server.events if event["event"] == "listening")["transport"] == "mutual TLS"
    async with open_channel(address, certificates=by(retriever)) as channel:
        await stub(channel).Chunk(REQUEST, wait_for_ready=True, timeout=30)
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0
    assert not any(event["level"] == "warning" for event in server.events)


async def test_files_that_cannot_be_used_end_the_start_with_their_names(start: Start, chunker: Mounted) -> None:
    chunker.key.resolve().write_bytes(chunker.cert.read_bytes())
    server = await start(**chunker.settings)
    assert await server.exit_code() == 1
    [refusal] = [event["event"] for event in server.events if event["level"] == "error"]
    assert str(chunker.key) in refusal


class Load:
    queued_interactive_tokens = 3
    queued_bulk_tokens = 4
    running_tokens = 5


async def test_replicas_ask_each_other_for_their_load_by_the_name_behind_which_they_stand(
    authority: Authority, tmp_path: Path
) -> None:
    """They are called by address, and their certificates carry the name of the headless Service."""
    mounted = authority.issue(tmp_path / "embedder", "localhost", addresses=())
    scaling = make_scaling(lambda: {"m": Load()}, peers="", any_name=True, timeout_seconds=5)
    application = ChunkerApplication()
    application.registrations = [*application.registrations, *scaling.registrations]
    calls = PeerCalls(by(mounted))
    async with running(application, settings(**mounted.settings)) as address:
        addresses = await calls.resolve(Peers(host="localhost", port=int(address.rpartition(":")[2])))
        [target] = [each for each in addresses if each.startswith("ipv4:")]
        assert (await calls(target, timeout_seconds=20)).tokens == 12
        await calls.close()
    await scaling.close()


async def test_processes_are_started_while_connections_come(start: Start, chunker: Mounted, retriever: Mounted) -> None:
    """gRPC asks for the certificate of each new connection in a thread of its own, which needs Python's lock; whoever
    starts a process meanwhile must not hold the lock and wait for that thread."""
    server = await start(environment={"TEST_SPAWNS": "yes"}, **chunker.settings)
    server.allow("warm")
    address = await server.address()

    async def caller() -> None:
        for _ in range(10):
            async with open_channel(address, certificates=by(retriever)) as channel:
                await stub(channel).Chunk(REQUEST, wait_for_ready=True, timeout=60)

    await asyncio.gather(*(caller() for _ in range(12)))
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0
