"""The vector of a query is made once, by the model it belongs to."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
from kbmesh_retriever.cache.memory import MemoryCache
from kbmesh_retriever.cache.metrics import REQUESTS, CacheMetrics
from kbmesh_retriever.cache.query_vectors import CachedEmbedder
from kbmesh_retriever.mesh.port import Embedded
from kbmesh_rpc.errors import DependencyUnavailable, ModelMismatch
from retriever.mesh_fakes import Faulty, WordEmbedder

FINGERPRINT = "a" * 64


@pytest.fixture
def words() -> WordEmbedder:
    return WordEmbedder(fingerprint=FINGERPRINT)


@pytest.fixture
def faulty(words: WordEmbedder) -> Faulty:
    return Faulty(words)


@pytest.fixture
async def embedder(faulty: Faulty) -> AsyncIterator[CachedEmbedder]:
    metrics = CacheMetrics("query_vectors")
    cached = CachedEmbedder(faulty, MemoryCache(metrics), metrics, ttl_seconds=60)
    yield cached
    await cached.close()


async def ask(
    embedder: CachedEmbedder, *texts: str, fingerprint: str = FINGERPRINT, input_type: str = "query"
) -> Embedded:
    return await embedder.embed(
        texts, model="words", expected_fingerprint=fingerprint, input_type=input_type, priority="interactive"
    )


async def test_only_missing_texts_are_embedded(embedder: CachedEmbedder, words: WordEmbedder) -> None:
    first = await ask(embedder, "restart the service")
    both = await ask(embedder, "roll it back", "restart the service", "page the owner")
    assert words.texts == ["restart the service", "roll it back", "page the owner"]
    plain = await words.embed(
        ["roll it back", "restart the service", "page the owner"],
        model="words",
        expected_fingerprint=FINGERPRINT,
        input_type="query",
        priority="interactive",
    )
    np.testing.assert_array_equal(both.vectors, plain.vectors)
    assert replace(both, vectors=plain.vectors) == plain
    assert first.tokens == (3,)


async def test_a_vector_of_another_model_is_never_given(embedder: CachedEmbedder, faulty: Faulty) -> None:
    """EMB-09: the same name and dimension, and another fingerprint."""
    mine = await ask(embedder, "restart")
    other = WordEmbedder(fingerprint="b" * 64)
    faulty.become(other)
    theirs = await ask(embedder, "restart", fingerprint="b" * 64)
    assert other.texts == ["restart"]
    assert (mine.fingerprint, theirs.fingerprint) == ("a" * 64, "b" * 64)
    with pytest.raises(ModelMismatch):
        await ask(embedder, "never asked before")


async def test_documents_and_unnamed_models_pass_through(embedder: CachedEmbedder, words: WordEmbedder) -> None:
    for _ in range(2):
        await ask(embedder, "restart", input_type="document")
        await ask(embedder, "restart", fingerprint="")
    assert len(words.texts) == 4


async def test_what_was_cut_is_told_again_and_errors_are_not_kept(
    embedder: CachedEmbedder, words: WordEmbedder
) -> None:
    long = "word " * 300
    for _ in range(2):
        embedded = await ask(embedder, long, "重启")
        assert embedded.tokens_cut == (44, 0)
        assert embedded.errors[0] is None
        assert embedded.errors[1] is not None
    assert words.texts == [long, "重启", "重启"]


async def test_a_failure_is_not_kept(embedder: CachedEmbedder, faulty: Faulty) -> None:
    faulty.before("embed", lambda call: DependencyUnavailable("embedder", "down") if call == 0 else None)
    with pytest.raises(DependencyUnavailable):
        await ask(embedder, "restart")
    assert (await ask(embedder, "restart")).errors == (None,)


async def test_equal_queries_at_the_same_time_are_embedded_once(
    embedder: CachedEmbedder, faulty: Faulty, words: WordEmbedder
) -> None:
    shared = REQUESTS.labels("query_vectors", "shared")
    before = shared._value.get()
    faulty.before("embed", lambda _: asyncio.sleep(0.01))
    answers = await asyncio.gather(*(ask(embedder, "restart") for _ in range(5)))
    assert words.texts == ["restart"]
    assert all((one.vectors == answers[0].vectors).all() for one in answers)
    assert shared._value.get() - before == 4


@pytest.mark.parametrize("broken", [b"", b"\0" * 16, b"\1" * 15, b"\0" * 12 + b"\2\0\0\0" + b"\xff" * 8])
async def test_a_value_that_is_no_vector_is_a_miss(faulty: Faulty, words: WordEmbedder, broken: bytes) -> None:
    class Foreign(MemoryCache):
        async def get(self, key: str) -> bytes | None:
            return broken

    metrics = CacheMetrics("query_vectors")
    cached = CachedEmbedder(faulty, Foreign(metrics), metrics, ttl_seconds=60)
    assert (await ask(cached, "restart")).tokens == (1,)
    assert words.texts == ["restart"]
