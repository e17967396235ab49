"""What is kept in memory, and who has to leave."""

import pytest
from kbmesh_retriever.cache.memory import MemoryCache
from kbmesh_retriever.cache.metrics import BYTES, ENTRIES, EVICTIONS, CacheMetrics


class Seconds:
    """A clock that is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def cache_of(seconds: Seconds, **limits: int) -> MemoryCache:
    return MemoryCache(CacheMetrics("answers"), clock=seconds, **limits)


async def test_a_value_is_there_for_its_time(seconds: Seconds) -> None:
    cache = cache_of(seconds)
    await cache.put("a", b"1", ttl_seconds=10)
    seconds.now = 9.9
    assert await cache.get("a") == b"1"
    seconds.now = 10
    assert await cache.get("a") is None
    await cache.put("a", b"2", ttl_seconds=0)
    assert await cache.get("a") is None


async def test_the_oldest_leave_together_to_make_room(seconds: Seconds) -> None:
    cache = cache_of(seconds, max_entries=10, leave_together=3)
    before = EVICTIONS.labels("answers")._value.get()
    for number in range(10):
        await cache.put(str(number), b"x", ttl_seconds=60)
    await cache.put("0", b"again", ttl_seconds=60)  # put anew: the youngest now
    await cache.put("10", b"x", ttl_seconds=60)
    there = [name for name in map(str, range(11)) if await cache.get(name) is not None]
    assert there == ["0", "4", "5", "6", "7", "8", "9", "10"]
    assert EVICTIONS.labels("answers")._value.get() - before == 3
    assert ENTRIES.labels("answers")._value.get() == 8


async def test_many_bytes_make_the_oldest_leave_too(seconds: Seconds) -> None:
    cache = cache_of(seconds, max_bytes=100, leave_together=1)
    for name in "abc":
        await cache.put(name, b"x" * 40, ttl_seconds=60)
    assert await cache.get("a") is None
    assert await cache.get("b") == b"x" * 40
    assert BYTES.labels("answers")._value.get() == 80
    await cache.put("d", b"x" * 101, ttl_seconds=60)
    assert await cache.get("d") is None
    assert await cache.get("c") is not None, "what does not fit at all costs nobody else's place"
    await cache.close()
    assert BYTES.labels("answers")._value.get() == 0
