"""Stores are reached by TLS, and told which authority to trust: Qdrant, PostgreSQL and Redis."""

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import edge_process
import pytest
from authority import Authority, Mounted
from kbmesh_edge.application import EdgeApplication
from kbmesh_edge.folder import DataFolder
from kbmesh_edge.settings import EdgeSettings
from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.settings import RetrieverSettings
from kbmesh_retriever.stores.qdrant import QdrantStore
from kbmesh_retriever.stores.registry import open_store
from kbmesh_rpc.certificates import CertificateFiles, certificates_at
from kbmesh_rpc.errors import DependencyUnavailable
from kbmesh_rpc.server import running
from postgres_process import postgres_missing, postgres_process
from redis_process import redis_missing, redis_process
from sqlalchemy import text


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Mounted:
    return authority.issue(tmp_path / "server", "store")


@pytest.fixture
def client(authority: Authority, tmp_path: Path) -> Mounted:
    return authority.issue(tmp_path / "client", "retriever")


@pytest.fixture
async def edge(server: Mounted, tmp_path: Path) -> AsyncIterator[str]:
    """kbmesh-edge by mutual TLS, which lets the retriever alone in."""
    options = EdgeSettings(port=0, metrics_port=0, tls_allowed_callers="retriever", **server.settings)
    async with running(EdgeApplication(DataFolder.claim(tmp_path / "collections")), options) as address:
        yield f"https://{address}"


def settings_of(mounted: Mounted, url: str, **changes: Any) -> RetrieverSettings:
    files = {"qdrant_ca": mounted.ca, "qdrant_cert": mounted.cert, "qdrant_key": mounted.key}
    return RetrieverSettings(qdrant_url=url, qdrant_timeout_seconds=5, **{**files, **changes})


async def test_qdrant_by_mutual_tls_with_certificates_that_are_renewed(
    edge: str, client: Mounted, server: Mounted, authority: Authority
) -> None:
    store = open_store(settings_of(client, edge))
    assert isinstance(store, QdrantStore)
    await store.health()
    other = Authority("other")
    # The edge moves to another authority; the store that is open follows.
    server.write(other.pair("store"), authority.pem + other.pem)
    client.write(other.pair("retriever"), authority.pem + other.pem)
    for mounted in (server, client):
        files = CertificateFiles(certificate=mounted.cert, key=mounted.key, authorities=mounted.ca)
        await certificates_at(files).refresh_all()
    await store.health()
    await store.ensure_collection("kb-1", dimension=2)
    await store.close()


async def test_qdrant_is_not_trusted_without_its_authority(edge: str, client: Mounted, tmp_path: Path) -> None:
    for wrong in (
        {"qdrant_ca": None, "qdrant_cert": None, "qdrant_key": None},
        {"qdrant_cert": None, "qdrant_key": None},
    ):
        store = open_store(settings_of(client, edge, **wrong))
        with pytest.raises(DependencyUnavailable):
            await store.health()
        await store.close()
    stranger = Authority("stranger").issue(tmp_path / "stranger", "retriever", trusts=client.ca.read_bytes())
    store = open_store(settings_of(stranger, edge))
    with pytest.raises(DependencyUnavailable):
        await store.health()
    await store.close()


@pytest.fixture(scope="module")
def postgres_url(authority: Authority) -> Iterator[str]:
    """A server that lets in only who comes by TLS and shows a certificate."""
    if missing := postgres_missing():
        pytest.skip(missing)
    with postgres_process() as server:
        url = server.new_database()
        asked = [server.programs / "psql", "-tA", url, "-c", "SHOW data_directory"]
        data = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
        pair, owner = authority.pair("postgres"), data.stat()
        for name, content in (("server.crt", pair.certificate), ("server.key", pair.key), ("root.crt", authority.pem)):
            (data / name).write_bytes(content)
            (data / name).chmod(stat.S_IRUSR | stat.S_IWUSR)
            os.chown(data / name, owner.st_uid, owner.st_gid)
        with (data / "postgresql.conf").open("a") as configuration:
            configuration.write("ssl = on\nssl_ca_file = 'root.crt'\n")
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
        server.restart()
        yield url


