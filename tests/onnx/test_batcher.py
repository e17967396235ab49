"""One model, many callers: what the batcher promises each of them."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from kbmesh_onnx.batcher import (
    Batched,
    Batcher,
    BatcherClosedError,
    BatchReport,
    DropReason,
    Item,
    ItemExpiredError,
    ItemFailedError,
    Lane,
    ModelLostError,
    QueueFullError,
    QueueLimits,
)
from kbmesh_onnx.errors import DeviceLost
from kbmesh_onnx.lane_queue import Entry, LaneQueue


class Gate:
    """A model that answers in upper case, and only when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.may_run = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)

    def __call__(self, payloads: list[str]) -> list[str]:
        self.threads.add(threading.get_ident())
        self.entered.release()
        self.may_run.acquire()
        self.batches.append(list(payloads))
        if any(payload == "poison" for payload in payloads):
            raise ValueError("the model chokes")
        return [payload.upper() for payload in payloads]

    def open(self) -> None:
        for _ in range(1000):
            self.may_run.release()

    async def wait_until_entered(self) -> None:
        await asyncio.to_thread(self.entered.acquire)


class Notes:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.queue: dict[Lane, int] = dict.fromkeys(Lane, 0)
        self.in_model = 0
        self.reports: list[BatchReport] = []
        self.drops: list[tuple[Lane, DropReason, int]] = []

    def queued(self, lane: Lane, tokens: int) -> None:
        self.queue[lane] = tokens

    def running(self, tokens: int) -> None:
        self.in_model = tokens

    def ran(self, report: BatchReport) -> None:
        self.reports.append(report)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self.drops.append((lane, reason, items))


def items(*payloads: str, tokens: int = 10) -> list[Item[str]]:
    return [Item(payload=payload, tokens=tokens) for payload in payloads]


async def let_in(
    batcher: Batcher[str, str],
    payloads: Sequence[Item[str]],
    *,
    lane: Lane = Lane.INTERACTIVE,
    deadline: float | None = None,
) -> asyncio.Task[Batched[str]]:
    """Submits, and returns once the items are in the queue."""
    task = asyncio.create_task(batcher.submit(payloads, lane=lane, deadline=deadline))
    await asyncio.sleep(0)
    return task


async def test_callers_of_one_moment_share_a_batch_and_none_waits_for_more() -> None:
    gate = Gate()
    gate.open()
    batcher = Batcher(gate)
    answers = await asyncio.gather(*(batcher.submit(items(text)) for text in "abc"))
    assert [answer.outcomes for answer in answers] == [("A",), ("B",), ("C",)]
    assert gate.batches == [["a", "b", "c"]]
    assert threading.get_ident() not in gate.threads
    assert len(gate.threads) == 1
    await batcher.close()


async def test_what_arrives_while_the_model_works_is_sorted_into_batches_of_like_length() -> None:
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(draw_tokens=400, batch_tokens=100))
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    mixed = [Item(payload=f"{tokens}", tokens=tokens) for tokens in (50, 5, 50, 5, 90)]
    second = await let_in(batcher, mixed)
    gate.open()
    await first
    answer = await second
    # Nobody's turn comes later because he is long: the batch of the one who is next comes first.
    assert gate.batches == [["first"], ["50", "50"], ["5", "5"], ["90"]]
    assert answer.outcomes == ("50", "5", "50", "5", "90")
    await batcher.close()


async def test_interactive_overtakes_bulk_between_two_batches() -> None:
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(batch_tokens=20, attentive_part=1))
    bulk = await let_in(batcher, items("b1", "b2", "b3", "b4", "b5", "b6"), lane=Lane.BULK)
    await gate.wait_until_entered()
    query = await let_in(batcher, items("query"))
    gate.open()
    await query
    await bulk
    assert gate.batches == [["b1", "b2"], ["query"], ["b3", "b4"], ["b5", "b6"]]
    await batcher.close()


