"""Who waits for whom, when they leave, and what each gets, in virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.cache.single_flight import Flown, SingleFlight
from kbmesh_rpc.call import CallContext, current_call, with_call
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KbmeshError, QueueFull, ShuttingDown
from virtual_time import VirtualLoop, run_virtually

PART = "a part of the answer"
WHOLE = "the answer"


@dataclass
class Kitchen:
    """Something slow to compute, and a count of how often it was."""

    loop: VirtualLoop
    seconds: float = 1.0
    outcome: object = WHOLE
    begun: int = 0
    ended: int = 0
    cancelled: int = 0
    running: int = 0
    left: int = 0
    parts: int = 0
    """Callers that got a part."""
    keeps_time: bool = False
    """Whether it raises DeadlineExceeded where its deadline passes."""
    calls: list[CallContext] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flights = SingleFlight[object]("retrieve", may_be_shared=lambda value: value != PART)

    async def compute(self, deadline: Deadline) -> object:
        self.begun += 1
        self.running += 1
        self.deadlines.append(deadline)
        self.calls.append(current_call())
        try:
            until = self.loop.time() + self.seconds
            while (now := self.loop.time()) < until:
                await asyncio.sleep(min(until - now, deadline.remaining()) if self.keeps_time else until - now)
                if self.keeps_time and deadline.expired and self.loop.time() < until:
                    self.ended += 1
                    raise DeadlineExceeded("retrieve")
            self.ended += 1
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def ask(
        self, *, after: float = 0, seconds: float = 10, key: str = "k", request: str = "r", tenant: str = "acme"
    ) -> Flown[object]:
        await asyncio.sleep(after)
        deadline = Deadline.after(seconds, clock=self.loop.time)
        call = CallContext(request_id=request, tenant=tenant, principals=("ada",), deadline=deadline)
        with with_call(call):
            return await self.flights.run(key, self.compute, deadline=deadline)


def story(tell: Callable[[Kitchen], Awaitable[None]], **of_kitchen: object) -> None:
    async def run(loop: VirtualLoop) -> None:
        kitchen = Kitchen(loop, **of_kitchen)
        await tell(kitchen)
        await asyncio.sleep(0)
        assert kitchen.running == 0, "nothing goes on when nobody waits"
        assert not kitchen.flights._flights

    run_virtually(run)


def test_equal_questions_are_computed_once() -> None:
    async def tell(kitchen: Kitchen) -> None:
        answers = await asyncio.gather(*(kitchen.ask(after=number / 10) for number in range(5)))
        assert [answer.value for answer in answers] == [WHOLE] * 5
        assert [answer.shared for answer in answers] == [False, True, True, True, True]
        assert kitchen.begun == 1
        assert kitchen.loop.time() == 1.0
        assert not (await kitchen.ask()).shared, "what has landed is not boarded any more"
        assert kitchen.begun == 2

    story(tell)


def test_other_questions_are_not_waited_for() -> None:
    async def tell(kitchen: Kitchen) -> None:
        await asyncio.gather(kitchen.ask(key="acme: a"), kitchen.ask(key="other: a"))
        assert kitchen.begun == 2

    story(tell)


def test_the_first_may_leave_and_the_others_have_their_answer() -> None:
    async def tell(kitchen: Kitchen) -> None:
        first = asyncio.create_task(kitchen.ask(request="first"))
        second = asyncio.create_task(kitchen.ask(after=0.1, request="second"))
        await asyncio.sleep(0.5)
        first.cancel()
        flown = await second
        assert (flown.value, flown.shared) == (WHOLE, True)
        assert (kitchen.begun, kitchen.cancelled) == (1, 0)
        assert [(call.request_id, call.tenant, call.principals) for call in kitchen.calls] == [
            ("first", "acme", ("ada",))
        ]

    story(tell)


def test_the_work_ends_when_the_last_has_left() -> None:
    async def tell(kitchen: Kitchen) -> None:
        tasks = [asyncio.create_task(kitchen.ask()) for _ in range(3)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        again = asyncio.create_task(kitchen.ask())
        assert not (await again).shared, "what is being ended is not boarded"
        assert (kitchen.begun, kitchen.cancelled, kitchen.ended) == (2, 1, 1)

    story(tell)


def test_the_work_has_the_longest_deadline_and_others_leave_alone() -> None:
    async def tell(kitchen: Kitchen) -> None:
        short = asyncio.create_task(kitchen.ask(seconds=1))
        long = asyncio.create_task(kitchen.ask(after=0.1, seconds=9))
        await asyncio.sleep(0.2)
        [deadline] = kitchen.deadlines
        assert deadline.remaining() == pytest.approx(8.9)
        assert deadline.less(0.5).remaining() == pytest.approx(8.4)
        with pytest.raises(DeadlineExceeded):
            await short
        assert kitchen.loop.time() == pytest.approx(1)
        assert not deadline.expired
        assert (await long).value == WHOLE
        assert kitchen.begun == 1

    story(tell, seconds=5.0)


def test_who_has_clearly_less_time_does_not_board() -> None:
    async def tell(kitchen: Kitchen) -> None:
        long = asyncio.create_task(kitchen.ask(seconds=9))
        short = asyncio.create_task(kitchen.ask(after=0.1, seconds=2))
        assert not (await short).shared
        assert (await long).value == WHOLE
        assert kitchen.begun == 2
        assert kitchen.deadlines[1].remaining() < 2

    story(tell)


def test_who_has_no_time_at_all_begins_nothing() -> None:
    async def tell(kitchen: Kitchen) -> None:
        with pytest.raises(DeadlineExceeded):
            await kitchen.ask(seconds=0)
        assert kitchen.ended == 0

    story(tell)


def test_a_part_goes_to_one_and_the_others_compute_at_once() -> None:
    async def tell(kitchen: Kitchen) -> None:
        first = asyncio.create_task(kitchen.ask())
        others = [asyncio.create_task(kitchen.ask(after=0.1)) for _ in range(3)]
        assert (await first) == Flown(value=PART, shared=False)
        kitchen.outcome = WHOLE
        answers = await asyncio.gather(*others)
        assert [answer.value for answer in answers] == [WHOLE] * 3
        assert not any(answer.shared for answer in answers)
        assert kitchen.begun == 4
        assert kitchen.loop.time() == pytest.approx(2), "together, not one after the other"

    story(tell, outcome=PART)


def test_a_part_goes_to_who_waited_longest_where_the_first_has_left() -> None:
    async def tell(kitchen: Kitchen) -> None:
        first = asyncio.create_task(kitchen.ask())
        second = asyncio.create_task(kitchen.ask(after=0.1))
        third = asyncio.create_task(kitchen.ask(after=0.2))
        await asyncio.sleep(0.5)
        first.cancel()
        assert (await second) == Flown(value=PART, shared=True)
        await third
        assert kitchen.begun == 2

    story(tell, outcome=PART)


@pytest.mark.parametrize(
    ("error", "computations"),
    [
        (DependencyUnavailable("embedder", "down"), 1),
        (QueueFull(queued_tokens=2, limit=1, retry_after_seconds=1), 1),
        (ZeroDivisionError("a bug"), 1),
        (DeadlineExceeded("embed"), 3),
    ],
)
def test_only_errors_that_do_not_depend_on_time_are_for_all(error: Exception, computations: int) -> None:
    async def tell(kitchen: Kitchen) -> None:
        asked = [kitchen.ask(after=number / 10) for number in range(3)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(type(one) is type(error) for one in outcomes)
        assert kitchen.begun == computations
        if isinstance(error, KbmeshError):
            assert len({id(one) for one in outcomes}) == 3 or computations == 3

    story(tell, outcome=error)


def test_closing_ends_what_is_under_way() -> None:
    async def tell(kitchen: Kitchen) -> None:
        waiting = asyncio.create_task(kitchen.ask())
        await asyncio.sleep(0.5)
        await kitchen.flights.close()
        with pytest.raises(ShuttingDown):
            await waiting

    story(tell)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_whoever_comes_and_goes(seed: int) -> None:
    """Callers of a few questions with deadlines and patience at random: everybody gets the whole answer, or
    DeadlineExceeded at its deadline and not later, or left; and there is never more work than callers."""
    chance = random.Random(seed)

    async def one(kitchen: Kitchen) -> None:
        start, seconds = chance.uniform(0, 3), chance.choice([0.3, 1.0, 3.0, 3.1, 8.0])

        async def asks() -> None:
            try:
                flown = await kitchen.ask(after=start, seconds=seconds, key=chance.choice("ab"))
                assert flown.value == kitchen.outcome
                kitchen.parts += flown.value == PART
            except DeadlineExceeded:
                assert kitchen.loop.time() > start
            assert kitchen.loop.time() <= start + seconds + 1e-9

        asked = asyncio.create_task(asks())
        if chance.random() < 0.3:
            await asyncio.sleep(start + chance.uniform(0, 3))
            kitchen.left += asked.cancel()
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.result()

    async def tell(kitchen: Kitchen) -> None:
        await asyncio.gather(*(one(kitchen) for _ in range(12)))
        assert kitchen.begun == kitchen.ended + kitchen.cancelled
        assert kitchen.parts <= kitchen.ended, "each part goes to one"
        assert kitchen.begun <= 24, "each takes part in one flight, and computes once for itself at most"

    story(tell, seconds=chance.choice([0.1, 1.0, 2.0]), keeps_time=True, outcome=chance.choice([WHOLE, WHOLE, PART]))
