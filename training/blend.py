"""Orders that a reranker's scores make of the fused one, as functions of plain numbers.

A list of scores stands for the first passages of the fused order, in that order; what is given back are their places
in the new order, best first, ties in fused order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PROBABILITY_WEIGHT = 0.7
"""The retriever's (kbmesh_retriever.retrieve.rerank), of a cross-encoder's probability; a test holds them together."""
RRF_K = 60
DECISIVE_FALL = 0.4
"""The retriever's, which late interaction does not mend."""
KEYWORDS_WEIGHT = 0.5
"""Of BM25 in `mixed`."""

Floats = NDArray[np.float64]


def order_of(scores: Sequence[float] | Floats) -> list[int]:
    """By score alone."""
    return sorted(range(len(scores)), key=lambda place: -float(scores[place]))


def blended(logits: Sequence[float], fused: Sequence[float], *, weight: float = PROBABILITY_WEIGHT) -> Floats:
    """A cross-encoder's probability and the fused score, by the best of these. Unsure of all, it leaves the order."""
    best = max(fused, default=0.0) or 1.0
    return weight * _sigmoid(np.asarray(logits)) + (1 - weight) * np.asarray(fused) / best


def by_ranks(max_sim: Sequence[float], *, weight: float = 0.5) -> Floats:
    """Late interaction's rank and the fused one, as in reciprocal rank fusion."""
    ranks = np.empty(len(max_sim))
    ranks[order_of(max_sim)] = np.arange(1, len(max_sim) + 1)
    fused = np.arange(1, len(max_sim) + 1)
    return (RRF_K + 1) * (weight / (RRF_K + ranks) + (1 - weight) / (RRF_K + fused))


def within_falls(scores: Floats, fused: Sequence[float]) -> Floats:
    """Scores whose order passes no fall of the fused ones to less than DECISIVE_FALL of the one before."""
    falls = np.cumsum([place > 0 and score < DECISIVE_FALL * fused[place - 1] for place, score in enumerate(fused)])
    return scores - falls * (1 + float(np.ptp(scores)) if len(scores) else 1.0)


def mixed(cosines: Sequence[float], max_sim: Sequence[float], keywords: Sequence[float]) -> Floats:
    """Cosine, MaxSim weighted by the rarity of the query's tokens, and half of BM25, each by its range over these."""
    return by_range(cosines) + by_range(max_sim) + KEYWORDS_WEIGHT * by_range(keywords)


def by_range(scores: Sequence[float]) -> Floats:
    """The smallest is 0, the largest 1; where all are the same, 0."""
    values = np.asarray(scores, dtype=np.float64)
    spread = values.max() - values.min() if len(values) else 0.0
    return (values - values.min()) / spread if spread > 0 else np.zeros(len(values))


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -60, 60))), dtype=np.float64)
