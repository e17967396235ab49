"""A cache in Redis, which may be down or slow at any time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kbmesh_rpc.logs import get_logger
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.cache.seal import seal, unseal

logger = get_logger(__name__)
T = TypeVar("T")

KEY_PREFIX = "kbmesh:v1:"
_MAX_CONNECTIONS = 32
_PROBE_SECONDS = 2.0
"""How long Redis may take to connect and answer before it is used again. Nobody waits for it."""
_PAUSE_SECONDS = 1.0
"""Between two probes of one that is down."""


class RedisCache:
    """A `Cache` in the database that `url` names (redis://, rediss:// or unix://).

    The first call that fails or takes longer than `timeout_seconds` is a miss, and so is every later one, at once,
    until Redis has answered a probe that nobody waits for."""

    def __init__(
        self,
        url: str,
        metrics: CacheMetrics,
        *,
        timeout_seconds: float = 0.02,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError where the URL is none. Connects to nothing yet."""
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=timeout_seconds,
            # The probe may take longer; what callers wait for is bounded by `_within`.
            socket_timeout=_PROBE_SECONDS,
            socket_connect_timeout=_PROBE_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis(connection_pool=pool)
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._usable = True
        self._next_probe = 0.0
        self._probe: asyncio.Task[None] | None = None

    async def get(self, key: str) -> bytes | None:
        sealed = await self._within(lambda: self._redis.get(KEY_PREFIX + key))
        if sealed is None:
            return None
        # Text where the URL asks for it.
        value = unseal(key, sealed) if isinstance(sealed, bytes) else None
        if value is None:
            self._metrics.failed("broken")
        return value

    async def put(self, key: str, value: bytes, *, ttl_seconds: float) -> None:
        milliseconds = int(ttl_seconds * 1000)
        if milliseconds > 0:
            await self._within(lambda: self._redis.set(KEY_PREFIX + key, seal(key, value), px=milliseconds))

    async def open(self) -> None:
        """Connects, for the first caller not to wait for it."""
        await self._try_again()

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait([self._probe])
        await self._redis.aclose(close_connection_pool=True)

    async def _within(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        if not self._usable:
            self._probe_again()
            return None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await ask()
        except (TimeoutError, RedisTimeoutError):
            self._metrics.failed("timeout")
            self._lost("it did not answer in time")
        except ResponseError:
            # It is there, and will not do this: no memory left, or a value of another kind under the key.
            self._metrics.failed("refused")
        except (RedisError, OSError, EOFError) as error:
            self._metrics.failed("unavailable")
            self._lost(type(error).__name__)
        return None

    def _lost(self, why: str) -> None:
        if self._usable:
            # The error's own text may hold the URL.
            logger.warning("Redis is not used until it answers again", cause=why)
        self._usable = False
        self._next_probe = self._clock() + _PAUSE_SECONDS

    def _probe_again(self) -> None:
        if self._probe is not None and not self._probe.done():
            return
        if self._clock() >= self._next_probe:
            self._probe = asyncio.create_task(self._try_again())

    async def _try_again(self) -> None:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._redis.ping()
        except (TimeoutError, RedisError, OSError, EOFError) as error:
            self._lost(type(error).__name__)
            return
        if not self._usable:
            logger.info("Redis answers again")
        self._usable = True