async def test_bulk_work_goes_in_smaller_batches_while_somebody_asks_questions() -> None:
    now = 0.0
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(batch_tokens=40, attentive_part=0.5), clock=lambda: now)
    passages = items(*(f"b{number}" for number in range(13)))
    bulk = await let_in(batcher, passages, lane=Lane.BULK)
    await gate.wait_until_entered()
    query = await let_in(batcher, items("query"))
    for _ in range(3):
        gate.may_run.release()
        await gate.wait_until_entered()
    await query
    # Nobody asked for a while: what is left has the model to itself again.
    now = 60.0
    gate.open()
    answer = await bulk
    assert [len(batch) for batch in gate.batches] == [4, 1, 2, 2, 4, 1]
    assert answer.outcomes == tuple(f"B{number}" for number in range(13))
    await batcher.close()


async def test_bulk_gets_its_share_while_interactive_never_ends() -> None:
    now = 0.0
    order: list[str] = []

    def model(payloads: list[str]) -> list[str]:
        nonlocal now
        now += 1.0
        order.append(payloads[0])
        return payloads

    batcher = Batcher(model, clock=lambda: now, limits=QueueLimits(batch_tokens=10, bulk_share=0.25))
    await asyncio.gather(
        batcher.submit(items(*["query"] * 100)),
        batcher.submit(items(*["bulk"] * 40), lane=Lane.BULK),
    )
    assert len(order) == 140
    for start in range(0, 120, 20):
        assert 4 <= order[start : start + 20].count("bulk") <= 6
    await batcher.close()


async def test_one_poisonous_item_fails_alone() -> None:
    gate = Gate()
    gate.open()
    notes = Notes()
    batcher = Batcher(gate, observer=notes)
    good, bad = await asyncio.gather(batcher.submit(items("a", "b", "c")), batcher.submit(items("d", "poison", "e")))
    assert good.outcomes == ("A", "B", "C")
    first, failed, last = bad.outcomes
    assert (first, last) == ("D", "E")
    assert isinstance(failed, ItemFailedError)
    assert isinstance(failed.__cause__, ValueError)
    assert [report.failed for report in notes.reports] == [1]
    await batcher.close()


async def test_a_model_that_gives_too_few_results_fails_nobody_else() -> None:
    def forgetful(payloads: list[str]) -> list[str]:
        return [payload for payload in payloads if payload != "forgotten"]

    batcher = Batcher(forgetful)
    answer = await batcher.submit(items("a", "forgotten", "b"))
    assert answer.outcomes[0] == "a"
    assert isinstance(answer.outcomes[1], ItemFailedError)
    assert answer.outcomes[2] == "b"
    await batcher.close()


async def test_a_caller_who_leaves_takes_his_items_out_of_the_queue() -> None:
    gate = Gate()
    notes = Notes()
    batcher = Batcher(gate, observer=notes)
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    leaver = await let_in(batcher, items("x", "y"))
    stayer = await let_in(batcher, items("z"))
    assert batcher.queued_tokens == 30
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    assert batcher.queued_tokens == 10
    assert notes.drops == [(Lane.INTERACTIVE, "cancelled", 2)]
    gate.open()
    await first
    await stayer
    assert gate.batches == [["first"], ["z"]]
    await batcher.close()


async def test_work_whose_deadline_has_passed_never_reaches_the_model() -> None:
    gate = Gate()
    notes = Notes()
    now = 100.0
    batcher = Batcher(gate, observer=notes, clock=lambda: now)
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    late = await let_in(batcher, items("late"), deadline=101.0)
    timely = await let_in(batcher, items("timely"), deadline=200.0)
    now = 102.0
    gate.open()
    await first
    assert isinstance((await late).outcomes[0], ItemExpiredError)
    assert (await timely).outcomes == ("TIMELY",)
    assert gate.batches == [["first"], ["timely"]]
    assert (Lane.INTERACTIVE, "expired", 1) in notes.drops
    await batcher.close()


