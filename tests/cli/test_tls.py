"""SDK and command reach a mesh by TLS, go on when certificates are renewed, and say what is wrong where they do not."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from authority import Authority, Mounted
from cli.command import Kbmesh
from cli.scripted_mesh import Script, ScriptedMesh
from kbmesh_client import (
    AccessDenied,
    AsyncKbmeshClient,
    IngestDocument,
    KbmeshClient,
    KbmeshError,
    ServiceUnavailable,
    TlsFiles,
    TlsFilesError,
    tls,
)
from kbmesh_rpc.certificates import CertificateFiles, certificates_at
from kbmesh_rpc.server import running
from kbmesh_rpc.settings import ServerSettings
from structlog.testing import capture_logs


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Mounted:
    return authority.issue(tmp_path / "server", "retriever")


@pytest.fixture
def agent(authority: Authority, tmp_path: Path) -> Mounted:
    """What the caller has."""
    return authority.issue(tmp_path / "agent", "agent")


def files(mounted: Mounted, **changes: Any) -> TlsFiles:
    return TlsFiles(**{"ca": mounted.ca, "cert": mounted.cert, "key": mounted.key, **changes})


@pytest.fixture
async def secure(script: Script, server: Mounted) -> AsyncIterator[str]:
    """host:port of a mesh that wants certificates, and trusts whom the agent is."""
    options = ServerSettings(port=0, metrics_port=0, tls_trusted_callers="agent", **server.settings)
    with capture_logs():  # as for `endpoint`
        async with running(ScriptedMesh(script), options) as target:
            yield target


async def refresh(*mounts: Mounted) -> None:
    for mounted in mounts:
        await certificates_at(
            CertificateFiles(certificate=mounted.cert, key=mounted.key, authorities=mounted.ca)
        ).refresh_all()


async def test_both_clients_speak_mutual_tls(secure: str, agent: Mounted, script: Script) -> None:
    async with AsyncKbmeshClient(secure, tenant="acme", tls=files(agent)) as client:
        await client.get_knowledge_base("handbook")
        documents = [IngestDocument(external_id="a.md", content="text")]
        assert [result.external_id async for result in client.ingest("handbook", documents)] == ["a.md"]

    def in_step() -> None:
        with KbmeshClient(secure, tenant="acme", tls=files(agent)) as client:
            client.get_knowledge_base("handbook")
            assert [each.external_id for each in client.ingest("handbook", documents)] == ["a.md"]
            assert client.retrieve("?", "handbook")

    await asyncio.to_thread(in_step)
    assert {call.tenant for call in script.calls} == {"acme"}


async def test_a_caller_that_is_not_trusted_names_no_tenant(secure: str, authority: Authority, tmp_path: Path) -> None:
    stranger = authority.issue(tmp_path / "stranger", "stranger")
    async with AsyncKbmeshClient(secure, tenant="acme", tls=files(stranger)) as client:
        with pytest.raises(AccessDenied) as caught:
            await client.get_knowledge_base("handbook")
    assert caught.value.reason == "UNAUTHENTICATED"
    async with AsyncKbmeshClient(secure, tls=files(stranger)) as client:
        await client.get_knowledge_base("handbook")


@pytest.fixture
def always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)


async def test_the_asynchronous_client_follows_renewed_files(
    secure: str, server: Mounted, agent: Mounted, script: Script, authority: Authority, always_looks: None
) -> None:
    """A stream that is open stays on its connection; new calls go over one with the new certificate."""
    other = Authority("other")
    more = asyncio.Event()

    async def documents() -> AsyncIterator[IngestDocument]:
        yield IngestDocument(external_id="before", content="text")
        await more.wait()
        yield IngestDocument(external_id="after", content="text")

    async with AsyncKbmeshClient(secure, tls=files(agent)) as client:
        results = client.ingest("handbook", documents())
        assert (await anext(results)).external_id == "before"
        server.write(other.pair("retriever"), authority.pem + other.pem)
        agent.write(other.pair("agent"), authority.pem + other.pem)
        await refresh(server)
        for _ in range(3):
            await client.get_knowledge_base("handbook")
        more.set()
        assert [result.external_id async for result in results] == ["after"]
        # The old authority is trusted no more; the connections are all of the new one.
        for mounted, name in ((server, "retriever"), (agent, "agent")):
            mounted.write(other.pair(name), other.pem)
        await refresh(server)
        await client.get_knowledge_base("handbook")


async def test_the_synchronous_client_follows_renewed_files(
    secure: str, server: Mounted, agent: Mounted, authority: Authority, always_looks: None
) -> None:
    other = Authority("other")
    renewed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def documents() -> Iterator[IngestDocument]:
        yield IngestDocument(external_id="before", content="text")
        asyncio.run_coroutine_threadsafe(renewed.wait(), loop).result()
        yield IngestDocument(external_id="after", content="text")

    client = await asyncio.to_thread(KbmeshClient, secure, tls=files(agent))
    results = iter(client.ingest("handbook", documents()))
    assert (await asyncio.to_thread(next, results)).external_id == "before"
    server.write(other.pair("retriever"), authority.pem + other.pem)
    agent.write(other.pair("agent"), authority.pem + other.pem)
    await refresh(server)
    await asyncio.gather(*(asyncio.to_thread(client.get_knowledge_base, "handbook") for _ in range(8)))
    renewed.set()
    assert [each.external_id for each in await asyncio.to_thread(list, results)] == ["after"]
    await asyncio.to_thread(client.get_knowledge_base, "handbook")
    await asyncio.to_thread(client.close)


async def test_files_that_do_not_fit_are_left_alone(
    secure: str, agent: Mounted, authority: Authority, always_looks: None
) -> None:
    async with AsyncKbmeshClient(secure, tls=files(agent)) as client:
        await client.get_knowledge_base("handbook")
        fresh = authority.pair("agent")
        agent.cert.resolve().write_bytes(fresh.certificate)
        await client.get_knowledge_base("handbook")
        agent.cert.resolve().write_bytes(fresh.certificate[:99])
        await client.get_knowledge_base("handbook")
        agent.write(fresh, authority.pem)
        await client.get_knowledge_base("handbook")


async def told(endpoint: str, **options: Any) -> str:
    """What both clients say of a call that fails."""

    def in_step() -> KbmeshError:
        with KbmeshClient(endpoint, timeout_seconds=20, **options) as client, pytest.raises(KbmeshError) as caught:
            client.get_knowledge_base("handbook")
        return caught.value

    async with AsyncKbmeshClient(endpoint, timeout_seconds=20, **options) as client:
        with pytest.raises(ServiceUnavailable) as caught:
            await client.get_knowledge_base("handbook")
    assert (await asyncio.to_thread(in_step)).message == caught.value.message
    assert caught.value.metadata == {"dependency": endpoint}
    return caught.value.message


async def test_what_is_wrong_is_said(secure: str, endpoint: str, agent: Mounted, tmp_path: Path) -> None:
    other = Authority("other")
    stranger = other.issue(tmp_path / "stranger", "agent", trusts=agent.ca.read_bytes())
    foreign = tmp_path / "other.crt"
    foreign.write_bytes(other.pem)
    assert "authority" in await told(secure, tls=files(agent, ca=foreign))
    assert "authority" in await told(secure, tls=TlsFiles())
    assert "another name" in await told(secure, tls=files(agent, server_name="gateway.example"))
    assert "plain text" in await told(endpoint, tls=files(agent))
    for without in ({}, {"tls": TlsFiles(ca=agent.ca)}, {"tls": files(stranger)}):
        assert "wants TLS, or a client certificate" in await told(secure, **without)


async def test_expired_certificates_are_said_to_be(script: Script, authority: Authority, tmp_path: Path) -> None:
    expired = authority.issue(tmp_path / "expired", "retriever", ends=-timedelta(minutes=1))
    options = ServerSettings(port=0, metrics_port=0, **expired.settings)
    async with running(ScriptedMesh(script), options) as target:
        assert "has expired" in await told(target, tls=TlsFiles(ca=expired.ca))


@pytest.mark.parametrize(
    "target",
    ["retriever:7400", "dns:///retriever:7400", "10.0.0.7:7400", "ipv4:127.0.0.1:1,10.0.0.7:1", "127.0.0.1.a.b:1"],
)
def test_plain_text_leaves_the_machine_only_where_it_is_asked_for(target: str) -> None:
    with pytest.raises(ValueError, match="plain text would go to"):
        KbmeshClient(target)
    KbmeshClient(target, plaintext=True).close()
    KbmeshClient(target, tls=TlsFiles()).close()


@pytest.mark.parametrize("target", ["unix:/run/kbmesh.sock", "localhost:7400", "[::1]:7400", "dns:///localhost:7400"])
def test_on_this_machine_plain_text_is_fine(target: str) -> None:
    KbmeshClient(target).close()


def test_files_that_cannot_be_used_are_named_at_once(authority: Authority, agent: Mounted, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belong together"):
        TlsFiles(cert=agent.cert)
    other = authority.issue(tmp_path / "other", "other")
    for wrong, said in (
        (files(agent, key=other.key), "is not the key of"),
        (files(agent, ca=tmp_path / "none"), "No such file"),
        (files(agent, ca=agent.key), "no certificate in it"),
        (files(agent, key=agent.cert), "no certificate and key"),
    ):
        with pytest.raises(TlsFilesError, match=said):
            KbmeshClient("retriever:7400", tls=wrong)


async def test_the_command_speaks_tls(
    secure: str, agent: Mounted, kbmesh: Kbmesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--tls-ca", agent.ca, "--tls-cert", agent.cert, "--tls-key", agent.key)
    done = await kbmesh("--endpoint", secure, *options, "kb", "show", "handbook", "--json")
    assert json.loads(done.out)["name"] == "handbook", done.err
    # They may stand after the command, and in the environment.
    done = await kbmesh("doctor", "--json", "--endpoint", secure, *options)
    assert [each["verdict"] for each in json.loads(done.out)["findings"] if each["check"] == "retriever"] == ["ok"]
    for name, path in (("CA", agent.ca), ("CERT", agent.cert), ("KEY", agent.key)):
        monkeypatch.setenv(f"KBMESH_TLS_{name}", str(path))
    done = await kbmesh("--endpoint", secure, "kb", "show", "handbook", "--json")
    assert json.loads(done.out)["name"] == "handbook", done.err
    done = await kbmesh("--endpoint", secure, "--tls-server-name", "other", "kb", "show", "handbook")
    assert done.code == 1
    assert "another name" in done.err


async def test_the_command_says_what_is_missing(secure: str, agent: Mounted, kbmesh: Kbmesh, tmp_path: Path) -> None:
    for arguments, said in (
        (("--tls-cert", agent.cert, "--tls-key", agent.key), "whom to trust"),
        (("--tls-ca", agent.ca, "--tls-key", agent.key), "belong together"),
        (("--tls-ca", tmp_path / "none"), "No such file"),
        (("--endpoint", "retriever:7400"), "plain text would go to retriever:7400"),
    ):
        done = await kbmesh("--endpoint", secure, *arguments, "kb", "list")
        assert done.code == 2, done.err
        assert said in done.err
    done = await kbmesh("--endpoint", secure, "kb", "list")
    assert done.code == 1
    assert "wants TLS" in done.err
    done = await kbmesh("--endpoint", secure, "doctor", "--json")
    [finding] = [each for each in json.loads(done.out)["findings"] if each["check"] == "retriever"]
    assert finding["verdict"] == "error"
    assert "--tls-ca" in finding["hint"]
    done = await kbmesh("up", "--tls-ca", agent.ca)
    assert (done.code, "needs a certificate" in done.err) == (2, True)
