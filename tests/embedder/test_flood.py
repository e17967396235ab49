"""One caller brings far more than the model can take: he is told so at once, and nobody else notices."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from embedder.calls import Embedder
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.batch_errors import BatcherClosedError, ItemExpiredError, QueueFullError
from kbmesh_onnx.tokenizing import SLICE_CHARACTERS, TokenizingLane
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error
from prometheus_client import REGISTRY

MINILM = "all-MiniLM-L6-v2"
QUEUE_TOKENS = 8192


@pytest.fixture
async def small_queue(models_folder: Path) -> AsyncIterator[Embedder]:
    """The real model behind a queue of 8,192 tokens."""
    settings = EmbedderSettings(
        port=0, metrics_port=0, models=models_folder, model=MINILM, device="cpu", queue_tokens=QUEUE_TOKENS
    )
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        yield Embedder(channel)


async def bulk(embedder: Embedder, number: int) -> pb2.EmbedResponse | KbmeshError:
    """A call of 8 texts of 2,048 tokens at least, of which the model reads 256 each."""
    texts = [f"{number} {index} " + "the port of the service is changed in its settings " * 200 for index in range(8)]
    try:
        return await embedder.embed(texts, priority=pb2.PRIORITY_BULK)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error, dependency="embedder")


async def test_a_flood_of_bulk_calls_is_refused_at_once_and_interactive_calls_are_answered(
    small_queue: Embedder,
) -> None:
    flood = [asyncio.create_task(bulk(small_queue, number)) for number in range(30)]
    # The first refusal comes while the flood lasts, and so do the answers to those who wait.
    await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    assert (await small_queue.embed(["a short question"], priority=pb2.PRIORITY_INTERACTIVE)).vectors.count == 1
    counts = await small_queue.stub.CountTokens(pb2.CountTokensRequest(texts=["a short question"]))
    assert counts.counts[0].tokens == 5
    answers = await asyncio.gather(*flood)
    refused = [answer for answer in answers if isinstance(answer, KbmeshError)]
    served = [answer for answer in answers if not isinstance(answer, KbmeshError)]
    assert refused
    assert served
    for error in refused:
        assert error.reason is Reason.QUEUE_FULL
        # Bulk work may have three quarters of the queue, and one tenant three quarters of that.
        # Or it would not be done in time.
        assert int(error.metadata["limit"]) in {QUEUE_TOKENS * 9 // 16, QUEUE_TOKENS * 3 // 4}
        assert error.retry_after_seconds is not None
        assert error.retry_after_seconds > 0
    for response in served:
        for receipt in response.receipts:
            assert receipt.tokens == 256
            assert receipt.tokens_cut > 1000
    assert _queued() == 0


async def test_who_leaves_while_the_texts_wait_for_tokens_gives_the_room_back(small_queue: Embedder) -> None:
    flood = [asyncio.create_task(bulk(small_queue, number)) for number in range(12)]
    await asyncio.sleep(0)
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    # The server learns of it a little later.
    answer = await bulk(small_queue, 0)
    while isinstance(answer, KbmeshError) or _queued():
        answer = await bulk(small_queue, 0)


def _queued() -> float:
    return sum(
        REGISTRY.get_sample_value("kbmesh_embedder_queue_tokens", {"model": MINILM, "lane": lane}) or 0.0
        for lane in ("interactive", "bulk")
    )


class Worker:
    """Gives each text's index, and only when it is let."""

    def __init__(self) -> None:
        self.slices: list[list[str]] = []
        self.entered = threading.Semaphore(0)
        self.may_run = threading.Semaphore(0)

    def __call__(self, texts: Sequence[str], start: int) -> list[int]:
        self.entered.release()
        self.may_run.acquire()
        self.slices.append([text[:1] for text in texts])
        return list(range(start, start + len(texts)))

    def open(self) -> None:
        for _ in range(1000):
            self.may_run.release()


LARGE = ["a" * SLICE_CHARACTERS, "b" * SLICE_CHARACTERS, "c" * SLICE_CHARACTERS]


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_short_call_waits_for_one_slice_of_a_long_one(in_order: bool) -> None:
    worker = Worker()
    lane = TokenizingLane("test", in_order=in_order)
    long = asyncio.create_task(lane.run(worker, LARGE))
    await asyncio.to_thread(worker.entered.acquire)
    short = asyncio.create_task(lane.run(worker, ["s"]))
    await asyncio.sleep(0)
    worker.open()
    assert await long == [0, 1, 2]
    assert await short == [0]
    assert worker.slices == ([["a"], ["b"], ["c"], ["s"]] if in_order else [["a"], ["s"], ["b"], ["c"]])
    assert lane.waiting_characters == 0
    lane.close()


async def test_a_short_call_does_not_wait_for_a_text_that_is_longer_than_a_slice() -> None:
    """A tokeniser cannot put a text down: one of 100,000 tokens takes it a quarter of a second."""
    worker = Worker()
    lane = TokenizingLane("test")
    long = asyncio.create_task(lane.run(worker, ["l" * (SLICE_CHARACTERS + 1)]))
    await asyncio.to_thread(worker.entered.acquire)
    short = asyncio.create_task(lane.run(worker, ["s"]))
    # The short one has come as far as the long one, which has not ended.
    await asyncio.to_thread(worker.entered.acquire)
    assert not long.done()
    worker.open()
    assert (await long, await short) == ([0], [0])
    lane.close()


async def test_long_texts_of_one_tenant_wait_for_each_other_and_not_another_tenant_for_all_of_them() -> None:
    worker = Worker()
    lane = TokenizingLane("test")
    flood = [
        asyncio.create_task(lane.run(worker, [letter * (SLICE_CHARACTERS + 1)], tenant="flood")) for letter in "abc"
    ]
    await asyncio.to_thread(worker.entered.acquire)
    other = asyncio.create_task(lane.run(worker, ["o" * (SLICE_CHARACTERS + 1)], tenant="other"))
    await asyncio.sleep(0)
    worker.open()
    assert await asyncio.gather(other, *flood) == [[0]] * 4
    assert worker.slices == [["a"], ["o"], ["b"], ["c"]]
    lane.close()


async def test_characters_that_wait_are_limited_and_given_back() -> None:
    worker = Worker()
    lane = TokenizingLane("test", in_order=True, limit_characters=10)
    # Larger than the limit, but alone.
    first = asyncio.create_task(lane.run(worker, ["x" * 12]))
    await asyncio.to_thread(worker.entered.acquire)
    with pytest.raises(QueueFullError) as refusal:
        await lane.run(worker, ["y"])
    assert refusal.value.retry_after_seconds > 0
    worker.open()
    await first
    second = asyncio.create_task(lane.run(worker, ["z" * 10]))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert lane.waiting_characters == 0
    with pytest.raises(ItemExpiredError):
        await lane.run(worker, ["late"], deadline=0.0)
    lane.close()
    with pytest.raises(BatcherClosedError):
        await lane.run(worker, ["too late"])
    assert lane.waiting_characters == 0


@given(st.lists(st.integers(0, 2 * SLICE_CHARACTERS), max_size=12))
@settings(max_examples=50, deadline=None)
def test_slices_hold_each_text_once_and_in_order(lengths: list[int]) -> None:
    async def story() -> None:
        worker = Worker()
        worker.open()
        lane = TokenizingLane("test")
        assert await lane.run(worker, ["x" * length for length in lengths]) == list(range(len(lengths)))
        lane.close()

    asyncio.run(story())
