"""Several lists of a question to one order, computed here and not by the store.

- RRF (Cormack, Clarke and Büttcher, SIGIR 2009): score(d) = sum over the lists that hold d of weight / (k + rank), with
  ranks from 1. Qdrant's own fusion counts ranks from 0 and lets weights divide the rank, so that a favoured list's best
  hit can end last.
- The other methods scale each list's scores to 0 to 1 and add them, times the channel's share of all weights. WEIGHTED
  scales by the range of the list, DISTRIBUTION by its mean and deviation. ADAPTIVE scales by the range, and weighs each
  list by how far it can be trusted with the question.

The lists of several phrasings of a question are fused for each phrasing, and those orders by RRF.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from kbmesh_retriever.retrieve.scaling import by_distribution, by_range
from kbmesh_retriever.retrieve.trust import HEAD

K = TypeVar("K", bound=Hashable)
"""What stands for a chunk: its id, or whatever is equal for one chunk alone. It is looked up again and again."""

RRF_K = 60


class Channel(StrEnum):
    """What a list is ordered by."""

    KEYWORD = "keyword"
    VECTOR = "vector"


class FusionMethod(StrEnum):
    """How lists become one order."""

    ADAPTIVE = "adaptive"
    RRF = "rrf"
    WEIGHTED = "weighted"
    DISTRIBUTION = "distribution"


_WEIGHTS: Mapping[FusionMethod, Mapping[Channel, float]] = {
    FusionMethod.ADAPTIVE: {Channel.VECTOR: 0.5, Channel.KEYWORD: 0.5},
    FusionMethod.RRF: {Channel.VECTOR: 1.0, Channel.KEYWORD: 1.0},
    FusionMethod.WEIGHTED: {Channel.VECTOR: 0.7, Channel.KEYWORD: 0.3},
    FusionMethod.DISTRIBUTION: {Channel.VECTOR: 0.5, Channel.KEYWORD: 0.5},
}


@dataclass(frozen=True, kw_only=True)
class FusionOptions:
    """How lists are fused. A weight of None is the method's own."""

    method: FusionMethod = FusionMethod.ADAPTIVE
    vector_weight: float | None = None
    keyword_weight: float | None = None
    rrf_k: int | None = None
    """The constant of RRF. None: 60."""

    @property
    def k(self) -> int:
        """The constant of RRF."""
        return RRF_K if self.rrf_k is None else self.rrf_k

    def weight_of(self, channel: Channel) -> float:
        """Of a channel's lists."""
        own = self.vector_weight if channel is Channel.VECTOR else self.keyword_weight
        return _WEIGHTS[self.method][channel] if own is None else own


class Entry(NamedTuple, Generic[K]):
    """A chunk in a list, best first. A tuple, as `Fused`: of both a retrieval makes hundreds."""

    key: K
    score: float
    """What the list is ordered by; comparable with other entries of the list alone."""
    weight: float = 1.0
    """Of its knowledge base."""


@dataclass(frozen=True, kw_only=True)
class RankedList(Generic[K]):
    """What one channel gave to one phrasing of the question, best first."""

    query: int = 0
    """Which phrasing, from 0."""
    channel: Channel
    entries: Sequence[Entry[K]]
    trust: float = 1.0
    """How far ADAPTIVE believes it, 0 to 1."""


class Fused(NamedTuple, Generic[K]):
    """A chunk with its fused score."""

    key: K
    score: float


_score = attrgetter("score")

Shares = list[tuple[K, float]]
"""What a list gives to its chunks."""


def merge_by_score(lists: Sequence[Sequence[Entry[K]]]) -> list[Entry[K]]:
    """One list of several whose scores mean the same, each chunk once. Ties keep the order of the lists."""
    best: dict[K, Entry[K]] = {}
    for entries in lists:
        for entry in entries:
            if best.setdefault(entry.key, entry).score < entry.score:
                best[entry.key] = entry
    return sorted(best.values(), key=_score, reverse=True)


def fuse_lists(lists: Sequence[RankedList[K]], options: FusionOptions) -> list[Fused[K]]:
    """All chunks of the lists, each once, best first. The second place of a chunk in one list counts nothing.

    Equal scores are ordered by the first list that holds the chunk, then by its rank there: lists stand in order of
    trust.
    """
    if options.method is FusionMethod.RRF:
        return _summed([_by_rank(one.entries, options.weight_of(one.channel), options.k) for one in lists])
    queries = sorted({one.query for one in lists})
    orders = [_summed(_scaled([one for one in lists if one.query == query], options)) for query in queries]
    if len(orders) == 1:
        return orders[0]
    return _summed([(one.key, 1 / (options.k + rank)) for rank, one in enumerate(order, start=1)] for order in orders)


def reciprocal_rank_fusion(lists: Sequence[Sequence[Entry[K]]], *, k: int = RRF_K) -> list[Fused[K]]:
    """By rank alone, whatever the scores; an entry's weight multiplies what its place gives."""
    return _summed([_by_rank(entries, 1.0, k) for entries in lists])


def _by_rank(entries: Sequence[Entry[K]], weight: float, k: int) -> Shares[K]:
    return [(entry.key, weight * entry.weight / (k + rank)) for rank, entry in enumerate(_distinct(entries), start=1)]


def _scaled(lists: Sequence[RankedList[K]], options: FusionOptions) -> list[Shares[K]]:
    """What each list of one phrasing gives to its chunks. The shares of the channels that gave anything add up to 1, so
    that the score of a lone channel is not halved."""
    lists = [one for one in lists if one.entries]
    adaptive = options.method is FusionMethod.ADAPTIVE
    weights = [options.weight_of(one.channel) * (one.trust if adaptive else 1.0) for one in lists]
    if not any(weights):
        # Nothing is known for or against any of them.
        weights = [options.weight_of(one.channel) for one in lists]
    of_channel: dict[Channel, float] = {}
    for one, weight in zip(lists, weights, strict=True):
        of_channel[one.channel] = max(weight, of_channel.get(one.channel, 0.0))
    total = math.fsum(of_channel.values())
    all_shares: list[Shares[K]] = []
    for one, weight in zip(lists, weights, strict=True):
        entries = _distinct(one.entries)
        scores = [entry.score for entry in entries]
        if options.method is FusionMethod.DISTRIBUTION:
            scaled = by_distribution(scores)
        else:
            # A short list has nothing at the tenth place: two hits of like scores are not the best and the worst.
            scaled = by_range(scores, floor=0.0 if adaptive and len(scores) < HEAD else math.inf)
        share = weight / total if total > 0 else 0.0
        all_shares.append(
            [(entry.key, share * entry.weight * value) for entry, value in zip(entries, scaled, strict=True)]
        )
    return all_shares


def _distinct(entries: Sequence[Entry[K]]) -> list[Entry[K]]:
    first: dict[K, Entry[K]] = {}
    for entry in entries:
        first.setdefault(entry.key, entry)
    return list(first.values())


def _summed(all_shares: Iterable[Shares[K]]) -> list[Fused[K]]:
    """The chunks by what their lists give them together."""
    parts: dict[K, list[float]] = defaultdict(list)
    for shares in all_shares:
        for key, share in shares:
            parts[key].append(share)
    # Insertion order is the order of ties, and sorting is stable. fsum makes a score independent of the lists' order.
    fused = [Fused(key, math.fsum(scores)) for key, scores in parts.items()]
    return sorted(fused, key=_score, reverse=True)
