"""The sum of all replicas' work: nobody who does not answer is taken for idle."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_rpc.errors import DependencyUnavailable
from kbmesh_rpc.scaler.sweep import CONCURRENCY, MEMORY_SECONDS, PeerLoad, Sweep, TotalLoad
from kbmesh_rpc.scaler.trigger import Peers

PEERS = Peers(host="embedder-headless", port=7402)


class World:
    """Replicas with their loads, a name that they stand behind, and a clock."""

    def __init__(self, **tokens: int | None) -> None:
        self.tokens: dict[str, int | None] = tokens
        """None does not answer."""
        self.instances: dict[str, str] = {}
        self.now = 1000.0
        self.asked: list[str] = []
        self.forgotten: list[str] = []
        self.hangs: set[str] = set()
        self.at_once = self.most_at_once = 0

    def sweep(self, *, fresh_seconds: float = 0.0, timeout_seconds: float = 5.0) -> Sweep:
        return Sweep(
            self.resolve, self, timeout_seconds=timeout_seconds, fresh_seconds=fresh_seconds, clock=lambda: self.now
        )

    async def resolve(self, peers: Peers) -> Sequence[str]:
        return list(self.tokens)

    async def __call__(self, address: str, *, timeout_seconds: float) -> PeerLoad:
        self.asked.append(address)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            if address in self.hangs:
                await asyncio.Event().wait()
            tokens = self.tokens[address]
            if tokens is None:
                raise DependencyUnavailable(address, "connection refused")
            return PeerLoad(instance=self.instances.get(address, address), tokens=tokens)
        finally:
            self.at_once -= 1

    async def forget(self, gone: Sequence[str]) -> None:
        self.forgotten += gone


async def test_every_address_is_asked_and_summed() -> None:
    world = World(a=100, b=0, c=50)
    total = await world.sweep().total(PEERS)
    assert total == TotalLoad(tokens=150, answered=3, remembered=0, averaged=0)
    assert sorted(world.asked) == ["a", "b", "c"]


async def test_one_that_stops_answering_counts_with_what_it_last_said_and_then_with_the_mean() -> None:
    world = World(a=100, b=300)
    sweep = world.sweep()
    assert (await sweep.total(PEERS)).tokens == 400
    world.tokens["b"] = None
    world.now += 30
    assert await sweep.total(PEERS) == TotalLoad(tokens=400, answered=1, remembered=1, averaged=0)
    world.now += MEMORY_SECONDS + 1
    assert await sweep.total(PEERS) == TotalLoad(tokens=200, answered=1, remembered=0, averaged=1)
    world.tokens["b"] = 0
    assert (await sweep.total(PEERS)).tokens == 100


async def test_one_that_never_answered_counts_with_the_mean_of_the_others() -> None:
    world = World(a=100, b=200, new=None)
    assert await world.sweep().total(PEERS) == TotalLoad(tokens=450, answered=2, remembered=0, averaged=1)


async def test_where_none_answers_there_is_no_sum() -> None:
    world = World(a=100)
    sweep = world.sweep()
    await sweep.total(PEERS)
    world.tokens["a"] = None
    with pytest.raises(DependencyUnavailable) as failure:
        await sweep.total(PEERS)
    assert failure.value.metadata == {"dependency": str(PEERS)}
    world.tokens.clear()
    with pytest.raises(DependencyUnavailable):
        await sweep.total(PEERS)


async def test_a_name_that_cannot_be_resolved_is_an_error() -> None:
    async def broken(peers: Peers) -> Sequence[str]:
        raise OSError("no such name")

    async def slow(peers: Peers) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    for resolve in (broken, slow):
        with pytest.raises(DependencyUnavailable):
            await Sweep(resolve, World(), timeout_seconds=0.05, fresh_seconds=0.0).total(PEERS)


async def test_two_addresses_of_one_process_count_once() -> None:
    """A service of IPv4 and IPv6 has two addresses for each pod."""
    world = World(v4=100, v6=100, other=10)
    world.instances = {"v4": "pod", "v6": "pod"}
    sweep = world.sweep()
    assert (await sweep.total(PEERS)).tokens == 110
    world.tokens["v6"] = None
    assert await sweep.total(PEERS) == TotalLoad(tokens=110, answered=2, remembered=0, averaged=0)


async def test_one_that_hangs_costs_no_more_than_the_time_there_is() -> None:
    world = World(a=100, b=100)
    world.hangs.add("b")
    total = await world.sweep(timeout_seconds=0.05).total(PEERS)
    assert (total.tokens, total.averaged) == (200, 1)
    assert world.at_once == 0
    total = await world.sweep().total(PEERS, timeout_seconds=0.05)
    assert (total.tokens, total.averaged) == (200, 1)


async def test_those_who_ask_at_once_share_one_round() -> None:
    world = World(a=100, b=50)
    sweep = world.sweep(fresh_seconds=1.0)
    totals = await asyncio.gather(*(sweep.total(PEERS) for _ in range(10)))
    assert {total.tokens for total in totals} == {150}
    assert len(world.asked) == 2
    world.now += 2
    await sweep.total(PEERS)
    assert len(world.asked) == 4


async def test_one_who_leaves_does_not_take_the_round_from_the_others() -> None:
    world = World(a=100)
    sweep = world.sweep(fresh_seconds=1.0)
    first = asyncio.create_task(sweep.total(PEERS))
    second = asyncio.create_task(sweep.total(PEERS))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).tokens == 100


async def test_who_is_gone_from_the_name_is_forgotten() -> None:
    world = World(a=100, b=50)
    sweep = world.sweep()
    await sweep.total(PEERS)
    del world.tokens["b"]
    assert (await sweep.total(PEERS)).tokens == 100
    assert world.forgotten == ["b"]
    world.tokens["b"] = None
    assert (await sweep.total(PEERS)).averaged == 1


async def test_no_more_than_some_are_asked_at_once() -> None:
    world = World(**{f"pod{index}": 1 for index in range(3 * CONCURRENCY)})
    assert (await world.sweep().total(PEERS)).tokens == 3 * CONCURRENCY
    assert world.most_at_once == CONCURRENCY


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 10_000)), min_size=3, max_size=3), min_size=1, max_size=6))
def test_the_sum_is_never_less_than_what_answered_and_each_address_counts(rounds: list[list[int | None]]) -> None:
    async def story() -> None:
        world = World(a=0, b=0, c=0)
        sweep = world.sweep()
        for loads in rounds:
            world.tokens = dict(zip("abc", loads, strict=True))
            answered = [tokens for tokens in loads if tokens is not None]
            if not answered:
                with pytest.raises(DependencyUnavailable):
                    await sweep.total(PEERS)
                continue
            total = await sweep.total(PEERS)
            assert total.tokens >= sum(answered)
            assert total.answered + total.remembered + total.averaged == len(loads)
            world.now += 10

    asyncio.run(story())
