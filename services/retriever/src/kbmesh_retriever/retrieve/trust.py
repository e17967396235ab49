"""How far each channel can be trusted with the question at hand.

BM25 orders passages by words whatever the question: where no passage holds the words of a question, its list is as long
and its best hit as far ahead as where one holds them all. So its weight is the share of the question that its best hit
holds. Vectors of identifiers that differ in one digit are all alike. So their weight falls as what the question shares
with that hit is identifiers, and is nothing where it is one identifier alone.
docs/decisions/0016-adaptive-fusion.md has what was measured.
"""

import math
from dataclasses import dataclass

from kbmesh_retriever.keywords.analyser import encode_query, term_id
from kbmesh_retriever.keywords.terms import WHOLE_IDENTIFIER_WEIGHT, document_tokens, query_tokens


@dataclass(frozen=True, kw_only=True)
class Trust:
    """In the channels, for one query; each 0 to 1."""

    keyword: float
    """The weight of the query's terms that the best keyword hit holds, in that of all. An identifier counts more than
    a word, and a stop word nothing, as in the search."""
    vector: float
    """1 less the square of the same for terms of identifiers alone."""


class AskedTerms:
    """A query's terms, read once for all lists that answer it."""

    def __init__(self, query: str) -> None:
        asked = encode_query(query)
        self._weights = dict(zip(asked.indices, asked.values, strict=True))
        self._total = math.fsum(asked.values)
        self._identifiers = self._weights.keys() & _terms_of_identifiers(query)

    def trust_by(self, best_keyword_hit: str) -> Trust:
        """From the text of the best hit by keyword, which is read no further than until all terms are found."""
        if not self._total > 0:
            return Trust(keyword=0.0, vector=1.0)
        held = self._held_by(best_keyword_hit)
        identifiers = math.fsum(self._weights[term] for term in sorted(held & self._identifiers)) / self._total
        share = math.fsum(self._weights[term] for term in sorted(held)) / self._total
        return Trust(keyword=share, vector=1.0 - identifiers * identifiers)

    def _held_by(self, text: str) -> set[int]:
        held: set[int] = set()
        for token in document_tokens(text):
            held.update(term for term in (term_id(one.text) for one in token.terms) if term in self._weights)
            if len(held) == len(self._weights):
                break
        return held


def _terms_of_identifiers(query: str) -> set[int]:
    return {
        term_id(term.text)
        for token in query_tokens(query)
        if any(term.weight == WHOLE_IDENTIFIER_WEIGHT for term in token.terms)
        for term in token.terms
    }
