"""Results with the chunks that stand around them, as the exact text of the document.

Chunks of one version of a document are joined where it is known what stands between them: they overlap, they touch, or
the later one carries the white space before it. Where it is not known the expansion ends; so it does at the end of an
attachment, a mail of a mailbox or any other part of a document, because no chunk carries what parts two of those.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kbmesh_rpc.errors import DeadlineExceeded, KbmeshError

from kbmesh_retriever.retrieve.fragment import Candidate, Fragment, Span
from kbmesh_retriever.retrieve.plan import Target
from kbmesh_retriever.retrieve.stage import Stage
from kbmesh_retriever.retrieve.time_budget import within
from kbmesh_retriever.stores.port import ChunkRange, StoreReader

Version = tuple[UUID, int]
"""A document and its generation."""


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """A fragment with its neighbours."""

    text: str = field(repr=False)
    """Exactly the document's over `span`."""
    context: str = field(repr=False)
    """What the first chunk of it needs to be understood."""
    span: Span
    heading_path: tuple[str, ...]
    """Headings above the first chunk of it."""
    pages: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """What became of candidates."""

    candidates: tuple[Candidate, ...]
    """In their order, without those that are part of another."""
    expansions: Mapping[UUID, Expansion]
    """By chunk. Those of a knowledge base that failed have none."""
    merged: Mapping[UUID, UUID]
    """For each chunk that is part of another one's expansion that other one."""
    failures: tuple[KbmeshError, ...]
    """One for each knowledge base whose chunks could not be read."""


async def expand(
    store: StoreReader,
    candidates: Sequence[Candidate],
    targets: Mapping[int, Target],
    *,
    each_side: int,
    seconds: float,
) -> Expanded:
    """Each candidate with up to `each_side` chunks before and behind it; where two meet, the better one has both.

    One call to the store for each knowledge base, all at once. `targets` by place in the request. Never raises for a
    knowledge base: its candidates are then left as they are.
    """
    by_target: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_target[candidate.target].append(candidate)
    async with asyncio.TaskGroup() as group:
        reading = {
            position: group.create_task(_read(store, targets[position], members, each_side, seconds))
            for position, members in by_target.items()
        }
    order = {candidate.chunk_id: place for place, candidate in enumerate(candidates)}
    kept: list[Candidate] = []
    expansions: dict[UUID, Expansion] = {}
    merged: dict[UUID, UUID] = {}
    failures: list[KbmeshError] = []
    for position, members in by_target.items():
        read = reading[position].result()
        if isinstance(read, KbmeshError):
            failures.append(read)
            kept += members
            continue
        for stretch, inside in _stretches(members, read, each_side):
            best, *others = sorted(inside, key=lambda one: order[one.chunk_id])
            kept.append(replace(best, duplicates=_elsewhere([best, *others], stretch)))
            expansions[best.chunk_id] = _joined(stretch)
            merged |= {other.chunk_id: best.chunk_id for other in others}
    return Expanded(
        candidates=tuple(sorted(kept, key=lambda one: order[one.chunk_id])),
        expansions=expansions,
        merged=merged,
        failures=tuple(failures),
    )


async def _read(
    store: StoreReader, target: Target, members: Sequence[Candidate], each_side: int, seconds: float
) -> Sequence[Fragment] | KbmeshError:
    if seconds <= 0:
        return DeadlineExceeded(Stage.ATTRIBUTE.value)
    try:
        chunks = await within(
            seconds,
            Stage.ATTRIBUTE,
            store.read_chunks(
                target.knowledge_base.collection,
                target.scope,
                _ranges(members, each_side),
                principals=target.principals,
            ),
        )
        return [Fragment.from_chunk(chunk, target.scope) for chunk in chunks]
    except KbmeshError as error:
        return error


