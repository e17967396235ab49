"""The best results that say something else each, by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

Two texts are as alike as their word sets: the cosine, where a word counts the less the more candidates have it. Word
sets are at hand for every candidate, whichever list and model it was found by; vectors are not, and those of two models
cannot be compared.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from kbmesh_retriever.retrieve.deduplicate import word_set
from kbmesh_retriever.retrieve.fragment import Candidate


def diversify(
    candidates: Sequence[Candidate], *, diversity: float, most: int, admits: Callable[[Candidate], bool]
) -> tuple[Candidate, ...]:
    """Up to `most` candidates, each the one with the greatest (1 - diversity) x relevance - diversity x likeness.

    Relevance is the final score as a share of the best one's, 0 to 1; likeness, 0 to 1, that to the nearest one taken
    before. `candidates` are in order of relevance, which is also that of equals. `admits` is asked once for each that
    is about to be taken, and remembers what it admitted; who is refused is out. `diversity` 0 gives the order as it is,
    1 the best one and then those that differ most.
    """
    if diversity == 0:
        return _first(candidates, most, admits)
    vectors = _vectors([candidate.fragment.text for candidate in candidates])
    best = max((candidate.final for candidate in candidates), default=0.0)
    relevance = [max(candidate.final, 0.0) / best if best > 0 else 1.0 for candidate in candidates]
    likeness = [0.0] * len(candidates)
    left = list(range(len(candidates)))
    taken: list[Candidate] = []
    while left and len(taken) < most:
        # The first one is the most relevant whatever the diversity: there is nothing yet for it to differ from.
        index = max(
            left,
            key=lambda one: ((1 - diversity) * relevance[one] - diversity * likeness[one] if taken else 0.0, -one),
        )
        left.remove(index)
        if not admits(candidates[index]):
            continue
        taken.append(candidates[index])
        for other in left:
            likeness[other] = max(likeness[other], _cosine(vectors[index], vectors[other]))
    return tuple(taken)


def _first(candidates: Sequence[Candidate], most: int, admits: Callable[[Candidate], bool]) -> tuple[Candidate, ...]:
    taken: list[Candidate] = []
    for candidate in candidates:
        if len(taken) == most:
            break
        if admits(candidate):
            taken.append(candidate)
    return tuple(taken)


def _vectors(texts: Sequence[str]) -> list[dict[str, float]]:
    """Of each text its words with their weights, unit length."""
    words = [word_set(text) for text in texts]
    holding = Counter(word for one in words for word in one)
    # A sum depends on its order in the last bits, and that of a set on the process.
    weights = {word: math.log(1 + len(texts) / count) for word, count in holding.items()}
    vectors: list[dict[str, float]] = []
    for one in words:
        length = math.sqrt(math.fsum(weights[word] ** 2 for word in one))
        vectors.append({word: weights[word] / length for word in one})
    return vectors


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    return math.fsum(weight * longer[word] for word, weight in shorter.items() if word in longer)
