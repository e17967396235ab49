"""How far each channel can be trusted with the question at hand, by its own scores.

A list whose best hit stands far above the tenth has found something; one whose first ten are all alike has not,
whatever its best score is. So the trust in a list is how far its scores fall from the first to the tenth, as a share of
the first; for keywords the square of that, since BM25 falls further than cosines do: passages of other words share
little with a question, but all passages of a language have some likeness. BM25 of common words, and vectors of a
language that the model does not know, both lose their weight by that.
One thing scores do not tell: vectors of identifiers that differ in one digit are all alike. So the trust in vectors
also falls as what the question shares with the best keyword hit is identifiers, and is nothing where it is one
identifier alone. docs/decisions/0016-adaptive-fusion.md has what was measured.
"""

import math
from collections.abc import Sequence

from kbmesh_retriever.keywords.analyser import encode_query, term_id
from kbmesh_retriever.keywords.terms import WHOLE_IDENTIFIER_WEIGHT, document_tokens, query_tokens

HEAD = 10
"""Places over which the fall is taken."""


def trust_in_keywords(scores: Sequence[float]) -> float:
    """0 to 1, from the list's BM25 scores, best first."""
    return relative_fall(scores) ** 2


def trust_in_vectors(scores: Sequence[float]) -> float:
    """0 to 1, from the list's vector scores, best first."""
    return relative_fall(scores)


def relative_fall(scores: Sequence[float]) -> float:
    """0 to 1: by how much the tenth score is below the first, as a share of the first. Best first. A list of fewer has
    nothing at the tenth place, which is a score of 0. A best score that is not above 0 tells nothing: 0."""
    if not scores or not scores[0] > 0 or math.isinf(scores[0]):
        return 0.0
    tenth = scores[HEAD - 1] if len(scores) >= HEAD else 0.0
    return min(1.0, max(0.0, 1.0 - tenth / scores[0]))


class AskedIdentifiers:
    """The identifiers of a query, read once for all lists that answer it."""

    def __init__(self, query: str) -> None:
        self._terms = _terms_of_identifiers(query)
        asked = encode_query(query) if self._terms else None
        self._weights = dict(zip(asked.indices, asked.values, strict=True)) if asked is not None else {}
        self._total = math.fsum(self._weights.values())

    def vectors_tell_apart(self, best_keyword_hit: str) -> float:
        """1 less the square of the share that identifiers which the hit holds have in the weight of the query."""
        if not self._total > 0:
            return 1.0
        held = {term_id(term.text) for token in document_tokens(best_keyword_hit) for term in token.terms}
        share = math.fsum(self._weights[term] for term in sorted(self._terms & self._weights.keys() & held))
        return 1.0 - (share / self._total) ** 2


def _terms_of_identifiers(query: str) -> set[int]:
    return {
        term_id(term.text)
        for token in query_tokens(query)
        if any(term.weight == WHOLE_IDENTIFIER_WEIGHT for term in token.terms)
        for term in token.terms
    }