async def test_a_full_queue_refuses_the_whole_submission_and_says_when_to_come_back() -> None:
    gate = Gate()
    now = 0.0
    batcher = Batcher(gate, clock=lambda: now, limits=QueueLimits(queue_tokens=100, tenant_reserve=0))
    first = await let_in(batcher, items("first", tokens=50))
    await gate.wait_until_entered()
    now = 2.0
    gate.may_run.release()
    await first
    running = await let_in(batcher, items("running", tokens=50))
    await gate.wait_until_entered()
    waiting = await let_in(batcher, items("waiting", tokens=90))
    with pytest.raises(QueueFullError) as refusal:
        await batcher.submit(items("a", "b", "c"))
    assert refusal.value.queued_tokens == 90
    assert refusal.value.limit == 100
    # 20 tokens too many at 50 tokens in 2 seconds.
    assert refusal.value.retry_after_seconds == pytest.approx(0.8)
    assert batcher.queued_tokens == 90
    gate.open()
    await asyncio.gather(running, waiting)
    await batcher.close()


async def test_bulk_cannot_fill_the_place_kept_for_those_who_wait() -> None:
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100, tenant_reserve=0))
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    bulk = await let_in(batcher, items("bulk", tokens=70), lane=Lane.BULK)
    with pytest.raises(QueueFullError):
        await batcher.submit(items("more bulk"), lane=Lane.BULK)
    query = await let_in(batcher, items("query"))
    gate.open()
    assert (await query).outcomes == ("QUERY",)
    await asyncio.gather(first, bulk)
    await batcher.close()


async def test_a_submission_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    gate = Gate()
    gate.open()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100))
    answer = await batcher.submit(items(*"abcdef", tokens=40))
    assert answer.outcomes == tuple("ABCDEF")
    await batcher.close()


async def test_room_is_reserved_for_work_that_is_still_being_made_ready() -> None:
    gate = Gate()
    notes = Notes()
    batcher = Batcher(gate, observer=notes, limits=QueueLimits(queue_tokens=100))
    with batcher.reserve(90) as reservation:
        assert notes.queue[Lane.INTERACTIVE] == batcher.queued_tokens == 90
        with pytest.raises(QueueFullError) as refusal, batcher.reserve(20):
            pytest.fail("there is no room")
        assert refusal.value.queued_tokens == 90
        answer = asyncio.create_task(batcher.submit(items("a"), reservation=reservation))
        await gate.wait_until_entered()
        # The exact number took the estimate's place, and the model took that.
        assert batcher.queued_tokens == 0
        with batcher.reserve(100):
            assert batcher.queued_tokens == 100
        gate.open()
        assert (await answer).outcomes == ("A",)
    assert batcher.queued_tokens == 0
    assert notes.queue == {Lane.INTERACTIVE: 0, Lane.BULK: 0}
    await batcher.close()
    with pytest.raises(BatcherClosedError), batcher.reserve(1):
        pytest.fail("the batcher is closed")


async def test_a_reservation_may_serve_two_submissions() -> None:
    gate = Gate()
    gate.open()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100))
    # Larger than the queue, so that neither would fit beside the other without it.
    with batcher.reserve(200) as reservation:
        assert (await batcher.submit(items("q"), reservation=reservation, keep_reserved=190)).outcomes == ("Q",)
        assert batcher.queued_tokens == 190
        answer = await batcher.submit(items("a", "b", tokens=95), reservation=reservation)
        assert answer.outcomes == ("A", "B")
        assert batcher.queued_tokens == 0
    assert batcher.queued_tokens == 0
    await batcher.close()


async def test_a_reservation_is_given_back_whatever_becomes_of_the_work() -> None:
    notes = Notes()
    batcher = Batcher(Gate(), observer=notes, limits=QueueLimits(queue_tokens=100))

    async def never_ready() -> None:
        with batcher.reserve(60, lane=Lane.BULK):
            await asyncio.Event().wait()

    leaver = asyncio.create_task(never_ready())
    await asyncio.sleep(0)
    assert notes.queue[Lane.BULK] == 60
    with pytest.raises(QueueFullError), batcher.reserve(50):
        pytest.fail("there is no room")
    assert notes.queue == {Lane.INTERACTIVE: 0, Lane.BULK: 60}
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert batcher.queued_tokens == 0
    assert notes.queue == {Lane.INTERACTIVE: 0, Lane.BULK: 0}
    await batcher.close()


