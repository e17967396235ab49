"""What must hold of the batcher for any mix of callers, lengths, deadlines, poison and people who hang up."""

import asyncio
import itertools
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_onnx.batcher import Batcher, Item, ItemExpiredError, ItemFailedError, Lane, QueueLimits

BATCH_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Payload:
    caller: int
    position: int
    tokens: int
    poison: bool


@dataclass(frozen=True, kw_only=True)
class Caller:
    lane: Lane
    tenant: str
    tokens: tuple[int, ...]
    poison: frozenset[int]
    expired: bool
    leaves: bool
    turns_later: int


class FakeModel:
    """Answers with the payload itself and keeps its batches."""

    def __init__(self) -> None:
        self.batches: list[list[Payload]] = []

    def __call__(self, payloads: list[Payload]) -> list[Payload]:
        self.batches.append(payloads)
        if any(payload.poison for payload in payloads):
            raise ValueError("poison")
        return payloads


callers = st.builds(
    Caller,
    lane=st.sampled_from(Lane),
    tenant=st.sampled_from(["", "a", "b"]),
    tokens=st.lists(st.integers(1, 100), min_size=1, max_size=12).map(tuple),
    poison=st.frozensets(st.integers(0, 40), max_size=3),
    expired=st.booleans(),
    leaves=st.booleans(),
    turns_later=st.integers(0, 5),
)


async def call(batcher: Batcher[Payload, Payload], number: int, caller: Caller) -> None:
    for _ in range(caller.turns_later):
        await asyncio.sleep(0)
    payloads = [
        Payload(caller=number, position=position, tokens=tokens, poison=position in caller.poison)
        for position, tokens in enumerate(caller.tokens)
    ]
    answer = await batcher.submit(
        [Item(payload=payload, tokens=payload.tokens) for payload in payloads],
        lane=caller.lane,
        tenant=caller.tenant,
        deadline=-1.0 if caller.expired else 1.0,
    )
    assert len(answer.outcomes) == len(payloads)
    for payload, outcome in zip(payloads, answer.outcomes, strict=True):
        if caller.expired:
            assert isinstance(outcome, ItemExpiredError)
        elif payload.poison:
            assert isinstance(outcome, ItemFailedError)
        else:
            assert outcome == payload


@given(st.lists(callers, min_size=1, max_size=8), st.integers(64, 400))
@settings(max_examples=150, deadline=None)
def test_each_item_has_exactly_one_outcome_in_its_place(everybody: list[Caller], draw_tokens: int) -> None:
    async def story() -> FakeModel:
        model = FakeModel()
        batcher = Batcher(
            model,
            clock=lambda: 0.0,
            limits=QueueLimits(draw_tokens=draw_tokens, batch_tokens=BATCH_TOKENS, queue_tokens=10**9),
        )
        tasks = [asyncio.create_task(call(batcher, number, caller)) for number, caller in enumerate(everybody)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task, caller in zip(tasks, everybody, strict=True):
            if caller.leaves:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome, caller in zip(outcomes, everybody, strict=True):
            assert outcome is None or (caller.leaves and isinstance(outcome, asyncio.CancelledError))
        assert batcher.queued_tokens == 0
        await batcher.close()
        return model

    model = asyncio.run(story())
    seen: list[tuple[int, int]] = []
    for batch in model.batches:
        # A padded batch stays in its budget, or is one long item.
        assert len(batch) == 1 or len(batch) * max(payload.tokens for payload in batch) <= BATCH_TOKENS
        assert len({everybody[payload.caller].lane for payload in batch}) == 1
        assert not any(everybody[payload.caller].expired for payload in batch)
        if not any(payload.poison for payload in batch):
            seen += [(payload.caller, payload.position) for payload in batch]
    # Work is done once, poison or not.
    assert len(seen) == len(set(seen))


@given(st.lists(st.integers(1, BATCH_TOKENS), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_batches_of_a_draw_are_of_like_length_and_as_full_as_they_can_be(lengths: list[int]) -> None:
    async def story() -> FakeModel:
        model = FakeModel()
        batcher = Batcher(model, limits=QueueLimits(draw_tokens=10**6, batch_tokens=BATCH_TOKENS))
        await batcher.submit(
            [
                Item(payload=Payload(caller=0, position=position, tokens=tokens, poison=False), tokens=tokens)
                for position, tokens in enumerate(lengths)
            ]
        )
        await batcher.close()
        return model

    ran = asyncio.run(story()).batches
    assert sorted(payload.position for batch in ran for payload in batch) == list(range(len(lengths)))
    # Who is next is in the next batch.
    firsts = [min(payload.position for payload in batch) for batch in ran]
    assert firsts == sorted(firsts)
    by_length = sorted(ran, key=lambda batch: min((payload.tokens, payload.position) for payload in batch))
    assert [payload.tokens for batch in by_length for payload in batch] == sorted(lengths)
    for batch, following in itertools.pairwise(by_length):
        assert (len(batch) + 1) * following[0].tokens > BATCH_TOKENS
