"""BM25 as sparse vectors (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009).

A document's value of a term is its saturated frequency, a query's its weight; the store multiplies by IDF, so the dot
product is BM25. The mean length is fixed, because a vector is written once and must not depend on what comes after it.
"""

import hashlib
from collections import defaultdict
from functools import lru_cache
from importlib.metadata import version

from kbmesh_retriever.keywords.terms import REMEMBERED_CHARACTERS, REMEMBERED_WORDS, document_tokens, query_tokens
from kbmesh_retriever.stores.port import SparseVector

K1 = 1.2
B = 0.75
MEAN_LENGTH_WORDS = 256
MAX_QUERY_TERMS = 128
"""Distinct terms of a query that are searched; identifiers first, then in the order of the query."""
MAX_MULTIPLICITY = 3
"""Times a repeated word of a query counts."""

ANALYSER_FINGERPRINT: str = (
    f"bm25-1 k1={K1} b={B} mean={MEAN_LENGTH_WORDS} snowball={'.'.join(version('snowballstemmer').split('.')[:2])}"
)
"""Documents analysed under another fingerprint have to be taken in again."""


def encode_document(text: str) -> SparseVector:
    """The BM25 vector of a passage; empty where it holds no word."""
    frequencies: dict[int, int] = defaultdict(int)
    length = 0
    for token in document_tokens(text):
        length += token.length
        for term in token.terms:
            frequencies[term_id(term.text)] += 1
    norm = K1 * (1 - B + B * length / MEAN_LENGTH_WORDS)
    indices = tuple(sorted(frequencies))
    return SparseVector(
        indices=indices, values=tuple(frequencies[i] * (K1 + 1) / (frequencies[i] + norm) for i in indices)
    )


def encode_query(text: str) -> SparseVector:
    """The weights of a query's terms; empty where it holds no word. Stop words are left out unless it has no other."""
    weights, counts = _weigh(text)
    kept = sorted(weights, key=lambda index: -weights[index])[:MAX_QUERY_TERMS]  # stable: the query's order within one
    indices = tuple(sorted(kept))
    return SparseVector(indices=indices, values=tuple(weights[i] * min(counts[i], MAX_MULTIPLICITY) for i in indices))


def terms_left_out(text: str) -> int:
    """How many of a query's distinct terms are over `MAX_QUERY_TERMS`, so that `encode_query` leaves them out."""
    return max(0, len(_weigh(text)[0]) - MAX_QUERY_TERMS)


def _weigh(text: str) -> tuple[dict[int, float], dict[int, int]]:
    """The weight of each term of a query, and how often it has it."""
    tokens = list(query_tokens(text))
    meaningful = [token for token in tokens if not token.is_stop_word] or tokens
    weights: dict[int, float] = {}
    counts: dict[int, int] = defaultdict(int)
    for token in meaningful:
        for term in token.terms:
            index = term_id(term.text)
            counts[index] += 1
            weights[index] = max(weights.get(index, 0.0), term.weight)
    return weights, counts


def term_id(term: str) -> int:
    """A stable 32-bit number for a term. Two terms may share one: at a million terms, one in 4,000 does."""
    return _remembered_id(term) if len(term) <= REMEMBERED_CHARACTERS else _term_id(term)


@lru_cache(maxsize=2 * REMEMBERED_WORDS)
def _remembered_id(term: str) -> int:
    return _term_id(term)


def _term_id(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "little")
