"""How far each channel can be trusted with the question at hand.

BM25 orders passages by words whatever the question: where no passage holds the words of a question, its list is as long
and its best hit as far ahead as where one holds them all. So its weight is the share of the question that its best hit
holds. Vectors of identifiers that differ in one digit are all alike. So their weight falls as what the question shares
with that hit is identifiers, and is nothing where it is one identifier alone.
docs/decisions/0016-adaptive-fusion.md has what was measured.
"""

import math
from dataclasses import dataclass

from kbmesh_retriever.keywords.analyser import encode_document, encode_query, term_id
from kbmesh_retriever.keywords.terms import WHOLE_IDENTIFIER_WEIGHT, query_tokens


@dataclass(frozen=True, kw_only=True)
class Trust:
    """In the channels, for one query; each 0 to 1."""

    keyword: float
    """The weight of the query's terms that the best keyword hit holds, in that of all. An identifier counts more than
    a word, and a stop word nothing, as in the search."""
    vector: float
    """1 less the square of the same for terms of identifiers alone."""


def trust_by(query: str, best_keyword_hit: str) -> Trust:
    """From the query and the text of the best hit by keyword."""
    asked = encode_query(query)
    total = math.fsum(asked.values)
    if not total > 0:
        return Trust(keyword=0.0, vector=1.0)
    held = set(encode_document(best_keyword_hit).indices)
    weights = {term: weight for term, weight in zip(asked.indices, asked.values, strict=True) if term in held}
    identifiers = math.fsum(weights.get(term, 0.0) for term in _terms_of_identifiers(query)) / total
    return Trust(keyword=math.fsum(weights.values()) / total, vector=1.0 - identifiers * identifiers)


def _terms_of_identifiers(query: str) -> set[int]:
    return {
        term_id(term.text)
        for token in query_tokens(query)
        if any(term.weight == WHOLE_IDENTIFIER_WEIGHT for term in token.terms)
        for term in token.terms
    }
