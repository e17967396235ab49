"""Answers in a Redis, that may be away, slow, full, or somebody else's too."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from edge_process import free_port
from kbmesh_retriever.cache.metrics import ERRORS, CacheMetrics
from kbmesh_retriever.cache.seal import seal, unseal
from redis_process import redis_missing, redis_process

pytestmark = pytest.mark.skipif(bool(redis_missing()), reason=redis_missing() or "it is there")

if not redis_missing():
    from kbmesh_retriever.cache.redis import KEY_PREFIX, RedisCache
    from redis.asyncio import Redis


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_process() as url:
        yield url


@pytest.fixture
async def redis(url: str) -> "AsyncIterator[Redis]":
    client = Redis.from_url(url)
    await client.flushall()
    yield client
    await client.aclose()


def cache_at(url: str, *, timeout_seconds: float = 5, clock: "object" = time.monotonic) -> "RedisCache":
    """Patient, so that a busy machine fails no test; what is about time says its own."""
    return RedisCache(url, CacheMetrics("answers"), timeout_seconds=timeout_seconds, clock=clock)  # type: ignore[arg-type]  # a clock


def errors(fault: str) -> float:
    count: float = ERRORS.labels("answers", fault)._value.get()
    return count


async def until(ready: "object") -> None:
    for _ in range(500):
        if await ready():  # type: ignore[operator]  # a coroutine function
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be")


async def test_replicas_share_what_they_keep(url: str, redis: "Redis") -> None:
    one, other = cache_at(url), cache_at(url)
    await one.put("a", b"\0\xff", ttl_seconds=60)
    assert await other.get("a") == b"\0\xff"
    assert await other.get("b") is None
    assert [key.decode() async for key in redis.scan_iter()] == [f"{KEY_PREFIX}a"] == ["kbmesh:v1:a"]
    assert 0 < await redis.pttl(f"{KEY_PREFIX}a") <= 60_000
    await one.put("c", b"x", ttl_seconds=0)
    assert await one.get("c") is None
    await one.close()
    await other.close()


@pytest.mark.parametrize("foreign", [b"", b"hello", seal("b", b"of another key"), seal("a", b"cut")[:-1]])
async def test_what_it_did_not_put_there_is_a_miss(url: str, redis: "Redis", foreign: bytes) -> None:
    cache, before = cache_at(url), errors("broken")
    await redis.set(f"{KEY_PREFIX}a", foreign)
    assert await cache.get("a") is None
    assert errors("broken") - before == 1
    await cache.put("a", b"mine", ttl_seconds=60)
    assert await cache.get("a") == b"mine"
    await cache.close()


async def test_a_value_of_another_kind_is_a_miss_and_no_outage(url: str, redis: "Redis") -> None:
    cache, before = cache_at(url), errors("refused")
    await redis.lpush(f"{KEY_PREFIX}a", "x")
    assert await cache.get("a") is None
    assert errors("refused") - before == 1
    await cache.put("b", b"still there", ttl_seconds=60)
    assert await cache.get("b") == b"still there"
    await cache.close()


async def test_a_redis_without_room_still_gives_what_it_has() -> None:
    with redis_process() as url:
        cache = cache_at(url)
        await cache.put("a", b"kept", ttl_seconds=60)
        client = Redis.from_url(url)
        await client.config_set("maxmemory", "1kb")
        await client.aclose()
        await cache.put("b", b"x", ttl_seconds=60)
        assert await cache.get("b") is None
        assert await cache.get("a") == b"kept"
        await cache.close()


async def test_one_that_is_away_is_a_miss_until_it_comes() -> None:
    port, now = free_port(), 0.0
    cache = cache_at(f"redis://127.0.0.1:{port}", clock=lambda: now)
    before = errors("unavailable")
    for _ in range(50):
        assert await cache.get("a") is None
        await cache.put("a", b"x", ttl_seconds=60)
    assert errors("unavailable") - before == 1, "after the first nobody asks it"
    with redis_process(port=port):

        async def answers() -> bool:
            nonlocal now
            now += 10
            await cache.put("a", b"x", ttl_seconds=60)
            return await cache.get("a") == b"x"

        await until(answers)
    assert await cache.get("a") is None
    await cache.close()


async def test_one_that_hangs_costs_one_wait() -> None:
    """A server that takes connections and says nothing."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=100)
    port = silent.getsockname()[1]
    cache = cache_at(f"redis://127.0.0.1:{port}", timeout_seconds=0.02)
    before = errors("timeout")
    await asyncio.gather(*(cache.get(str(number)) for number in range(20)))
    waited = errors("timeout") - before
    assert 1 <= waited <= 20
    for number in range(100):
        assert await cache.get(str(number)) is None
    assert errors("timeout") - before == waited, "nobody waits for it again"
    await cache.close()
    silent.close()


async def test_a_password_is_needed_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with redis_process("--requirepass", "s3cret") as url:
        right = cache_at(url.replace("//", "//:s3cret@"))
        await right.put("a", b"x", ttl_seconds=60)
        assert await right.get("a") == b"x"
        wrong = cache_at(url.replace("//", "//:guess@"))
        assert await wrong.get("a") is None
        await right.close()
        await wrong.close()
    assert "s3cret" not in caplog.text
    assert "guess" not in caplog.text


def test_a_seal_is_for_one_key_and_one_value() -> None:
    sealed = seal("key", b"value")
    assert unseal("key", sealed) == b"value"
    assert unseal("other", sealed) is None
    assert unseal("key", sealed + b"!") is None
    assert unseal("key", b"kbmesh-value-2" + sealed[14:]) is None
    assert unseal("key", seal("key", b"")) == b""
