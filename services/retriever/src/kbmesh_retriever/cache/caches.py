"""The caches that the settings ask for."""

from dataclasses import dataclass

from kbmesh_rpc.errors import FeatureUnsupported

from kbmesh_retriever.cache.memory import MemoryCache
from kbmesh_retriever.cache.metrics import CacheMetrics, CacheName
from kbmesh_retriever.cache.port import Cache
from kbmesh_retriever.settings import RetrieverSettings


@dataclass(frozen=True, kw_only=True)
class Caches:
    """Each is None where nothing is kept."""

    answers: Cache | None
    query_vectors: Cache | None
    answer_metrics: CacheMetrics
    query_vector_metrics: CacheMetrics

    async def open(self) -> None:
        for cache in self._all():
            await cache.open()

    async def close(self) -> None:
        for cache in self._all():
            await cache.close()

    def _all(self) -> list[Cache]:
        return [cache for cache in (self.answers, self.query_vectors) if cache is not None]


def caches_of(settings: RetrieverSettings) -> Caches:
    """Connects to nothing yet. Raises FeatureUnsupported where what a cache needs is not installed, and ValueError for
    settings that are wrong."""
    metrics: dict[CacheName, CacheMetrics] = {name: CacheMetrics(name) for name in ("answers", "query_vectors")}
    return Caches(
        answers=_cache(settings, metrics["answers"]),
        query_vectors=_cache(settings, metrics["query_vectors"]),
        answer_metrics=metrics["answers"],
        query_vector_metrics=metrics["query_vectors"],
    )


def _cache(settings: RetrieverSettings, metrics: CacheMetrics) -> Cache | None:
    if settings.cache == "off":
        return None
    if settings.cache == "memory":
        return MemoryCache(
            metrics,
            max_entries=settings.cache_entries,
            leave_together=max(1, settings.cache_entries // 10),
            max_bytes=settings.cache_memory_bytes,
        )
    try:
        from kbmesh_retriever.cache.redis import RedisCache
    except ImportError as error:
        raise FeatureUnsupported("the cache redis without the extra kbmesh-retriever[redis]") from error
    try:
        return RedisCache(
            settings.redis_url.get_secret_value(), metrics, timeout_seconds=settings.redis_timeout_seconds
        )
    except ValueError:
        # Its own text may hold the URL, and that a password.
        raise ValueError("redis_url is no URL of Redis: redis://HOST:PORT/NUMBER, rediss:// or unix://") from None