async def is_encrypted(url: str) -> bool:
    database = Database(url)
    try:
        async with database.reading() as connection:
            return bool(await connection.scalar(text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")))
    finally:
        await database.close()


async def test_postgresql_by_the_parameters_that_its_other_clients_take(postgres_url: str, client: Mounted) -> None:
    client.key.resolve().chmod(stat.S_IRUSR)
    own = f"sslcert={client.cert}&sslkey={client.key}"
    assert await is_encrypted(f"{postgres_url}?sslmode=verify-full&sslrootcert={client.ca}&{own}")


async def test_postgresql_is_not_trusted_without_its_authority(
    postgres_url: str, client: Mounted, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(Authority("other").pem)
    own = f"sslcert={client.cert}&sslkey={client.key}"
    for wrong in (
        f"sslmode=verify-full&sslrootcert={other}&{own}",
        f"sslmode=verify-full&sslrootcert={tmp_path / 'none.crt'}&{own}",
        f"sslmode=verify-full&sslrootcert={client.ca}",
        "sslmode=disable",
    ):
        with pytest.raises(DependencyUnavailable):
            await is_encrypted(f"{postgres_url}?{wrong}")


@pytest.mark.skipif(bool(redis_missing()), reason=redis_missing() or "it is there")
async def test_redis_by_tls(server: Mounted, client: Mounted, tmp_path: Path) -> None:
    from kbmesh_retriever.cache.redis import RedisCache

    port = edge_process.free_port()
    files = ("--tls-cert-file", server.cert, "--tls-key-file", server.key, "--tls-ca-cert-file", server.ca)
    with redis_process("--tls-port", str(port), *map(str, files)):
        own = f"ssl_certfile={client.cert}&ssl_keyfile={client.key}"
        cache = RedisCache(
            f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={client.ca}&{own}", CacheMetrics("answers"), timeout_seconds=5
        )
        await cache.put("a", b"b", ttl_seconds=60)
        assert await cache.get("a") == b"b"
        await cache.close()
        other = tmp_path / "other.crt"
        other.write_bytes(Authority("other").pem)
        for wrong in (f"ssl_ca_certs={other}&{own}", own, f"ssl_ca_certs={client.ca}"):
            stranger = RedisCache(f"rediss://127.0.0.1:{port}/0?{wrong}", CacheMetrics("answers"), timeout_seconds=5)
            await stranger.put("c", b"d", ttl_seconds=60)
            assert await stranger.get("a") is None
            await stranger.close()


PLAIN = {
    "chunker_address": "dns:///chunker:7401",
    "embedder_address": "10.0.0.7:7402",
    "reranker_address": "ipv4:10.0.0.7:7403,10.0.0.8:7403",
    "qdrant_url": "http://qdrant:6334",
    "llm_url": "http://llm.internal/v1",
    "catalog_url": "postgresql://kbmesh:secret@db/kbmesh?sslmode=prefer",
}


@pytest.mark.parametrize("field", PLAIN)
def test_plain_text_that_leaves_the_machine_is_named(field: str) -> None:
    assert RetrieverSettings().plaintext_edges() == ()
    [edge] = RetrieverSettings(**{field: PLAIN[field]}).plaintext_edges()
    assert edge.startswith(f"KBMESH_{field.upper()}")
    assert "secret" not in edge


def test_what_is_encrypted_or_stays_here_is_not_named(client: Mounted) -> None:
    protected = RetrieverSettings(
        host="0.0.0.0",
        chunker_address="dns:///chunker:7401",
        embedder_address="unix:/run/embedder.sock",
        qdrant_url="https://qdrant:6334",
        catalog_url="postgresql://kbmesh:secret@db/kbmesh?sslmode=verify-full",
        cache="redis",
        redis_url="rediss://:secret@redis/0",
        **client.settings,
    )
    assert protected.plaintext_edges() == ()
    local = RetrieverSettings(
        catalog_url="postgresql:///kbmesh?host=/var/run/postgresql", cache="redis", redis_url="unix:///run/redis.sock"
    )
    assert local.plaintext_edges() == ()
    [redis] = RetrieverSettings(cache="redis", redis_url="redis://:secret@redis/0").plaintext_edges()
    assert redis == "KBMESH_REDIS_URL without rediss://"