async def test_more_than_was_estimated_is_taken_all_the_same() -> None:
    """Who was let in is not sent away after his texts were tokenised."""
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100))
    running = await let_in(batcher, items("running", tokens=100))
    await gate.wait_until_entered()
    with batcher.reserve(60) as reservation:
        more = asyncio.create_task(batcher.submit(items("far", "more", tokens=80), reservation=reservation))
        await asyncio.sleep(0)
        assert batcher.queued_tokens == 160
        gate.open()
        assert (await more).outcomes == ("FAR", "MORE")
    await running
    await batcher.close()


async def test_a_call_that_could_not_be_done_by_its_deadline_is_refused_at_once() -> None:
    now = 0.0
    gate = Gate()
    batcher = Batcher(gate, clock=lambda: now, limits=QueueLimits(batch_tokens=100))
    first = await let_in(batcher, items("first", tokens=100))
    await gate.wait_until_entered()
    with batcher.reserve(400):
        # Nothing has been measured yet.
        batcher.check_room(Lane.INTERACTIVE, deadline=0.001)
    now = 1.0
    gate.may_run.release()
    await first
    running = await let_in(batcher, items("running", tokens=100))
    await gate.wait_until_entered()
    waiting = await let_in(batcher, items("waiting", tokens=400), lane=Lane.BULK)
    # 100 in the model, 400 before it and its own 10 make at least 5.1 seconds of 100 tokens each.
    with pytest.raises(QueueFullError) as refusal:
        await batcher.submit(items("hopeless"), lane=Lane.BULK, deadline=2.0)
    assert refusal.value.retry_after_seconds > 3
    with pytest.raises(QueueFullError), batcher.reserve(10, lane=Lane.BULK, deadline=2.0):
        pytest.fail("its turn comes too late")
    # Bulk work is not in the way of those who wait.
    timely = await let_in(batcher, items("timely"), lane=Lane.BULK, deadline=100.0)
    query = await let_in(batcher, items("query"), deadline=4.5)
    gate.open()
    assert (await query).outcomes == ("QUERY",)
    assert (await timely).outcomes == ("TIMELY",)
    await asyncio.gather(running, waiting)
    await batcher.close()


async def test_a_tenant_who_fills_the_queue_leaves_room_for_the_others() -> None:
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100))
    running = await let_in(batcher, items("running"))
    await gate.wait_until_entered()
    with batcher.reserve(75, tenant="flood"):
        with pytest.raises(QueueFullError) as refusal, batcher.reserve(5, tenant="flood"):
            pytest.fail("he has more than his part")
        assert refusal.value.limit == 75
        with batcher.reserve(20, tenant="other"):
            assert batcher.queued_tokens == 95
            with pytest.raises(QueueFullError) as refusal, batcher.reserve(10, tenant="third"):
                pytest.fail("there is no room at all")
            assert refusal.value.limit == 100
    gate.open()
    await running
    await batcher.close()


async def test_what_a_flood_was_estimated_too_low_is_not_at_the_cost_of_others() -> None:
    gate = Gate()
    batcher = Batcher(gate, limits=QueueLimits(queue_tokens=100))
    running = await let_in(batcher, items("running"))
    await gate.wait_until_entered()
    with batcher.reserve(70, tenant="flood") as reservation:
        # Signs and digits, say: three times the tokens that the estimate had.
        flood = asyncio.create_task(batcher.submit(items("flood", tokens=210), reservation=reservation))
        await asyncio.sleep(0)
        assert batcher.queued_tokens == 210
        with pytest.raises(QueueFullError) as refusal, batcher.reserve(1, tenant="flood"):
            pytest.fail("he has more than his part")
        assert refusal.value.queued_tokens == 210
        with batcher.reserve(20, tenant="other"), pytest.raises(QueueFullError), batcher.reserve(10, tenant="third"):
            pytest.fail("what is kept for the others is full")
        gate.open()
        await asyncio.gather(running, flood)
    await batcher.close()


