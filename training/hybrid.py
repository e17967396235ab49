"""The order that a reranker is given: BM25 and vectors by the retriever's own adaptive fusion, in process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kbmesh_retriever.retrieve.fusion import Channel, Entry, FusionOptions, RankedList, fuse_lists
from kbmesh_retriever.retrieve.trust import AskedIdentifiers, trust_in_keywords, trust_in_vectors

from benchmarks.ranking import Encoder, Scored, score_by_vectors, score_by_words

LIST_LENGTH = 40
"""Of each channel, as a request for 20 results asks for."""

Fused = list[tuple[int, float]]
"""Places of the passages with their fused scores, best first."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found for a query, in fused order."""

    fused: Fused
    cosines: dict[int, float]
    """Of all places in `fused`."""
    keywords: dict[int, float]
    """BM25 of those that the keywords found."""


def fused_order(
    encoder: Encoder, passages: Sequence[str], queries: Sequence[str], *, progress: Callable[[str], None]
) -> list[Found]:
    """Of each query."""
    of_passages = encoder.embed(passages, query=False, progress=progress)
    of_queries = encoder.embed(queries, query=True, progress=progress)
    by_words = score_by_words(passages, queries, length=LIST_LENGTH)
    by_vectors = score_by_vectors(of_passages, of_queries, length=LIST_LENGTH)
    found = []
    for query, vector, words, vectors in zip(queries, of_queries, by_words, by_vectors, strict=True):
        fused = fuse(query, words, vectors, best_by_words=passages[words[0][0]] if words else None)
        cosines = {place: float(vector @ of_passages[place]) for place, _ in fused}
        found.append(Found(fused=fused, cosines=cosines, keywords=dict(words)))
    return found


def fuse(query: str, words: Scored, vectors: Scored, *, best_by_words: str | None) -> Fused:
    """Both lists of a query."""
    telling = 1.0 if best_by_words is None else AskedIdentifiers(query).vectors_tell_apart(best_by_words)
    trusts = (
        (Channel.KEYWORD, words, trust_in_keywords([score for _, score in words])),
        (Channel.VECTOR, vectors, trust_in_vectors([score for _, score in vectors]) * telling),
    )
    lists = [
        RankedList(
            channel=channel, entries=[Entry(key=UUID(int=place), score=score) for place, score in scored], trust=trust
        )
        for channel, scored, trust in trusts
    ]
    return [(fused.key.int, fused.score) for fused in fuse_lists(lists, FusionOptions())]
