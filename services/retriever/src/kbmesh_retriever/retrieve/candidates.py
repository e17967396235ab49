"""From the lists of all knowledge bases to one order of candidates."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from kbmesh_retriever.retrieve.fragment import Candidate, Ranks, Scores
from kbmesh_retriever.retrieve.fusion import Entry, merge_by_score, reciprocal_rank_fusion
from kbmesh_retriever.retrieve.search import Found, Lists
from kbmesh_retriever.retrieve.stage import ScoreStage

T = TypeVar("T")


def above(lists: Lists, stage: ScoreStage) -> tuple[Found, ...]:
    """The list of a stage (VECTOR or KEYWORD) without what is below its threshold. A threshold on vectors drops
    nothing from the keyword list, nor the other way round."""
    found = lists.dense if stage is ScoreStage.VECTOR else lists.keyword
    least = lists.target.thresholds.get(stage)
    return found if least is None else tuple(one for one in found if one.score >= least)


def fuse(all_lists: Sequence[Lists]) -> list[Candidate]:
    """Every fragment above its thresholds once, in fused order.

    For each query, vector lists of one model are merged by score before fusion, since cosines by one model compare
    across knowledge bases; keyword lists are merged by score within a collection, whose word statistics they share,
    and stand beside each other otherwise, so that they compare by rank.
    """
    queries = sorted({lists.query for lists in all_lists})
    merged: list[list[Entry]] = []
    for query in queries:
        of_query = [lists for lists in all_lists if lists.query == query]
        # Keywords first: they win ties. Vectors of identifiers that differ in one digit are all alike, words are not.
        merged += _merge(of_query, ScoreStage.KEYWORD, lambda lists: lists.target.knowledge_base.collection)
        merged += _merge(of_query, ScoreStage.VECTOR, lambda lists: lists.target.knowledge_base.model_fingerprint)
    candidates = _candidates(all_lists)
    return [
        candidates[fused.key].with_scores(fused=fused.score).with_ranks(fused=rank)
        for rank, fused in enumerate(reciprocal_rank_fusion(merged), start=1)
    ]


def _merge(all_lists: Iterable[Lists], stage: ScoreStage, group: Callable[[Lists], str]) -> list[list[Entry]]:
    by_group: dict[str, list[list[Entry]]] = defaultdict(list)
    for lists in all_lists:
        by_group[group(lists)].append(
            [
                Entry(key=found.fragment.chunk_id, score=found.score, weight=lists.target.weight)
                for found in above(lists, stage)
            ]
        )
    return [merge_by_score(entries) for entries in by_group.values()]


def _candidates(all_lists: Sequence[Lists]) -> dict[UUID, Candidate]:
    """Scores and ranks are those of the first query that saw the fragment. A score below the threshold is told too,
    where the other list keeps the fragment; its rank is not."""
    candidates: dict[UUID, Candidate] = {}
    for lists in sorted(all_lists, key=lambda one: one.query):
        dense_ranks = _ranks(above(lists, ScoreStage.VECTOR))
        keyword_ranks = _ranks(above(lists, ScoreStage.KEYWORD))
        dense = {found.fragment.chunk_id: found.score for found in lists.dense}
        keyword = {found.fragment.chunk_id: found.score for found in lists.keyword}
        for found in (*lists.dense, *lists.keyword):
            key = found.fragment.chunk_id
            known = candidates.get(key) or Candidate(
                fragment=found.fragment, target=lists.target.position, scores=Scores(), ranks=Ranks()
            )
            candidates[key] = known.with_scores(
                vector=_first(known.scores.vector, dense.get(key)),
                keyword=_first(known.scores.keyword, keyword.get(key)),
            ).with_ranks(
                vector=_first(known.ranks.vector, dense_ranks.get(key)),
                keyword=_first(known.ranks.keyword, keyword_ranks.get(key)),
            )
    return candidates


def _ranks(found: Sequence[Found]) -> dict[UUID, int]:
    return {one.fragment.chunk_id: rank for rank, one in enumerate(found, start=1)}


def _first(known: T | None, new: T | None) -> T | None:
    return new if known is None else known
