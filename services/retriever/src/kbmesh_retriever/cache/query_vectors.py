"""Vectors of queries, kept."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import numpy as np
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.deadline import Deadline
from numpy.typing import NDArray

from kbmesh_retriever.cache.digest import digest_of
from kbmesh_retriever.cache.metrics import CacheMetrics
from kbmesh_retriever.cache.port import Cache
from kbmesh_retriever.cache.single_flight import SingleFlight
from kbmesh_retriever.mesh.port import Embedded, EmbedderPort, ModelInfo

_HEAD = struct.Struct("<IIII")
"""Tokens, tokens cut, bytes of the model's name, dimension."""
_LONGEST_CALL_SECONDS = 120.0
"""Outside of a call: those have no deadline."""


class CachedEmbedder:
    """An `EmbedderPort` that embeds a query once. A vector is kept under the fingerprint that was asked for, so that
    one of another model, revision, pooling or prefix is never given; without a fingerprint nothing is kept. Texts that
    failed are not kept; what was cut of one is, with it. Equal queries at the same time are embedded once. Documents
    pass through. `cache` is None where nothing is kept."""

    def __init__(self, inner: EmbedderPort, cache: Cache | None, metrics: CacheMetrics, *, ttl_seconds: float) -> None:
        self._inner = inner
        self._cache = cache
        self._metrics = metrics
        self._ttl_seconds = ttl_seconds
        self._flights = SingleFlight[Embedded]("embed", may_be_shared=lambda embedded: not any(embedded.errors))

    async def find_model(self, name: str) -> ModelInfo:
        return await self._inner.find_model(name)

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        return await self._inner.count_tokens(texts, model=model)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        async def ask(wanted: Sequence[str]) -> Embedded:
            return await self._inner.embed(
                wanted,
                model=model,
                expected_fingerprint=expected_fingerprint,
                input_type=input_type,
                priority=priority,
            )

        if input_type != "query" or not expected_fingerprint:
            return await ask(texts)
        keys = [digest_of("query vector", expected_fingerprint, model, input_type, text) for text in texts]
        kept = [_unpack(value, expected_fingerprint) for value in await self._get(keys)]
        missing = [index for index, one in enumerate(kept) if one is None]
        self._metrics.count("hit", len(texts) - len(missing))
        fresh: Embedded | None = None
        if len(missing) == 1:
            fresh = await self._once(keys[missing[0]], texts[missing[0]], ask)
        elif missing:
            self._metrics.count("miss", len(missing))
            fresh = await ask([texts[index] for index in missing])
        if fresh is None:
            return _joined([one for one in kept if one is not None])
        if len(fresh.errors) != len(missing) or fresh.vectors.shape[0] != len(missing):
            return await ask(texts)  # Not one row for each text: the caller sees it as it is, and it is not kept.
        if fresh.fingerprint == expected_fingerprint:
            await self._keep(keys, missing, fresh)
        if len(missing) == len(texts):
            return fresh
        for place, index in enumerate(missing):
            kept[index] = _row(fresh, place)
        rows = [one for one in kept if one is not None]
        # A fingerprint has one dimension, and one model changes its fingerprint only between two calls.
        alike = {(one.fingerprint, one.vectors.shape[1]) for one in rows}
        return _joined(rows) if len(alike) == 1 else await ask(texts)

    async def close(self) -> None:
        await self._flights.close()

    async def _get(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        if self._cache is None:
            return [None] * len(keys)
        if len(keys) == 1:
            return [await self._cache.get(keys[0])]
        return await asyncio.gather(*map(self._cache.get, keys))

    async def _once(self, key: str, text: str, ask: Callable[[Sequence[str]], Awaitable[Embedded]]) -> Embedded:
        call = optional_call()
        deadline = call.deadline if call is not None else None
        flown = await self._flights.run(
            key, lambda _: ask([text]), deadline=deadline or Deadline.after(_LONGEST_CALL_SECONDS)
        )
        self._metrics.count("shared" if flown.shared else "miss")
        return flown.value

    async def _keep(self, keys: Sequence[str], missing: Sequence[int], fresh: Embedded) -> None:
        if self._cache is None:
            return
        for place, index in enumerate(missing):
            if fresh.errors[place] is None:
                await self._cache.put(keys[index], _pack(fresh, place), ttl_seconds=self._ttl_seconds)


def _row(embedded: Embedded, place: int) -> Embedded:
    return Embedded(
        vectors=embedded.vectors[place : place + 1],
        errors=embedded.errors[place : place + 1],
        tokens=embedded.tokens[place : place + 1],
        tokens_cut=embedded.tokens_cut[place : place + 1],
        model=embedded.model,
        fingerprint=embedded.fingerprint,
    )


def _joined(rows: Sequence[Embedded]) -> Embedded:
    return Embedded(
        vectors=np.concatenate([row.vectors for row in rows]),
        errors=tuple(error for row in rows for error in row.errors),
        tokens=tuple(tokens for row in rows for tokens in row.tokens),
        tokens_cut=tuple(cut for row in rows for cut in row.tokens_cut),
        model=rows[0].model,
        fingerprint=rows[0].fingerprint,
    )


def _pack(embedded: Embedded, place: int) -> bytes:
    name = embedded.model.encode()
    head = _HEAD.pack(embedded.tokens[place], embedded.tokens_cut[place], len(name), embedded.vectors.shape[1])
    row: bytes = embedded.vectors[place].astype("<f4").tobytes()
    return head + name + row


def _unpack(value: bytes | None, fingerprint: str) -> Embedded | None:
    """None where it is no vector."""
    if value is None or len(value) < _HEAD.size:
        return None
    tokens, cut, name_bytes, dimension = _HEAD.unpack_from(value)
    start = _HEAD.size + name_bytes
    if not dimension or len(value) != start + 4 * dimension:
        return None
    vectors: NDArray[np.float32] = np.frombuffer(value, dtype="<f4", offset=start).reshape(1, dimension)
    if not np.isfinite(vectors).all():
        return None
    return Embedded(
        vectors=vectors,
        errors=(None,),
        tokens=(tokens,),
        tokens_cut=(cut,),
        model=value[_HEAD.size : start].decode(errors="replace"),
        fingerprint=fingerprint,
    )
