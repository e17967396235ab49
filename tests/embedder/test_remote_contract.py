"""What every backend owes its callers, whether the model is in this process or at a vendor's."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from embedder.remote import KEY_ENV, PROVIDERS, embed, remote_backend
from kbmesh_embedder.backends.fake import FakeBackend
from kbmesh_embedder.backends.onnx import OnnxBackend
from kbmesh_embedder.backends.port import EmbeddingBackend, InputType, Priority, Truncation
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_rpc.errors import DeadlineExceeded, KbmeshError, QueueFull, Reason, ShuttingDown
from provider_server import KEY, provider_server

BACKENDS = ("onnx", "fake", *PROVIDERS)
LONG = " ".join(f"word{number}" for number in range(400))
"""Over the limit of every model here."""


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddingBackend]:
    kind = request.param
    async with AsyncExitStack() as stack:
        if kind == "onnx":
            folder: Path = request.getfixturevalue("models_folder")
            opened: EmbeddingBackend = OnnxBackend.open(
                "all-MiniLM-L6-v2",
                folder / "all-MiniLM-L6-v2",
                device="cpu",
                require_device="",
                threads=1,
                limits=QueueLimits(),
            )
            stack.push_async_callback(opened.close)
        elif kind == "fake":
            opened = FakeBackend("fake", limits=QueueLimits())
            stack.push_async_callback(opened.close)
        else:
            monkeypatch.setenv(KEY_ENV, KEY)
            server = await stack.enter_async_context(provider_server())
            opened = await stack.enter_async_context(remote_backend(kind, server))
            await opened.warm_up()
        yield opened


async def test_vectors_come_in_the_order_of_the_texts_and_are_those_of_each_text_alone(
    backend: EmbeddingBackend,
) -> None:
    texts = [f"text number{number} of many" for number in range(7)]
    together = await embed(backend, texts)
    assert together.vectors.shape == (7, backend.description.dimension)
    assert together.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together.vectors, axis=1), 1, atol=1e-5)
    for text, vector in zip(texts, together.vectors, strict=True):
        alone = await embed(backend, [text])
        np.testing.assert_allclose(alone.vectors[0], vector, atol=1e-5)
    shuffled = await embed(backend, texts[::-1])
    np.testing.assert_allclose(shuffled.vectors, together.vectors[::-1], atol=1e-5)


async def test_each_text_has_a_receipt_of_what_was_read(backend: EmbeddingBackend) -> None:
    receipts = (await embed(backend, ["one two three four five six", "seven"])).receipts
    assert all(receipt.error is None and receipt.tokens > 0 and receipt.tokens_cut == 0 for receipt in receipts)
    assert receipts[0].tokens > receipts[1].tokens
    assert len((await embed(backend, [])).receipts) == 0


async def test_a_long_text_is_cut_where_it_is_told_and_the_receipt_says_so(backend: EmbeddingBackend) -> None:
    from_end = await embed(backend, [LONG, "short"], truncation=Truncation.END)
    from_start = await embed(backend, [LONG, "short"], truncation=Truncation.START)
    for embeddings in (from_end, from_start):
        cut, whole = embeddings.receipts
        assert cut.error is None
        assert cut.tokens_cut > 0
        assert 0 < cut.tokens <= backend.description.max_tokens
        assert whole.tokens_cut == 0
    assert not np.allclose(from_end.vectors[0], from_start.vectors[0], atol=1e-3)
    np.testing.assert_allclose(from_end.vectors[1], from_start.vectors[1], atol=1e-5)


async def test_a_long_text_that_may_not_be_cut_fails_alone(backend: EmbeddingBackend) -> None:
    embeddings = await embed(backend, ["before", LONG, "after"], truncation=Truncation.NONE)
    error = embeddings.receipts[1].error
    assert error is not None
    assert error.reason is Reason.TEXT_TOO_LONG
    limit = backend.description.max_tokens
    assert int(error.metadata["limit"]) == limit < int(error.metadata["tokens"])
    assert not embeddings.vectors[1].any()
    for index in (0, 2):
        assert embeddings.receipts[index].error is None
        assert embeddings.vectors[index].any()


async def test_a_text_of_nothing_fails_alone(backend: EmbeddingBackend) -> None:
    nothing = "\x00" if backend.description.backend == "onnx" else "  "
    embeddings = await embed(backend, ["before", nothing, "after"])
    errors = [receipt.error for receipt in embeddings.receipts]
    assert errors[1] is not None
    assert errors[1].reason is Reason.EMPTY_TEXT
    assert errors[0] is errors[2] is None


async def test_a_deadline_that_has_passed_is_told_as_such(backend: EmbeddingBackend) -> None:
    with pytest.raises(DeadlineExceeded):
        await embed(backend, ["late"], deadline=time.monotonic() - 1)


async def test_a_call_whose_caller_leaves_ends_and_the_next_is_answered(backend: EmbeddingBackend) -> None:
    leaver = asyncio.create_task(embed(backend, ["leaver"] * 3))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert (await embed(backend, ["stays"])).vectors.any()


async def test_both_lanes_are_answered(backend: EmbeddingBackend) -> None:
    calls = [embed(backend, [f"text {number}"], priority=priority) for number in range(4) for priority in Priority]
    assert all(embeddings.vectors.any() for embeddings in await asyncio.gather(*calls))


async def test_queries_and_passages_have_the_roles_that_the_model_gives_them(backend: EmbeddingBackend) -> None:
    query = await embed(backend, ["the same"], input_type=InputType.QUERY)
    passage = await embed(backend, ["the same"], input_type=InputType.DOCUMENT)
    same = np.allclose(query.vectors, passage.vectors, atol=1e-5)
    assert same == (backend.description.backend != "cohere")


async def test_tokens_are_counted_with_their_places(backend: EmbeddingBackend) -> None:
    (count,) = await backend.count_tokens(["some words"], input_type=InputType.DOCUMENT, with_offsets=True)
    assert count.tokens >= len(count.starts) > 1
    assert count.starts[0] == 0
    assert count.ends[-1] == len("some words")
    (bare,) = await backend.count_tokens(["some words"], input_type=InputType.DOCUMENT, with_offsets=False)
    assert (bare.tokens, bare.starts) == (count.tokens, ())


async def test_what_is_closed_says_so(backend: EmbeddingBackend) -> None:
    await backend.close()
    with pytest.raises(ShuttingDown):
        await embed(backend, ["too late"])


async def test_a_description_names_what_the_vectors_are(backend: EmbeddingBackend) -> None:
    model = backend.description
    assert model.fingerprint
    assert model.dimension > 0
    assert model.normalized
    assert (backend.fault, backend.suspect) == ("", False)


@pytest.mark.parametrize("kind", ["fake", *PROVIDERS])
async def test_a_full_queue_refuses_and_says_when_to_come_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = QueueLimits(queue_tokens=40, tenant_reserve=0)
    monkeypatch.setenv(KEY_ENV, KEY)
    async with AsyncExitStack() as stack:
        if kind == "fake":
            backend: EmbeddingBackend = FakeBackend("fake", limits=limits)
            stack.push_async_callback(backend.close)
        else:
            server = await stack.enter_async_context(provider_server())
            server.hold = asyncio.Event()
            backend = await stack.enter_async_context(remote_backend(kind, server, limits=limits, concurrency=1))
        calls = [asyncio.create_task(embed(backend, [f"text {number} of some words"])) for number in range(20)]
        if kind != "fake":
            await server.arrived.acquire()
            assert server.hold is not None
            server.hold.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, KbmeshError)]
        assert refused
        assert len(refused) < 20
        for error in refused:
            assert isinstance(error, QueueFull)
            assert error.retry_after_seconds is not None
            assert error.retry_after_seconds > 0
