"""How far the keyword channel can be trusted with the question at hand.

BM25 orders passages by words whatever the question: where no passage holds the words of a question, its list is as long
and its best hit as far ahead as where one holds them all. So its weight is the share of the question that its best hit
answers to, which needs no training and no constant. docs/decisions/0015-adaptive-fusion.md has what was measured.
"""

import math

from kbmesh_retriever.keywords.analyser import encode_document, encode_query


def coverage(query: str, passage: str) -> float:
    """How much of the query the passage holds, 0 to 1: the weight of those of its terms that the passage has, in that
    of all. An identifier counts more than a word, and a stop word nothing, as in the search."""
    asked = encode_query(query)
    held = frozenset(encode_document(passage).indices)
    total = math.fsum(asked.values)
    if not total > 0:
        return 0.0
    return math.fsum(weight for term, weight in zip(asked.indices, asked.values, strict=True) if term in held) / total
