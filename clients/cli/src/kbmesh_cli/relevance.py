"""How good a ranking is, by graded judgements.

A ranking is document ids, best first, each once. Judgements are the grades of a query's documents; a grade above 0 is
relevant. The definitions are those of trec_eval and BEIR (Thakur et al. 2021, https://arxiv.org/abs/2104.08663).
"""

import math
from collections.abc import Mapping, Sequence


def ndcg_at(cutoff: int, ranking: Sequence[str], judgements: Mapping[str, int]) -> float:
    """Normalised discounted cumulative gain (Järvelin and Kekäläinen 2002): gain is the grade, discount log2(rank + 1).

    0 to 1; 0 where nothing is relevant.
    """
    gains = [max(0, judgements.get(document, 0)) for document in ranking[:cutoff]]
    ideal = sorted((grade for grade in judgements.values() if grade > 0), reverse=True)[:cutoff]
    best = _discounted(ideal)
    return _discounted(gains) / best if best else 0.0


def recall_at(cutoff: int, ranking: Sequence[str], judgements: Mapping[str, int]) -> float:
    """Share of the relevant documents that are among the first `cutoff`. 0 where nothing is relevant."""
    relevant = {document for document, grade in judgements.items() if grade > 0}
    return len(relevant.intersection(ranking[:cutoff])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], judgements: Mapping[str, int]) -> float:
    """1 / rank of the first relevant document; 0 where there is none."""
    return next((1 / rank for rank, document in enumerate(ranking, 1) if judgements.get(document, 0) > 0), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the values do not exceed, interpolated linearly. 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def first_of_each(ids: Sequence[str]) -> list[str]:
    """Keeps the first place of each id: a document ranks where its best chunk does."""
    return list(dict.fromkeys(ids))


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
