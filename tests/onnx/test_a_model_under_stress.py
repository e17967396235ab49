"""What a model that runs short of memory, hangs or loses its device does to those who wait."""

import asyncio
import gc
import random
import resource
import threading
from pathlib import Path

import numpy as np
import pytest
from kbmesh_onnx.batch_errors import ItemFailedError, ModelLostError
from kbmesh_onnx.batcher import Batcher, Item, QueueLimits
from kbmesh_onnx.device_loss import is_device_loss, telling_device_loss
from kbmesh_onnx.errors import DeviceLost, InferenceError
from kbmesh_onnx.isolation import run_isolating
from kbmesh_onnx.throughput import Throughput
from kbmesh_onnx.token_estimate import estimate_text_tokens, estimate_tokens
from kbmesh_onnx.warm_up import warm_up_shapes
from opened_model import OpenedModel


def test_a_batch_that_needs_too_much_memory_runs_in_pieces() -> None:
    """EMB-11: out of memory on one batch splits it, and the model goes on."""
    runs: list[int] = []

    def small(payloads: list[str]) -> list[str]:
        runs.append(len(payloads))
        if len(payloads) > 4:
            raise InferenceError("Failed to allocate memory for requested buffer", out_of_memory=True)
        return [payload.upper() for payload in payloads]

    assert run_isolating(small, list("abcdefghijklmnop")) == list("ABCDEFGHIJKLMNOP")
    assert runs == [16, 8, 4, 4, 8, 4, 4]


def test_memory_is_flat_over_a_thousand_random_shapes(tiny: OpenedModel) -> None:
    """EMB-11: after the largest shape has been seen, no other one takes memory that stays."""
    session, rng = tiny.sessions["plain"], random.Random(11)

    def run(texts: int, tokens: int) -> None:
        ids = np.full((texts, tokens), 7, dtype=np.int64)
        session.run(ids, np.ones_like(ids), np.zeros_like(ids), outputs=("embeddings",))

    for texts, tokens in warm_up_shapes(max_tokens=64, batch_tokens=1024):
        run(texts, tokens)
    for _ in range(50):
        run(*some_shape(rng))
    gc.collect()
    before = resident_bytes()
    for _ in range(1000):
        run(*some_shape(rng))
    gc.collect()
    assert resident_bytes() - before < 0.02 * before


def some_shape(rng: random.Random) -> tuple[int, int]:
    """Texts and tokens of a batch of 1,024 tokens at most."""
    tokens = rng.randint(4, 64)
    return rng.randint(1, 1024 // tokens), tokens


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=pod", True),
        ("CUDA failure 719: unspecified launch failure", True),
        ("CUDA error 100: no CUDA-capable device is detected", True),
        ("GPU has fallen off the bus", True),
        ("CUDA failure 2: out of memory ; GPU=0", False),
        ("Failed to allocate memory for requested buffer of size 700", False),
        ("Non-zero status code returned while running Gather node", False),
    ],
)
def test_a_lost_device_is_told_from_a_batch_that_failed(message: str, lost: bool) -> None:
    assert is_device_loss(message) is lost
    with pytest.raises(InferenceError) as raised, telling_device_loss():
        raise InferenceError(message)
    assert isinstance(raised.value, DeviceLost) is lost


def test_a_device_that_is_lost_while_poison_is_looked_for_ends_the_search() -> None:
    runs = 0

    def dying(payloads: list[str]) -> list[str]:
        nonlocal runs
        runs += 1
        raise DeviceLost("gone") if runs > 2 else ValueError("poison")

    outcomes = run_isolating(dying, list("abcdefgh"))
    assert all(isinstance(outcome, ModelLostError) for outcome in outcomes)
    assert len(outcomes) == 8
    assert runs == 3


async def test_a_model_that_hangs_is_at_fault_and_holds_nobody_who_waits() -> None:
    now = 0.0
    entered, may_end = threading.Event(), threading.Event()

    def hanging(payloads: list[str]) -> list[str]:
        entered.set()
        may_end.wait()
        return payloads

    batcher = Batcher(hanging, clock=lambda: now, limits=QueueLimits(batch_tokens=10))
    running = asyncio.create_task(batcher.submit([Item(payload="a", tokens=10)]))
    await asyncio.to_thread(entered.wait)
    assert batcher.fault == ""
    now = 200.0
    assert "200 s" in batcher.fault
    await batcher.close()
    assert isinstance((await running).outcomes[0], ModelLostError)
    may_end.set()


async def test_a_model_that_fails_on_everything_is_suspected_until_it_answers() -> None:
    def choosy(payloads: list[str]) -> list[str]:
        if "bad" in payloads:
            raise ValueError("bad")
        return payloads

    batcher = Batcher(choosy)
    for _ in range(3):
        assert not batcher.suspect
        answer = await batcher.submit([Item(payload="bad", tokens=1)])
        assert isinstance(answer.outcomes[0], ItemFailedError)
    assert batcher.suspect
    await batcher.submit([Item(payload="good", tokens=1), Item(payload="bad", tokens=1)])
    assert not batcher.suspect
    await batcher.close()


def test_a_model_warms_up_over_all_lengths_alone_and_in_full_batches() -> None:
    shapes = list(warm_up_shapes(max_tokens=200, batch_tokens=1024))
    assert {tokens for _, tokens in shapes} == {8, 16, 32, 64, 128, 200}
    assert shapes[-2:] == [(1, 200), (5, 200)]
    assert all(texts * tokens <= 1024 for texts, tokens in shapes)


def test_tokens_are_estimated_rather_too_high_in_any_script(minilm: OpenedModel) -> None:
    texts = [
        "The port of the service is changed in its settings.",
        "数据库迁移前必须先做备份再执行脚本",
        "Порт сервиса",
        "?",
    ]
    for text, tokens in zip(texts, minilm.tokenizer.count(texts), strict=True):
        assert tokens <= estimate_text_tokens(text, at_most=256)
    assert estimate_tokens(["a" * 10**6, "\ud800"], max_tokens=256) == 256 + 3


def test_queries_without_bulk_work_beside_them_say_nothing_of_what_bulk_work_gets() -> None:
    speed = Throughput(batch_tokens=100)
    speed.add(interactive=True, bulk_waits=False, tokens=100, padded_tokens=100, seconds=5.0)
    assert speed.interactive_share == 0
    speed.add(interactive=True, bulk_waits=True, tokens=100, padded_tokens=100, seconds=1.0)
    speed.add(interactive=False, bulk_waits=False, tokens=100, padded_tokens=100, seconds=1.0)
    assert 0.4 < speed.interactive_share < 0.6
