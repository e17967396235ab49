"""Calls to a model that runs elsewhere wait for a slot: in order, within bounds, and without losing one."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from kbmesh_onnx.batch_errors import BatcherClosedError, ItemExpiredError, QueueFullError
from kbmesh_onnx.batch_observer import BatchReport, DropReason
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_onnx.lane_queue import Lane
from kbmesh_onnx.slots import Slots


class Observer:
    def __init__(self) -> None:
        self.waiting = dict.fromkeys(Lane, 0)
        self.running_tokens = 0
        self.reports: list[BatchReport] = []
        self.drops: list[tuple[Lane, DropReason, int]] = []

    def queued(self, lane: Lane, tokens: int) -> None:
        self.waiting[lane] = tokens

    def running(self, tokens: int) -> None:
        self.running_tokens = tokens

    def ran(self, report: BatchReport) -> None:
        self.reports.append(report)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self.drops.append((lane, reason, items))


class Bench:
    """Calls that end when they are told to."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def call(
        self,
        name: str,
        *,
        lane: Lane = Lane.INTERACTIVE,
        tenant: str = "",
        tokens: int = 10,
        deadline: float | None = None,
    ) -> "asyncio.Task[None]":
        self.ends[name] = asyncio.Event()

        async def run() -> None:
            with self.slots.reserve(tokens, lane=lane, tenant=tenant) as reservation:
                async with self.slots.turn(reservation, tokens, items=1, deadline=deadline):
                    self.begun.append(name)
                    await self.ends[name].wait()

        return asyncio.create_task(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_run_at_once_and_the_rest_in_the_order_of_arrival() -> None:
    observer = Observer()
    bench = Bench(Slots(2, limits=QueueLimits(), observer=observer))
    calls = [bench.call(name) for name in "abcd"]
    await settle()
    assert bench.begun == ["a", "b"]
    assert (observer.running_tokens, observer.waiting[Lane.INTERACTIVE]) == (20, 20)
    for name in "abcd":
        bench.ends[name].set()
        await settle()
    await asyncio.gather(*calls)
    assert bench.begun == ["a", "b", "c", "d"]
    assert (observer.running_tokens, observer.waiting[Lane.INTERACTIVE]) == (0, 0)
    assert len(observer.reports) == 4


async def test_interactive_calls_go_first_and_bulk_ones_leave_a_slot() -> None:
    bench = Bench(Slots(3, limits=QueueLimits()))
    bulk = [bench.call(f"bulk{n}", lane=Lane.BULK) for n in range(4)]
    await settle()
    assert bench.begun == ["bulk0", "bulk1"]
    query = bench.call("query")
    await settle()
    assert bench.begun[-1] == "query"
    second = bench.call("second")
    await settle()
    bench.ends["bulk0"].set()
    await settle()
    assert bench.begun[-1] == "second"
    for end in bench.ends.values():
        end.set()
    await asyncio.gather(query, second, *bulk)


async def test_one_tenant_with_many_calls_does_not_hold_up_another() -> None:
    bench = Bench(Slots(1, limits=QueueLimits()))
    many = [bench.call(f"many{n}", tenant="many") for n in range(5)]
    await settle()
    one = bench.call("one", tenant="one")
    await settle()
    bench.ends["many0"].set()
    bench.ends["many1"].set()
    await settle()
    assert "one" in bench.begun[:3]
    for end in bench.ends.values():
        end.set()
    await asyncio.gather(one, *many)


async def test_who_leaves_gives_his_place_or_his_slot_up() -> None:
    observer = Observer()
    bench = Bench(Slots(1, limits=QueueLimits(), observer=observer))
    running, waiting, last = bench.call("running"), bench.call("waiting"), bench.call("last")
    await settle()
    waiting.cancel()
    await settle()
    assert observer.drops == [(Lane.INTERACTIVE, "cancelled", 1)]
    running.cancel()
    await settle()
    assert bench.begun == ["running", "last"]
    bench.ends["last"].set()
    await last
    assert (bench.slots.running, observer.running_tokens) == (0, 0)


@pytest.mark.parametrize("turns", range(8))
async def test_who_leaves_around_the_moment_in_which_he_is_given_a_slot_gives_it_on(turns: int) -> None:
    bench = Bench(Slots(1, limits=QueueLimits()))
    first, leaver, last = bench.call("first"), bench.call("leaver"), bench.call("last")
    await settle()
    bench.ends["first"].set()
    for _ in range(turns):
        await asyncio.sleep(0)
    leaver.cancel()
    await settle()
    bench.ends["last"].set()
    await asyncio.gather(first, last)
    assert bench.slots.running == 0


async def test_a_deadline_that_passes_in_the_queue_ends_the_wait() -> None:
    observer = Observer()
    loop = asyncio.get_running_loop()
    bench = Bench(Slots(1, limits=QueueLimits(), observer=observer, clock=loop.time))
    running = bench.call("running")
    await settle()
    late = bench.call("late", deadline=loop.time() + 0.02)
    with pytest.raises(ItemExpiredError):
        await late
    assert observer.drops == [(Lane.INTERACTIVE, "expired", 1)]
    bench.ends["running"].set()
    await running
    assert (bench.slots.running, observer.waiting[Lane.INTERACTIVE]) == (0, 0)


async def test_what_does_not_fit_is_refused_before_it_waits() -> None:
    bench = Bench(Slots(1, limits=QueueLimits(queue_tokens=20, tenant_reserve=0)))
    running = bench.call("running")
    await settle()
    waiting = bench.call("waiting", tokens=15)
    await settle()
    with pytest.raises(QueueFullError) as refusal:
        await bench.call("refused")
    assert refusal.value.retry_after_seconds > 0
    for end in bench.ends.values():
        end.set()
    await asyncio.gather(running, waiting)


async def test_closing_ends_what_waits_and_lets_what_runs_end() -> None:
    bench = Bench(Slots(1, limits=QueueLimits()))
    running, waiting = bench.call("running"), bench.call("waiting")
    await settle()
    bench.slots.close()
    with pytest.raises(BatcherClosedError):
        await waiting
    with pytest.raises(BatcherClosedError):
        await bench.call("later")
    bench.ends["running"].set()
    await running
    assert bench.slots.running == 0


async def test_a_call_that_fails_gives_its_slot_on() -> None:
    slots = Slots(1, limits=QueueLimits())

    async def use(work: Callable[[], Awaitable[None]]) -> None:
        with slots.reserve(1, lane=Lane.BULK, tenant="") as reservation:
            async with slots.turn(reservation, 1, items=1, deadline=None):
                await work()

    async def fail() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await use(fail)
    await use(settle)
    assert slots.running == 0


@pytest.mark.parametrize("seed", range(12))
async def test_no_slot_and_no_token_is_lost_whatever_callers_do(seed: int) -> None:
    """Callers come in both lanes and of several tenants, leave at any time, and fail."""
    dice = random.Random(seed)
    observer = Observer()
    slots = Slots(dice.randint(1, 4), limits=QueueLimits(queue_tokens=200), observer=observer)
    most = 0

    async def call() -> None:
        nonlocal most
        lane, tenant, tokens = dice.choice(list(Lane)), dice.choice("abc"), dice.randint(1, 20)
        with slots.reserve(tokens * 2, lane=lane, tenant=tenant) as reservation:
            for _ in range(2):
                async with slots.turn(reservation, tokens, items=1, deadline=None):
                    most = max(most, slots.running)
                    for _ in range(dice.randint(0, 3)):
                        await asyncio.sleep(0)
                    if dice.random() < 0.1:
                        raise OSError("broken")

    calls: list[asyncio.Task[None]] = []
    for _ in range(150):
        calls.append(asyncio.create_task(call()))
        await asyncio.sleep(0)
        if dice.random() < 0.3:
            dice.choice(calls).cancel()
    outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    assert all(
        outcome is None or isinstance(outcome, OSError | QueueFullError | asyncio.CancelledError)
        for outcome in outcomes
    )
    assert any(outcome is None for outcome in outcomes)
    assert (slots.running, observer.running_tokens, set(observer.waiting.values())) == (0, 0, {0})
    assert most <= 4
