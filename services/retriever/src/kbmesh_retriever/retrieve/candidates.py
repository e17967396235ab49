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
from kbmesh_retriever.retrieve.trust import AskedTerms, Trust

_FULL = Trust(keyword=1.0, vector=1.0)


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
        asked = AskedTerms(queries[query]) if adaptive and by_words else None
        trusts = [
            _FULL if asked is None else asked.trust_by(seen[entries[0].key].fragment.passage) for entries in by_words
        ]
        in_vectors = min((trust.vector for trust in trusts), default=1.0)
        # Keywords first: they win ties.
        ranked += [
            RankedList(query=query, channel=Channel.KEYWORD, entries=entries, trust=trust.keyword)
            for entries, trust in zip(by_words, trusts, strict=True)
        ]
        ranked += [
            RankedList(query=query, channel=Channel.VECTOR, entries=entries, trust=in_vectors) for entries in by_vectors
        ]
        if adaptive:
            in_words = ", ".join(f"{trust.keyword:.2f}" for trust in trusts) or "none"
            notes.append(f"query {query + 1}: trust in keywords {in_words}, in vectors {in_vectors:.2f}")
    weights = ", ".join(f"{channel.value} {options.weight_of(channel):g}" for channel in Channel)
    note = "; ".join([f"{options.method.value}, weights: {weights}", *notes])
    candidates = [
        seen[fused.key].candidate(fused=fused.score, rank=rank)
        for rank, fused in enumerate(fuse_lists(ranked, options), start=1)
    ]
    return candidates, note


def _merge(all_lists: Iterable[Lists], stage: ScoreStage, group: Callable[[Lists], str]) -> list[list[Entry]]:
    """Lists that hold anything."""
    by_group: dict[str, list[list[Entry]]] = defaultdict(list)
    for lists in all_lists:
        by_group[group(lists)].append(
            [
                Entry(key=found.fragment.chunk_id, score=found.score, weight=lists.target.weight)
                for found in above(lists, stage)
            ]
        )
    merged = [merge_by_score(entries) for entries in by_group.values()]
    return [entries for entries in merged if entries]


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
