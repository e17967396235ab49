"""A long document goes in however slow the model is: every call ends in its time, and what it brought is kept."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pytest
from kbmesh_retriever.catalog.port import KnowledgeBase
from kbmesh_retriever.ingest.embedding import TEXTS_A_CALL, BulkEmbedding
from kbmesh_retriever.ingest.embedding_pace import FIRST_TEXTS
from kbmesh_retriever.ingest.preparation import prepare
from kbmesh_retriever.mesh.port import Chunk, Chunked, Embedded
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, InvalidField, KbmeshError
from virtual_time import VirtualLoop, run_virtually

CALL_SECONDS = 120.0
NOW = datetime(2026, 3, 1, tzinfo=UTC)
KB = KnowledgeBase(
    id=uuid4(), tenant="acme", name="handbook", embedding_model="slow", model_fingerprint="f" * 64, dimension=2,
    collection="kb", created_at=NOW, updated_at=NOW,
)  # fmt: skip


@dataclass
class SlowEmbedder:
    """Reads a token for each word, so many a second, one call after the other; a call over its deadline is given up."""

    tokens_a_second: float
    slow_words: frozenset[str] = frozenset()
    """Texts that are one of these never end."""
    queue_seconds: float = 0.0
    """What every call waits for others' work."""
    broken_after: int | None = None
    """Calls after which nobody answers."""
    wrong: str = ""
    """A text that is refused with its call."""
    calls: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], **_: object) -> Embedded:
        self.calls.append(len(texts))
        if self.broken_after is not None and len(self.calls) > self.broken_after:
            raise DependencyUnavailable("embedder", "down")
        if self.wrong and self.wrong in texts:
            raise InvalidField("texts", "refused")
        tokens = [len(text.split()) for text in texts]
        needed = (
            self.queue_seconds + sum(tokens) / self.tokens_a_second
            if not self.slow_words & set(texts)
            else float("inf")
        )
        self.seconds.append(min(needed, CALL_SECONDS))
        await asyncio.sleep(min(needed, CALL_SECONDS))
        if needed > CALL_SECONDS:
            raise DeadlineExceeded("embedder")
        self.texts += texts
        return Embedded(
            vectors=np.array([[len(text), 1.0] for text in texts], dtype=np.float32),
            errors=(None,) * len(texts),
            tokens=tuple(tokens),
            tokens_cut=(0,) * len(texts),
            model="slow",
            fingerprint=KB.model_fingerprint,
            queue_seconds=self.queue_seconds,
        )


def bulk(embedder: SlowEmbedder) -> BulkEmbedding:
    return BulkEmbedding(embedder, call_seconds=CALL_SECONDS)  # type: ignore[arg-type]  # it embeds and nothing else


def chunks(count: int, words: int = 300) -> list[str]:
    return [f"{number} " + "word " * (words - 1) for number in range(count)]


def answers(embedder: SlowEmbedder, *documents: Sequence[str]) -> Sequence[Embedded | KbmeshError]:
    async def story(loop: VirtualLoop) -> Sequence[Embedded | KbmeshError]:
        return await bulk(embedder).embed(KB, documents)

    return run_virtually(story)


@pytest.mark.parametrize("tokens_a_second", [20, 100, 1_000])
def test_a_document_of_hours_goes_in_call_by_call(tokens_a_second: float) -> None:
    embedder = SlowEmbedder(tokens_a_second)
    texts = chunks(600)

    async def story(loop: VirtualLoop) -> float:
        embedding = bulk(embedder)

        async def embed(some: Sequence[str]) -> Embedded:
            [answer] = await embedding.embed(KB, [some])
            assert isinstance(answer, Embedded)
            return answer

        prepared = await prepare(chunked(texts), embed)
        assert [vector is not None and vector[0] for vector in prepared.dense] == [len(text) for text in texts]
        assert prepared.tokens == 600 * 300
        return loop.time()

    taken = run_virtually(story)
    assert max(embedder.seconds) <= CALL_SECONDS
    late = [seconds for seconds in embedder.seconds[2:] if seconds > CALL_SECONDS / 2]
    assert not late, "once it is known how slow the model is, no call comes near its deadline"
    assert sorted(embedder.texts) == sorted(texts), "nothing is embedded twice"
    assert taken <= 600 * 300 / tokens_a_second + 2 * CALL_SECONDS


