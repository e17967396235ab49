"""Certificates are renewed on disk while calls come and go: none fails, and what is broken on disk is left alone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from authority import DAY, Authority, Mounted
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh_rpc import renewing_channel
from kbmesh_rpc.certificates import (
    EXPIRY,
    RELOAD_FAILURES,
    RELOADS,
    CertificateFiles,
    Certificates,
    certificates_at,
)
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running
from prometheus_client import Counter, Gauge
from rpc.chunker_application import ChunkerApplication, Context, settings, stub

REQUEST = chunker_pb2.ChunkRequest()


def at(mounted: Mounted) -> Certificates:
    return certificates_at(CertificateFiles(certificate=mounted.cert, key=mounted.key, authorities=mounted.ca))


def value(metric: Counter | Gauge) -> float:
    found: float = next(iter(metric.collect())).samples[0].value
    return found


class Chunker:
    """Notes which certificate each caller has shown."""

    def __init__(self) -> None:
        self.shown: list[bytes] = []
        self.release = asyncio.Event()

    async def chunk(self, _request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        [certificate] = context.auth_context()["x509_pem_cert"]
        self.shown.append(certificate)
        await asyncio.sleep(0)
        return chunker_pb2.ChunkResponse()

    async def chunk_stream(
        self, requests: AsyncIterator[chunker_pb2.ChunkStreamRequest], _context: Context
    ) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
        async for _ in requests:
            yield chunker_pb2.ChunkStreamResponse()

    @property
    def application(self) -> ChunkerApplication:
        return ChunkerApplication(chunk=self.chunk, chunk_stream=self.chunk_stream)


async def test_no_call_fails_while_certificates_and_authority_are_renewed(tmp_path: Path) -> None:
    """Under load both sides move to another authority, as one does: first it is trusted beside the old one, then all
    certificates come from it, then the old one is trusted no more."""
    old, new = Authority("old"), Authority("new")
    server, client = old.issue(tmp_path / "server", "chunker"), old.issue(tmp_path / "client", "retriever")
    chunker = Chunker()
    failures: list[grpc.aio.AioRpcError] = []
    done = asyncio.Event()
    count = 0

    async def call(channel: grpc.aio.Channel) -> None:
        nonlocal count
        while not done.is_set():
            try:
                await stub(channel).Chunk(REQUEST, timeout=20)
                count += 1
            except grpc.aio.AioRpcError as error:
                failures.append(error)

    async def more_calls(many: int) -> None:
        before = count
        while count < before + many:  # noqa: ASYNC110 - callers count for themselves
            await asyncio.sleep(0.01)

    options = settings(**server.settings, max_connection_age_seconds=1, tls_reload_seconds=0.05)
    async with (
        running(chunker.application, options) as address,
        open_channel(address, certificates=at(client)) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        callers = [tasks.create_task(call(channel)) for _ in range(8)]
        held = stub(channel).ChunkStream(timeout=60)
        await held.write(chunker_pb2.ChunkStreamRequest())
        await held.read()
        await more_calls(50)
        stages = [
            (old, old.pem + new.pem),
            (new, old.pem + new.pem),
            (new, new.pem),
            (new, new.pem),
        ]
        for signer, trusted in stages:
            pairs = signer.pair("chunker"), signer.pair("retriever")
            server.write(pairs[0], trusted)
            client.write(pairs[1], trusted)
            while (at(server).pems.certificate, at(client).pems.certificate) != (  # noqa: ASYNC110 - files are polled
                pairs[0].certificate,
                pairs[1].certificate,
            ):
                await asyncio.sleep(0.02)
            await more_calls(50)
            while chunker.shown[-1].strip() != pairs[1].certificate.strip():
                await more_calls(1)
        await held.write(chunker_pb2.ChunkStreamRequest())
        assert await held.read() == chunker_pb2.ChunkStreamResponse(), "a stream goes on over its old connection"
        await held.done_writing()
        done.set()
        await asyncio.gather(*callers)
    assert failures == []
    assert len({*chunker.shown}) == 5


async def test_what_is_in_flight_keeps_its_channel_until_it_ends(tmp_path: Path) -> None:
    authority = Authority()
    server, client = authority.issue(tmp_path / "server", "a"), authority.issue(tmp_path / "client", "b")
    begun, release = asyncio.Event(), asyncio.Event()

    async def chunk(_request: chunker_pb2.ChunkRequest, _context: Context) -> chunker_pb2.ChunkResponse:
        begun.set()
        await release.wait()
        return chunker_pb2.ChunkResponse()

    application = ChunkerApplication(chunk=chunk)
    async with (
        running(application, settings(**server.settings)) as address,
        open_channel(address, certificates=at(client)) as channel,
    ):
        assert isinstance(channel, renewing_channel.RenewingChannel)
        first = channel.newest
        call = stub(channel).Chunk(REQUEST, timeout=60)
        await begun.wait()
        authority.issue(tmp_path / "client", "b")
        await at(client).refresh_all()
        assert channel.newest is not first
        assert first.get_state() is grpc.ChannelConnectivity.READY
        release.set()
        await call
        while first.get_state() is not grpc.ChannelConnectivity.SHUTDOWN:  # noqa: ASYNC110 - gRPC tells nobody
            await asyncio.sleep(0)
        await stub(channel).Chunk(REQUEST, timeout=60)


async def test_certificates_that_the_other_side_does_not_take_yet_cost_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewing_channel, "TRIAL_SECONDS", 0.3)
    authority, other = Authority(), Authority("other")
    server, client = authority.issue(tmp_path / "server", "a"), authority.issue(tmp_path / "client", "b")
    chunker = Chunker()
    async with (
        running(chunker.application, settings(**server.settings)) as address,
        open_channel(address, certificates=at(client)) as channel,
    ):
        await stub(channel).Chunk(REQUEST)
        client.write(other.pair("b"), authority.pem)
        await at(client).refresh_all()
        await stub(channel).Chunk(REQUEST)
        assert len(set(chunker.shown)) == 1, "calls go on with the certificate that is taken"
        # Now the server trusts the other authority too, and the next look moves over.
        server.write(authority.pair("a"), authority.pem + other.pem)
        await at(server).refresh_all()
        await at(client).refresh_all()
        await stub(channel).Chunk(REQUEST)
        assert len(set(chunker.shown)) == 2


async def test_a_channel_that_was_never_used_takes_what_there_is(tmp_path: Path) -> None:
    authority, other = Authority(), Authority("other")
    server, client = authority.issue(tmp_path / "server", "a"), other.issue(tmp_path / "client", "b")
    async with (
        running(ChunkerApplication(), settings(**server.settings)) as address,
        open_channel(address, certificates=at(client)) as channel,
    ):
        client.write(authority.pair("b"), authority.pem)
        await at(client).refresh_all()
        await stub(channel).Chunk(REQUEST)


async def test_a_server_that_is_away_does_not_hold_new_certificates_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr(renewing_channel, "TRIAL_SECONDS", 0.2)
    authority, other = Authority(), Authority("other")
    server, client = authority.issue(tmp_path / "server", "a"), authority.issue(tmp_path / "client", "b")
    async with open_channel(f"127.0.0.1:{free_port}", certificates=at(client)) as channel:
        async with running(ChunkerApplication(), settings(port=free_port, **server.settings)):
            await stub(channel).Chunk(REQUEST)
        for mounted, name in ((server, "a"), (client, "b")):
            mounted.write(other.pair(name), other.pem)
            await at(mounted).refresh_all()
        async with running(ChunkerApplication(), settings(port=free_port, **server.settings)):
            await stub(channel).Chunk(REQUEST, wait_for_ready=True, timeout=60)


BROKEN = ["the key of another", "half a certificate", "half a key", "no authority", "a file is away", "expired"]


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_is_broken_on_disk_is_left_alone_until_it_is_whole(tmp_path: Path, broken: str) -> None:
    authority = Authority()
    server, client = authority.issue(tmp_path / "server", "a"), authority.issue(tmp_path / "client", "b")
    async with (
        running(ChunkerApplication(), settings(**server.settings)) as address,
        open_channel(address, certificates=at(client)) as channel,
    ):
        await stub(channel).Chunk(REQUEST)
        before = at(server).pems
        failures, reloads = value(RELOAD_FAILURES), value(RELOADS)
        fresh = authority.pair("a", ends=2 * DAY)
        match broken:
            case "the key of another":
                server.cert.resolve().write_bytes(fresh.certificate)
            case "half a certificate":
                server.cert.resolve().write_bytes(fresh.certificate[:200])
            case "half a key":
                server.key.resolve().write_bytes(fresh.key[:60])
            case "no authority":
                server.ca.resolve().write_bytes(b"")
            case "a file is away":
                server.key.resolve().unlink()
            case _:
                server.write(authority.pair("a", ends=-timedelta(minutes=1)), authority.pem)
        await at(server).refresh_all()
        assert at(server).pems is before
        assert (value(RELOAD_FAILURES), value(RELOADS)) == (failures + 1, reloads)
        async with open_channel(address, certificates=at(client)) as another:
            await stub(another).Chunk(REQUEST)
        server.write(fresh, authority.pem)
        await at(server).refresh_all()
        assert at(server).pems.certificate == fresh.certificate
        assert value(RELOADS) == reloads + 1
        assert value(EXPIRY.labels(str(server.cert))) == fresh.expires.timestamp()
        async with open_channel(address, certificates=at(client)) as another:
            await stub(another).Chunk(REQUEST)


async def test_files_that_change_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap of a mount falls between two reads: certificate and key of two pairs are never used together."""
    authority = Authority()
    mounted = authority.issue(tmp_path, "a")
    certificates = at(mounted)
    fresh = authority.pair("a")
    read = Path.read_bytes

    def read_and_swap(path: Path) -> bytes:
        content = read(path)
        if path == mounted.cert and certificates.pems.certificate == content:
            mounted.write(fresh, authority.pem)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_swap)
    await certificates.refresh_all()
    assert (certificates.pems.certificate, certificates.pems.key) == (fresh.certificate, fresh.key)


async def test_the_same_trouble_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    mounted = authority.issue(tmp_path, "a")
    certificates = at(mounted)
    mounted.cert.resolve().write_bytes(b"")
    for _ in range(3):
        await certificates.refresh_all()
    assert value(RELOAD_FAILURES) >= 3
    mounted.write(authority.pair("a"), authority.pem)
    await certificates.refresh_all()
    assert certificates.pems.certificate == mounted.cert.read_bytes()
