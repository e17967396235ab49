"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009), computed here and not by the store.

score(d) = sum over the lists that hold d of weight / (60 + rank), ranks from 1. Qdrant's own fusion counts ranks from 0
and lets weights divide the rank, so that a favoured list's best hit can end last.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

RRF_K = 60


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A chunk in a list, best first."""

    key: UUID
    score: float
    """What the list is ordered by; comparable with other entries of the list alone."""
    weight: float = 1.0
    """Of its knowledge base."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """A chunk with its fused score."""

    key: UUID
    score: float


def merge_by_score(lists: Sequence[Sequence[Entry]]) -> list[Entry]:
    """One list of several whose scores mean the same, each chunk once. Ties keep the order of the lists."""
    best: dict[UUID, Entry] = {}
    for entries in lists:
        for entry in entries:
            if entry.key not in best or entry.score > best[entry.key].score:
                best[entry.key] = entry
    return sorted(best.values(), key=lambda entry: -entry.score)


def reciprocal_rank_fusion(lists: Sequence[Sequence[Entry]]) -> list[Fused]:
    """All chunks of the lists, best first. The second place of a chunk in one list counts nothing.

    Equal scores are ordered by the first list that holds the chunk, then by its rank there: lists stand in order of
    trust.
    """
    parts: dict[UUID, list[float]] = defaultdict(list)
    for entries in lists:
        seen: set[UUID] = set()
        rank = 0
        for entry in entries:
            if entry.key in seen:
                continue
            rank += 1
            seen.add(entry.key)
            parts[entry.key].append(entry.weight / (RRF_K + rank))
    # Insertion order is the order of ties, and sorting is stable. fsum makes a score independent of the lists' order.
    fused = [Fused(key=key, score=math.fsum(scores)) for key, scores in parts.items()]
    return sorted(fused, key=lambda one: -one.score)