async def test_a_device_that_is_gone_ends_what_waits_and_what_comes() -> None:
    gate = Gate()
    gate.open()
    entered = threading.Event()
    runs = 0

    def dying(payloads: list[str]) -> list[str]:
        nonlocal runs
        runs += 1
        entered.wait()
        raise DeviceLost("CUDA failure 719: unspecified launch failure")

    notes = Notes()
    batcher = Batcher(dying, observer=notes, limits=QueueLimits(batch_tokens=20))
    running = await let_in(batcher, items("a", "b", "c"))
    waiting = await let_in(batcher, items("d"), lane=Lane.BULK)
    entered.set()
    for task in (running, waiting):
        assert all(isinstance(outcome, ModelLostError) for outcome in (await task).outcomes)
    # Nothing was tried again, for no item is at fault.
    assert runs == 1
    assert batcher.queued_tokens == 0
    assert batcher.lost is not None
    assert notes.drops == [(Lane.INTERACTIVE, "lost", 1), (Lane.BULK, "lost", 1)]
    with pytest.raises(ModelLostError):
        await batcher.submit(items("later"))
    await batcher.close()


async def test_expired_work_makes_room_for_the_living() -> None:
    gate = Gate()
    now = 0.0
    batcher = Batcher(gate, clock=lambda: now, limits=QueueLimits(queue_tokens=100, tenant_reserve=0))
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    late = await let_in(batcher, items("late", tokens=90), deadline=1.0)
    now = 2.0
    fresh = await let_in(batcher, items("fresh", tokens=90))
    assert isinstance((await late).outcomes[0], ItemExpiredError)
    gate.open()
    assert (await fresh).outcomes == ("FRESH",)
    await first
    await batcher.close()


async def test_a_full_queue_is_not_looked_through_for_everybody_who_comes() -> None:
    gate = Gate()
    now = 0.0
    looks = 0

    def clock() -> float:
        return now

    class SlowQueue(LaneQueue[str, str]):
        def take_expired(self, at: float) -> list[Entry[str, str]]:
            nonlocal looks, now
            looks, now = looks + 1, now + 0.5
            return super().take_expired(at)

    batcher = Batcher(gate, clock=clock, limits=QueueLimits(queue_tokens=100, tenant_reserve=0))
    slow: dict[Lane, LaneQueue[str, str]] = {lane: SlowQueue() for lane in Lane}
    batcher._lanes = slow
    first = await let_in(batcher, items("first"))
    await gate.wait_until_entered()
    full = await let_in(batcher, items("full", tokens=90), deadline=1000.0)
    for _ in range(100):
        with pytest.raises(QueueFullError):
            await batcher.submit(items("more", tokens=90))
        now += 0.1
    # A look at both lanes takes a second: of these eleven seconds it has about a tenth, not all.
    assert looks <= 4
    gate.open()
    await asyncio.gather(first, full)
    await batcher.close()


async def test_closing_finishes_the_batch_in_the_model_and_ends_the_rest() -> None:
    gate = Gate()
    batcher = Batcher(gate)
    running = await let_in(batcher, items("running"))
    await gate.wait_until_entered()
    waiting = await let_in(batcher, items("waiting"))
    closing = asyncio.create_task(batcher.close())
    assert isinstance((await waiting).outcomes[0], BatcherClosedError)
    gate.open()
    await closing
    assert (await running).outcomes == ("RUNNING",)
    with pytest.raises(BatcherClosedError):
        await batcher.submit(items("too late"))


async def test_the_observer_sees_every_token_come_and_go() -> None:
    gate = Gate()
    gate.open()
    notes = Notes()
    batcher = Batcher(gate, observer=notes, limits=QueueLimits(batch_tokens=100))
    await batcher.submit([Item(payload="a", tokens=10), Item(payload="b", tokens=30)], lane=Lane.BULK)
    (report,) = notes.reports
    assert (report.lane, report.items, report.tokens, report.padded_tokens) == (Lane.BULK, 2, 40, 60)
    assert notes.queue == {Lane.INTERACTIVE: 0, Lane.BULK: 0}
    assert notes.in_model == 0
    assert batcher.tokens_per_second is not None
    await batcher.close()
