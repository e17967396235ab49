"""From the lists of all knowledge bases to one order of candidates."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from kbmesh_retriever.retrieve.fragment import Candidate, Fragment, Ranks, Scores
from kbmesh_retriever.retrieve.fusion import (
    Channel,
    Entry,
    FusionMethod,
    FusionOptions,
    RankedList,
    fuse_lists,
    merge_by_score,
)
from kbmesh_retriever.retrieve.search import Found, Lists
from kbmesh_retriever.retrieve.stage import ScoreStage
from kbmesh_retriever.retrieve.trust import AskedIdentifiers, trust_in_keywords, trust_in_vectors


def above(lists: Lists, stage: ScoreStage) -> tuple[Found, ...]:
    """The list of a stage (VECTOR or KEYWORD) without what is below its threshold. A threshold on vectors drops
    nothing from the keyword list, nor the other way round."""
    found = lists.dense if stage is ScoreStage.VECTOR else lists.keyword
    least = lists.target.thresholds.get(stage)
    return found if least is None else tuple(one for one in found if one.score >= least)


def fuse(all_lists: Sequence[Lists], queries: Sequence[str], options: FusionOptions) -> tuple[list[Candidate], str]:
    """Every fragment above its thresholds once, in fused order; and what was decided, for a person.

    For each query, vector lists of one model are merged by score before fusion, since cosines by one model compare
    across knowledge bases; keyword lists are merged by score within a collection, whose word statistics they share,
    and stand beside each other otherwise.
    """
    adaptive = options.method is FusionMethod.ADAPTIVE
    seen = _seen(all_lists)
    ranked: list[RankedList] = []
    notes: list[str] = []
    for query in sorted({lists.query for lists in all_lists}):
        of_query = [lists for lists in all_lists if lists.query == query]
        by_words = _merge(of_query, ScoreStage.KEYWORD, lambda lists: lists.target.knowledge_base.collection)
        by_vectors = _merge(of_query, ScoreStage.VECTOR, lambda lists: lists.target.knowledge_base.model_fingerprint)
        telling = 1.0
        if adaptive and by_words and by_vectors:
            asked = AskedIdentifiers(queries[query])
            telling = min(asked.vectors_tell_apart(seen[one.entries[0].key].fragment.passage) for one in by_words)
        # Keywords first: they win ties.
        of_words = [
            RankedList(query=query, channel=Channel.KEYWORD, entries=one.entries, trust=one.trust) for one in by_words
        ]
        of_vectors = [
            RankedList(query=query, channel=Channel.VECTOR, entries=one.entries, trust=one.trust * telling)
            for one in by_vectors
        ]
        ranked += [*of_words, *of_vectors]
        if adaptive:
            notes.append(f"query {query + 1}: trust in keywords {_told(of_words)}, in vectors {_told(of_vectors)}")
    weights = ", ".join(f"{channel.value} {options.weight_of(channel):g}" for channel in Channel)
    note = "; ".join([f"{options.method.value}, weights: {weights}", *notes])
    candidates = [
        seen[fused.key].candidate(fused=fused.score, rank=rank)
        for rank, fused in enumerate(fuse_lists(ranked, options), start=1)
    ]
    return candidates, note


@dataclass(frozen=True, kw_only=True)
class _Merged:
    """One list of several."""

    entries: Sequence[Entry]
    """Above the thresholds."""
    trust: float
    """By all scores: a threshold that leaves few says nothing of the head."""


def _merge(all_lists: Iterable[Lists], stage: ScoreStage, group: Callable[[Lists], str]) -> list[_Merged]:
    """Those that hold anything."""
    by_group: dict[str, list[Lists]] = defaultdict(list)
    for lists in all_lists:
        by_group[group(lists)].append(lists)
    is_dense = stage is ScoreStage.VECTOR
    trust_in = trust_in_vectors if is_dense else trust_in_keywords
    merged: list[_Merged] = []
    for of_group in by_group.values():
        entries = merge_by_score(
            [
                [
                    Entry(key=found.fragment.chunk_id, score=found.score, weight=lists.target.weight)
                    for found in above(lists, stage)
                ]
                for lists in of_group
            ]
        )
        if entries:
            # Two knowledge bases never share a chunk: no score stands here twice.
            scores = [found.score for lists in of_group for found in (lists.dense if is_dense else lists.keyword)]
            merged.append(_Merged(entries=entries, trust=trust_in(sorted(scores, reverse=True))))
    return merged


def _told(lists: Sequence[RankedList]) -> str:
    return ", ".join(f"{one.trust:.2f}" for one in lists) or "none"


@dataclass(slots=True)
class _Seen:
    """What the lists say of a fragment. A score below the threshold is told too, where the other list keeps the
    fragment; its rank is not. Written once and read once: a candidate for each list would cost more than fusion."""

    fragment: Fragment
    target: int
    vector: float | None = None
    keyword: float | None = None
    vector_rank: int | None = None
    keyword_rank: int | None = None

    def candidate(self, *, fused: float, rank: int) -> Candidate:
        return Candidate(
            fragment=self.fragment,
            target=self.target,
            scores=Scores(vector=self.vector, keyword=self.keyword, fused=fused),
            ranks=Ranks(vector=self.vector_rank, keyword=self.keyword_rank, fused=rank),
        )


def _seen(all_lists: Sequence[Lists]) -> dict[UUID, _Seen]:
    """Scores and ranks are those of the first query that saw the fragment."""
    all_seen: dict[UUID, _Seen] = {}

    def find(found: Found, lists: Lists) -> _Seen:
        key = found.fragment.chunk_id
        seen = all_seen.get(key)
        if seen is None:
            seen = all_seen[key] = _Seen(found.fragment, lists.target.position)
        return seen

    for lists in sorted(all_lists, key=lambda one: one.query):
        for found, rank in _ranked(lists.dense, lists.target.thresholds.get(ScoreStage.VECTOR)):
            seen = find(found, lists)
            seen.vector = found.score if seen.vector is None else seen.vector
            seen.vector_rank = rank if seen.vector_rank is None else seen.vector_rank
        for found, rank in _ranked(lists.keyword, lists.target.thresholds.get(ScoreStage.KEYWORD)):
            seen = find(found, lists)
            seen.keyword = found.score if seen.keyword is None else seen.keyword
            seen.keyword_rank = rank if seen.keyword_rank is None else seen.keyword_rank
    return all_seen


def _ranked(found: Sequence[Found], least: float | None) -> Iterator[tuple[Found, int | None]]:
    """Each with its rank among those above the threshold; None below it."""
    rank = 0
    for one in found:
        passes = least is None or one.score >= least
        rank += passes
        yield one, rank if passes else None
