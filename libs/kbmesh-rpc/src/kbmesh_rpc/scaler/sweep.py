"""The work of all replicas of a service, by asking each of them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbmesh_rpc.errors import DependencyUnavailable, KbmeshError
from kbmesh_rpc.logs import get_logger
from kbmesh_rpc.scaler.trigger import Peers

log = get_logger(__name__)

CONCURRENCY = 32
MEMORY_SECONDS = 120.0
"""How long what an address last said stands for it. Several of KEDA's polls, which are 30 s apart by default."""
NAMED_ADDRESSES = 5


@dataclass(frozen=True, kw_only=True)
class PeerLoad:
    """What one replica has."""

    instance: str
    """Tells whether two addresses are one process."""
    tokens: int
    """Waiting and running."""


@dataclass(frozen=True, kw_only=True)
class TotalLoad:
    """What all replicas have."""

    tokens: float
    answered: int
    remembered: int
    """Addresses that did not answer, and count with what they last said."""
    averaged: int
    """Addresses that did not answer and never had of late; they count with the mean of those that did."""


Resolve = Callable[[Peers], Awaitable[Sequence[str]]]
"""The addresses behind a name, as gRPC targets. Raises OSError."""


class Ask(Protocol):
    """Asks one address."""

    async def __call__(self, address: str, *, timeout_seconds: float) -> PeerLoad:
        """Its load. Raises KbmeshError."""
        ...

    async def forget(self, gone: Sequence[str]) -> None:
        """Those addresses are behind the name no longer."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Remembered:
    load: PeerLoad
    at: float


class Sweep:
    """Asks every address behind a name, many at once and within a time. Belongs to one event loop.

    An address that does not answer is never taken for idle: see TotalLoad. Where none answers there is no sum.
    """

    def __init__(
        self,
        resolve: Resolve,
        ask: Ask,
        *,
        timeout_seconds: float,
        fresh_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolve = resolve
        self._ask = ask
        self._timeout_seconds = timeout_seconds
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._locks: dict[Peers, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._totals: dict[Peers, tuple[float, TotalLoad]] = {}
        self._memory: dict[Peers, dict[str, _Remembered]] = {}

    async def total(self, peers: Peers, *, timeout_seconds: float | None = None) -> TotalLoad:
        """The sum, at most `fresh_seconds` old. Who asks meanwhile waits for the same one.

        Takes no longer than the sweep's own time or `timeout_seconds`, whichever is less. Raises DependencyUnavailable
        where the name has no address or none of them answers.
        """
        async with self._locks[peers]:
            known = self._totals.get(peers)
            if known is not None and self._clock() - known[0] < self._fresh_seconds:
                return known[1]
            limit = self._timeout_seconds if timeout_seconds is None else min(self._timeout_seconds, timeout_seconds)
            total = await self._sweep(peers, max(0.0, limit))
            self._totals[peers] = (self._clock(), total)
            return total

    async def _sweep(self, peers: Peers, timeout_seconds: float) -> TotalLoad:
        until = self._clock() + timeout_seconds
        addresses = await self._addresses(peers, timeout_seconds)
        memory = self._memory.setdefault(peers, {})
        gone = [address for address in memory if address not in addresses]
        for address in gone:
            del memory[address]
        await self._ask.forget(gone)
        answers = await self._answers(addresses, until)
        failures: dict[str, KbmeshError] = {}
        for address, answer in answers.items():
            if isinstance(answer, PeerLoad):
                memory[address] = _Remembered(load=answer, at=self._clock())
            else:
                failures[address] = answer
        total = self._sum(answers, memory)
        if failures:
            shown = {address: error.message for address, error in list(failures.items())[:NAMED_ADDRESSES]}
            log.warning(
                "scaler_addresses_did_not_answer",
                peers=str(peers),
                unanswered=len(failures),
                addresses=len(answers),
                first=shown,
            )
        if total is None:
            raise DependencyUnavailable(str(peers), f"none of the {len(answers)} addresses of {peers} answered")
        return total

    async def _addresses(self, peers: Peers, timeout_seconds: float) -> list[str]:
        try:
            async with asyncio.timeout(timeout_seconds):
                addresses = sorted(set(await self._resolve(peers)))
        except (OSError, TimeoutError) as error:
            raise DependencyUnavailable(str(peers), f"{peers.host} cannot be resolved: {error or 'no time'}") from error
        if not addresses:
            raise DependencyUnavailable(str(peers), f"{peers.host} has no address")
        return addresses

    async def _answers(self, addresses: Sequence[str], until: float) -> dict[str, PeerLoad | KbmeshError]:
        async with asyncio.TaskGroup() as group:
            tasks = {address: group.create_task(self._one(address, until)) for address in addresses}
        return {address: task.result() for address, task in tasks.items()}

    async def _one(self, address: str, until: float) -> PeerLoad | KbmeshError:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock())), self._slots:
                return await self._ask(address, timeout_seconds=max(0.0, until - self._clock()))
        except KbmeshError as error:
            return error
        except TimeoutError:
            return DependencyUnavailable(address, f"{address} did not answer in time")

    def _sum(
        self, answers: Mapping[str, PeerLoad | KbmeshError], memory: Mapping[str, _Remembered]
    ) -> TotalLoad | None:
        loads: dict[str, int] = {}
        for answer in answers.values():
            if isinstance(answer, PeerLoad):
                loads[answer.instance] = max(answer.tokens, loads.get(answer.instance, 0))
        if not loads:
            return None
        answered = len(loads)
        mean = sum(loads.values()) / answered
        averaged = 0
        oldest = self._clock() - MEMORY_SECONDS
        for address, answer in answers.items():
            if isinstance(answer, PeerLoad):
                continue
            last = memory.get(address)
            if last is None or last.at < oldest:
                averaged += 1
            else:
                # The same process may have answered at its other address, IPv4 and IPv6 say.
                loads.setdefault(last.load.instance, last.load.tokens)
        return TotalLoad(
            tokens=sum(loads.values()) + averaged * mean,
            answered=answered,
            remembered=len(loads) - answered,
            averaged=averaged,
        )