def _ranges(members: Sequence[Candidate], each_side: int) -> list[ChunkRange]:
    """Of each version the chunks within reach of its members, each once."""
    indexes: dict[Version, set[int]] = defaultdict(set)
    for member in members:
        indexes[member.fragment.version].add(member.fragment.index)
    ranges: list[ChunkRange] = []
    for (document_id, generation), of_version in sorted(indexes.items()):
        first = last = -1
        for index in sorted(of_version):
            low, high = max(0, index - each_side), index + each_side
            if last < 0:
                first = low
            elif low > last + 1:
                ranges.append(ChunkRange(document_id=document_id, generation=generation, first=first, last=last))
                first = low
            last = high
        ranges.append(ChunkRange(document_id=document_id, generation=generation, first=first, last=last))
    return ranges


def _stretches(
    members: Sequence[Candidate], read: Sequence[Fragment], each_side: int
) -> Iterator[tuple[list[Fragment], list[Candidate]]]:
    """Chunks that can be joined, with the members among them."""
    of_version: dict[Version, list[Candidate]] = defaultdict(list)
    for member in members:
        of_version[member.fragment.version].append(member)
    around: dict[Version, dict[int, Fragment]] = defaultdict(dict)
    for fragment in (*read, *(member.fragment for member in members)):
        around[fragment.version][fragment.index] = fragment
    for version, own in of_version.items():
        fragments = [fragment for _, fragment in sorted(around[version].items())]
        yield from _within_reach(fragments, own, each_side)


def _within_reach(
    fragments: Sequence[Fragment], members: Sequence[Candidate], each_side: int
) -> Iterator[tuple[list[Fragment], list[Candidate]]]:
    for run in _runs(fragments):
        first, last = run[0].index, run[-1].index
        inside = [member for member in members if first <= member.fragment.index <= last]
        if not inside:
            continue
        near = [one for one in run if any(abs(one.index - member.fragment.index) <= each_side for member in inside)]
        if len(near) == len(run):
            yield run, inside
        else:
            # Without what was out of reach the rest may fall apart.
            yield from _within_reach(near, inside, each_side)


def _runs(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """Fragments of one version, in order, parted where it is not known what stands between two."""
    runs: list[list[Fragment]] = []
    text: _Text | None = None
    for fragment in fragments:
        if text is not None and runs[-1][-1].index + 1 == fragment.index and text.take(fragment):
            runs[-1].append(fragment)
        else:
            runs.append([fragment])
            text = _Text(fragment)
    return runs


class _Text:
    """A stretch of a document that grows by one chunk after the other."""

    def __init__(self, first: Fragment) -> None:
        self.text = first.text
        self.span = first.span

    def take(self, chunk: Fragment) -> bool:
        """Whether it is known to be the text that follows, or to lie within what is there; it is taken if so."""
        there = self.span
        if chunk.span.start < there.start:
            return False
        repeated = min(there.end, chunk.span.end) - chunk.span.start
        if repeated < 0:
            blank = chunk.blank_before
            news = blank + chunk.text if len(blank) == -repeated else None
        else:
            place = chunk.span.start - there.start
            same = self.text[place : place + repeated] == chunk.text[:repeated]
            news = chunk.text[repeated:] if same else None
        # Bytes are counted apart by the chunker: where they do not agree, the text between is not what it seems.
        end_byte = max(there.end_byte, chunk.span.end_byte)
        if news is None or len(news.encode()) != end_byte - there.end_byte:
            return False
        self.text += news
        self.span = replace(there, end=max(there.end, chunk.span.end), end_byte=end_byte)
        return True


def _joined(stretch: Sequence[Fragment]) -> Expansion:
    first, *others = stretch
    text = _Text(first)
    for fragment in others:
        text.take(fragment)
    return Expansion(
        text=text.text,
        context=first.context,
        span=text.span,
        heading_path=first.heading_path,
        pages=tuple(sorted({page for fragment in stretch for page in fragment.pages})),
    )


def _elsewhere(members: Sequence[Candidate], stretch: Sequence[Fragment]) -> tuple[Candidate, ...]:
    """The duplicates of all members, each once, without those that are part of the stretch."""
    known = {fragment.chunk_id for fragment in stretch}
    kept: list[Candidate] = []
    for duplicate in (one for member in members for one in member.duplicates):
        if duplicate.chunk_id not in known:
            known.add(duplicate.chunk_id)
            kept.append(duplicate)
    return tuple(kept)
