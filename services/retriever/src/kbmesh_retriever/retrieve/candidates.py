"""From the lists of all knowledge bases to one order of candidates."""

from collections import defaultdict
from collections.abc import Callable, Sequence
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


@dataclass(slots=True, eq=False)
class Standing:
    """What the lists, and then fusion, say of a fragment. A score below the threshold is told too, where the other list
    keeps the fragment; its rank is not. Written and read in place, and equal to itself alone: of the hundreds that are
    fused a few become candidates."""

    fragment: Fragment
    target: int
    """Place in the request of its knowledge base, from 0."""
    vector: float | None = None
    keyword: float | None = None
    vector_rank: int | None = None
    keyword_rank: int | None = None
    fused: float = 0.0
    rank: int = 0
    """In fused order, from 1."""

    def candidate(self) -> Candidate:
        return Candidate(
            fragment=self.fragment,
            target=self.target,
            scores=Scores(vector=self.vector, keyword=self.keyword, fused=self.fused),
            ranks=Ranks(vector=self.vector_rank, keyword=self.keyword_rank, fused=self.rank),
        )


def fuse(all_lists: Sequence[Lists], queries: Sequence[str], options: FusionOptions) -> tuple[list[Standing], str]:
    """Every fragment above its thresholds once, in fused order; and what was decided, for a person.

    For each query, vector lists of one model are merged by score before fusion, since cosines by one model compare
    across knowledge bases; keyword lists are merged by score within a collection, whose word statistics they share,
    and stand beside each other otherwise. Scores and ranks are those of the first query that saw the fragment.
    """
    adaptive = options.method is FusionMethod.ADAPTIVE
    standings: dict[UUID, Standing] = {}
    ranked: list[RankedList[Standing]] = []
    notes: list[str] = []
    for query in sorted({lists.query for lists in all_lists}):
        read = [_read(lists, standings) for lists in all_lists if lists.query == query]
        by_words = _merge([one for one, _ in read], lambda lists: lists.target.knowledge_base.collection, adaptive)
        by_vectors = _merge(
            [one for _, one in read], lambda lists: lists.target.knowledge_base.model_fingerprint, adaptive
        )
        telling = 1.0
        if adaptive and by_words and by_vectors:
            asked = AskedIdentifiers(queries[query])
            telling = min(asked.vectors_tell_apart(one.entries[0].key.fragment.passage) for one in by_words)
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
    order: list[Standing] = []
    for standing, score in fuse_lists(ranked, options):
        order.append(standing)
        standing.fused, standing.rank = score, len(order)
    return order, note


@dataclass(frozen=True, kw_only=True)
class _Read:
    """One channel of what a knowledge base gave to one query."""

    channel: Channel
    lists: Lists
    entries: Sequence[Entry[Standing]]
    """Above the threshold."""

    @property
    def found(self) -> Sequence[Found]:
        return self.lists.dense if self.channel is Channel.VECTOR else self.lists.keyword


def _read(lists: Lists, standings: dict[UUID, Standing]) -> tuple[_Read, _Read]:
    """Words and vectors. Notes in `standings` what the lists say of each fragment."""
    position, weight = lists.target.position, lists.target.weight
    least = lists.target.thresholds.get(ScoreStage.VECTOR)
    by_vectors: list[Entry[Standing]] = []
    for fragment, score in lists.dense:
        standing = standings.get(fragment.chunk_id)
        if standing is None:
            standing = standings[fragment.chunk_id] = Standing(fragment, position)
        if standing.vector is None:
            standing.vector = score
        if least is None or score >= least:
            by_vectors.append(Entry(standing, score, weight))
            if standing.vector_rank is None:
                standing.vector_rank = len(by_vectors)
    least = lists.target.thresholds.get(ScoreStage.KEYWORD)
    by_words: list[Entry[Standing]] = []
    for fragment, score in lists.keyword:
        standing = standings.get(fragment.chunk_id)
        if standing is None:
            standing = standings[fragment.chunk_id] = Standing(fragment, position)
        if standing.keyword is None:
            standing.keyword = score
        if least is None or score >= least:
            by_words.append(Entry(standing, score, weight))
            if standing.keyword_rank is None:
                standing.keyword_rank = len(by_words)
    return (
        _Read(channel=Channel.KEYWORD, lists=lists, entries=by_words),
        _Read(channel=Channel.VECTOR, lists=lists, entries=by_vectors),
    )


@dataclass(frozen=True, kw_only=True)
class _Merged:
    """One list of several."""

    entries: Sequence[Entry[Standing]]
    """Above the thresholds."""
    trust: float
    """By all scores: a threshold that leaves few says nothing of the head."""


def _merge(read: Sequence[_Read], group: Callable[[Lists], str], adaptive: bool) -> list[_Merged]:
    """Those that hold anything. Trust is asked for by adaptive fusion alone."""
    by_group: dict[str, list[_Read]] = defaultdict(list)
    for one in read:
        by_group[group(one.lists)].append(one)
    merged: list[_Merged] = []
    for of_group in by_group.values():
        lists = [one.entries for one in of_group]
        # A list by itself is best first and has each chunk once, as it was read.
        if entries := merge_by_score(lists) if len(lists) > 1 else lists[0]:
            trust = _trust(of_group) if adaptive else 1.0
            merged.append(_Merged(entries=entries, trust=trust))
    return merged


def _trust(read: Sequence[_Read]) -> float:
    # Two knowledge bases never share a chunk: no score stands here twice.
    scores = sorted([found.score for one in read for found in one.found], reverse=True)
    return trust_in_vectors(scores) if read[0].channel is Channel.VECTOR else trust_in_keywords(scores)


def _told(lists: Sequence[RankedList[Standing]]) -> str:
    return ", ".join(f"{one.trust:.2f}" for one in lists) or "none"
