"""A minute in the life of a batcher, in virtual time: who waits for whom, and what is left of it under overload.

The model does 8,000 tokens a second and 5 ms a batch, about what a small encoder does on two cores.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from kbmesh_onnx.batcher import Batcher, Item, Lane, QueueFullError, QueueLimits
from virtual_time import SlowModel, VirtualLoop, run_virtually

TOKENS_PER_SECOND = 8000.0
OVERHEAD_SECONDS = 0.005
BATCH_TOKENS = 1024
BATCH_SECONDS = OVERHEAD_SECONDS + BATCH_TOKENS / TOKENS_PER_SECOND
CAPACITY = BATCH_TOKENS / BATCH_SECONDS
"""Tokens a second, in full batches."""


@dataclass(frozen=True, kw_only=True)
class Text:
    caller: str
    tokens: int
    deadline: float | None


@dataclass
class Record:
    """What one kind of caller met."""

    asked_tokens: int = 0
    served_tokens: int = 0
    late_tokens: int = 0
    refusals: list[float] = field(default_factory=list)
    """What each refused call was told to wait."""
    seconds: list[float] = field(default_factory=list)
    """From arrival to answer, of each call that was served."""

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * share))]


class World:
    """A batcher with a model, and callers that note what they meet."""

    def __init__(self, loop: VirtualLoop, limits: QueueLimits | None = None) -> None:
        self.loop = loop
        self.inferred: list[tuple[float, Text]] = []
        self.most_queued = 0
        self.model = SlowModel(loop, tokens_per_second=TOKENS_PER_SECOND, overhead_seconds=OVERHEAD_SECONDS)
        self.batcher: Batcher[Text, Text] = Batcher(
            self._run, limits=limits or QueueLimits(), clock=loop.time, executor=self.model
        )
        self.records: dict[str, Record] = {}

    def _run(self, texts: list[Text]) -> list[Text]:
        # Called when the batch ends; its deadlines were looked at when it began.
        began = self.loop.time() - self.model.seconds([text.tokens for text in texts])
        self.inferred += [(began, text) for text in texts]
        return texts

    async def call(
        self,
        caller: str,
        lengths: list[int],
        *,
        lane: Lane = Lane.INTERACTIVE,
        tenant: str = "",
        timeout_seconds: float | None = None,
    ) -> bool:
        """Whether the call was let in."""
        record = self.records.setdefault(caller, Record())
        started = self.loop.time()
        deadline = started + timeout_seconds if timeout_seconds is not None else None
        texts = [Text(caller=caller, tokens=tokens, deadline=deadline) for tokens in lengths]
        record.asked_tokens += sum(lengths)
        try:
            answer = await self.batcher.submit(
                [Item(payload=text, tokens=text.tokens) for text in texts], lane=lane, tenant=tenant, deadline=deadline
            )
        except QueueFullError as refusal:
            assert self.loop.time() == started, "a refusal comes at once or not at all"
            record.refusals.append(refusal.retry_after_seconds)
            return False
        finally:
            self.most_queued = max(self.most_queued, self.batcher.queued_tokens)
        if answer.outcomes == tuple(texts) and (deadline is None or self.loop.time() <= deadline):
            record.served_tokens += sum(lengths)
            record.seconds.append(self.loop.time() - started)
        else:
            record.late_tokens += sum(lengths)
        return True

    async def ask(self, caller: str, rng: random.Random, **options: Any) -> bool:
        """A call of some passages."""
        return await self.call(caller, passages(rng), **options)

    async def until(self, end: float, once: Callable[[], Awaitable[object]]) -> None:
        """Calls again and again, each call after the one before."""
        while self.loop.time() < end:
            await once()

    async def arriving(self, end: float, every_seconds: float, once: Callable[[], Awaitable[object]]) -> None:
        """Calls at fixed times, whatever becomes of the calls before."""
        async with asyncio.TaskGroup() as calls:
            while self.loop.time() < end:
                calls.create_task(_wait(once))
                await asyncio.sleep(every_seconds)


async def _wait(once: Callable[[], Awaitable[object]]) -> None:
    await once()


def passages(rng: random.Random, count: int = 16) -> list[int]:
    return [rng.randint(60, 200) for _ in range(count)]


def test_a_query_waits_for_the_running_batch_at_most_while_ingestion_takes_all_there_is() -> None:
    async def story(loop: VirtualLoop) -> tuple[float, Record]:
        idle = World(loop)
        await idle.arriving(10, 0.5, lambda: idle.call("query", [12]))
        busy, rng, start = World(loop), random.Random(1), loop.time()
        async with asyncio.TaskGroup() as callers:
            for _ in range(8):
                callers.create_task(
                    busy.until(start + 60, lambda: busy.call("bulk", passages(rng, 64), lane=Lane.BULK, tenant="bulk"))
                )
            callers.create_task(busy.arriving(start + 60, 0.37, lambda: busy.call("query", [12])))
        assert busy.model.busy_seconds >= 59
        return idle.records["query"].percentile(0.95), busy.records["query"]

    idle_p95, busy = run_virtually(story)
    assert len(busy.seconds) > 150
    assert busy.percentile(0.95) <= BATCH_SECONDS + 2 * idle_p95
    assert max(busy.seconds) <= BATCH_SECONDS + 2 * idle_p95


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_both_lanes_get_their_share_while_both_want_everything(share: float) -> None:
    async def story(loop: VirtualLoop) -> World:
        world, rng = World(loop, QueueLimits(bulk_share=share)), random.Random(2)
        async with asyncio.TaskGroup() as callers:
            for lane in Lane:
                for _ in range(4):
                    callers.create_task(world.until(60, partial(world.ask, lane, rng, lane=lane)))
        return world

    world = run_virtually(story)
    bulk, interactive = (world.records[lane].served_tokens for lane in (Lane.BULK, Lane.INTERACTIVE))
    assert bulk / (bulk + interactive) == pytest.approx(share, abs=0.05)
    assert bulk + interactive > 0.7 * CAPACITY * 60


def test_a_small_tenant_is_served_as_if_the_large_one_had_only_his_half() -> None:
    async def story(loop: VirtualLoop) -> World:
        world, rng = World(loop), random.Random(3)
        async with asyncio.TaskGroup() as callers:
            # Four times what there is, and a tenth of it.
            large = 2000 / (4 * CAPACITY)
            callers.create_task(
                world.arriving(
                    60, large, lambda: world.call("large", passages(rng), tenant="large", timeout_seconds=10)
                )
            )
            callers.create_task(
                world.arriving(60, 0.15, lambda: world.call("small", [100], tenant="small", timeout_seconds=10))
            )
        return world

    world = run_virtually(story)
    small, large = world.records["small"], world.records["large"]
    assert not small.refusals
    assert small.served_tokens == small.asked_tokens
    assert small.percentile(0.95) < 4 * BATCH_SECONDS
    assert large.refusals
    assert large.served_tokens > 0.7 * CAPACITY * 60
    assert large.late_tokens < 0.15 * large.served_tokens


@pytest.mark.parametrize("lane", Lane)
def test_tenants_who_all_want_too_much_get_the_same(lane: Lane) -> None:
    async def story(loop: VirtualLoop) -> World:
        world = World(loop)
        async with asyncio.TaskGroup() as callers:
            for number, size in enumerate((1, 4, 16, 64)):
                # The same tokens at once, in calls of very different size.
                for _ in range(256 // size):
                    callers.create_task(
                        world.until(
                            60, partial(world.call, f"tenant {number}", [100] * size, lane=lane, tenant=f"{number}")
                        )
                    )
        return world

    world = run_virtually(story)
    served = dict.fromkeys(world.records, 0)
    for began, text in world.inferred:
        if began < 60:
            served[text.caller] += text.tokens
    assert len(served) == 4
    assert max(served.values()) < 1.05 * min(served.values())


def test_nobody_starves_among_ever_new_tenants_and_none_is_remembered() -> None:
    async def story(loop: VirtualLoop) -> World:
        world, rng = World(loop), random.Random(4)
        numbers = iter(range(10**9))
        async with asyncio.TaskGroup() as callers:
            # One large call, and half of what there is from tenants who come once.
            callers.create_task(world.call("long", [1000, *passages(rng, 200)], tenant="long"))
            callers.create_task(
                world.arriving(
                    60, 100 / (0.5 * CAPACITY), lambda: world.call("once", [100], tenant=f"once {next(numbers)}")
                )
            )
        assert not world.batcher._lanes[Lane.INTERACTIVE]._tenants  # what must not pile up has no other face
        return world

    world = run_virtually(story)
    (seconds,) = world.records["long"].seconds
    # 27,000 tokens at no less than half of what the others leave.
    assert seconds < 1.1 * 27_000 / (0.25 * CAPACITY)
    assert world.records["once"].percentile(1.0) < 10 * BATCH_SECONDS


def test_a_document_of_a_hundred_thousand_tokens_does_not_hold_up_those_who_come_after_it() -> None:
    async def story(loop: VirtualLoop) -> World:
        world = World(loop)
        async with asyncio.TaskGroup() as callers:
            callers.create_task(world.call("document", [512] * 200))
            await asyncio.sleep(0.5)
            callers.create_task(world.arriving(5, 0.3, lambda: world.call("query", [12])))
        return world

    world = run_virtually(story)
    assert max(world.records["query"].seconds) < 3 * BATCH_SECONDS
    assert world.records["document"].served_tokens == 512 * 200


@pytest.mark.parametrize("timeout_seconds", [1.0, 10.0])
@pytest.mark.parametrize("lane", Lane)
def test_four_times_too_much_leaves_nine_tenths_of_the_work_done_in_time(lane: Lane, timeout_seconds: float) -> None:
    async def story(loop: VirtualLoop) -> World:
        world, rng = World(loop), random.Random(5)
        # Warm-up measures how fast full batches go.
        await world.call("warm", [128] * 8)
        start = loop.time()
        tokens = 16 * 130
        await world.arriving(
            start + 60,
            tokens / (4 * CAPACITY),
            lambda: world.call("all", passages(rng), lane=lane, timeout_seconds=timeout_seconds),
        )
        return world

    world = run_virtually(story)
    record = world.records["all"]
    assert record.asked_tokens > 3.5 * CAPACITY * 60
    assert record.served_tokens >= 0.9 * CAPACITY * 60 * 0.9  # a tenth is padding, in batches of 60 to 200 tokens
    assert record.late_tokens <= 0.02 * record.served_tokens
    assert record.refusals
    assert min(record.refusals) > 0
    for began, text in world.inferred:
        assert text.deadline is None or began < text.deadline, "an expired text reached the model"
    # What waits is what can be done in time, not what was asked.
    assert world.most_queued <= 1.2 * CAPACITY * timeout_seconds


def test_the_same_minute_passes_twice_the_same() -> None:
    async def story(loop: VirtualLoop) -> list[tuple[float, Text]]:
        world, rng = World(loop), random.Random(6)
        async with asyncio.TaskGroup() as callers:
            for lane in Lane:
                for tenant in ("a", "b"):
                    callers.create_task(
                        world.arriving(
                            5,
                            rng.uniform(0.05, 0.1),
                            partial(world.ask, tenant, rng, lane=lane, tenant=tenant, timeout_seconds=2),
                        )
                    )
        return world.inferred

    assert run_virtually(story) == run_virtually(story)