def test_a_fast_model_gets_full_calls_from_the_second_on() -> None:
    embedder = SlowEmbedder(100_000)
    answers(embedder, *[[text] for text in chunks(1_000)])
    assert embedder.calls == [
        FIRST_TEXTS,
        TEXTS_A_CALL,
        TEXTS_A_CALL,
        TEXTS_A_CALL,
        1_000 - FIRST_TEXTS - 3 * TEXTS_A_CALL,
    ]


def test_a_model_that_becomes_slow_is_asked_for_one_text_and_then_for_what_it_can_do() -> None:
    embedder = SlowEmbedder(100_000)

    async def story(loop: VirtualLoop) -> None:
        embedding = bulk(embedder)
        await embedding.embed(KB, [chunks(300)])
        embedder.tokens_a_second = 200
        embedder.calls.clear()
        [answer] = await embedding.embed(KB, [chunks(256)])
        assert isinstance(answer, Embedded)
        assert answer.vectors.shape == (256, 2)
        assert embedder.calls[:2] == [256, 1]
        assert all(19 <= count <= 21 for count in embedder.calls[2:-1]), "30 seconds at 200 tokens a second"
        embedder.tokens_a_second = 100_000
        embedder.calls.clear()
        await embedding.embed(KB, [chunks(300)])
        assert embedder.calls[1] == 256, "and for more when it is fast again"

    run_virtually(story)


@pytest.mark.parametrize(("queue_seconds", "least"), [(10, 95), (50, 30), (100, 24)])
def test_a_model_that_works_for_others_most_of_the_time_still_gets_calls_worth_the_wait(
    queue_seconds: float, least: int
) -> None:
    """Smaller calls would wait as long, each of them."""
    embedder = SlowEmbedder(1_000, queue_seconds=queue_seconds)
    [answer] = answers(embedder, chunks(600))
    assert isinstance(answer, Embedded)
    assert all(count >= least for count in embedder.calls[1:-1])
    assert max(embedder.seconds) <= CALL_SECONDS


def test_a_text_that_never_ends_fails_its_own_document() -> None:
    embedder = SlowEmbedder(1_000, slow_words=frozenset({"poison"}))
    documents = [["one good"], ["two good", "poison"], ["three good"], *[[text] for text in chunks(30)]]
    first, second, *rest = answers(embedder, *documents)
    assert isinstance(first, Embedded)
    assert isinstance(second, DeadlineExceeded)
    assert all(isinstance(one, Embedded) for one in rest)
    assert embedder.texts.count("one good") == 1


def test_a_model_that_hangs_is_not_asked_for_each_document_again() -> None:
    embedder = SlowEmbedder(1_000, slow_words=frozenset(f"{number} " for number in range(50)))
    failed = answers(embedder, *[[f"{number} "] for number in range(50)])
    assert {type(one) for one in failed} == {DeadlineExceeded}
    assert len(embedder.calls) < 6


def test_what_was_embedded_before_the_embedder_went_away_is_not_lost() -> None:
    embedder = SlowEmbedder(1_000, broken_after=1)
    documents = [[text] for text in chunks(FIRST_TEXTS + 4)]
    answered = answers(embedder, *documents)
    assert [type(one) for one in answered] == [Embedded] * FIRST_TEXTS + [DependencyUnavailable] * 4


def test_a_document_that_is_refused_costs_the_others_nothing() -> None:
    embedder = SlowEmbedder(1_000, wrong="7 bad")
    documents = [[f"{number} bad", f"{number} good"] for number in range(20)]
    answered = answers(embedder, *documents)
    assert [number for number, one in enumerate(answered) if isinstance(one, KbmeshError)] == [7]
    good = answered[8]
    assert isinstance(good, Embedded)
    assert good.vectors[:, 0].tolist() == [len("8 bad"), len("8 good")]


def chunked(texts: Sequence[str]) -> Chunked:
    return Chunked(
        chunks=tuple(
            Chunk(
                index=index, type="fixed", text=text, context="", embedded_text=text, start=0, end=len(text),
                start_byte=0, end_byte=len(text), heading_path=(), pages=(), token_count=None, metadata={},
            )
            for index, text in enumerate(texts)
        ),
        strategy="fixed", media_type="text/plain", source_type="file", title="", metadata={}, chunking_fingerprint="",
        warnings=(),
    )  # fmt: skip
