"""A result with its neighbours is exactly what stands in the document, or less."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.retrieve.expansion import Expanded, expand
from kbmesh_retriever.retrieve.fragment import Candidate, Fragment, Ranks, Scores
from kbmesh_retriever.stores.port import Point, StoredChunk
from kbmesh_rpc.errors import DeadlineExceeded, DependencyInvalidResponse, DependencyUnavailable
from memory_store import MemoryStore
from store_points import DIMENSION, chunk, scope

HANDBOOK = scope("acme", "handbook")
COLLECTION = "kb"


def points_of(text: str, spans: Sequence[tuple[int, int]], name: str = "a.md", *, known: bool = True) -> list[Point]:
    """Chunks of a text. `known`: whether they carry the white space before them."""
    points, covered = [], 0
    for index, (start, end) in enumerate(spans):
        blank = text[covered:start] if known and index and start > covered else ""
        covered = max(covered, end)
        point = chunk(
            HANDBOOK,
            name,
            text[start:end],
            index=index,
            start=start,
            end=end,
            start_byte=len(text[:start].encode()),
            end_byte=len(text[:end].encode()),
            context=f"context {index}",
            pages=[index + 1],
            **({"blank_before": blank} if blank else {}),
        )
        points.append(point)
    return points


def candidate_of(point: Point, *, target: int = 0, duplicates: tuple[Candidate, ...] = ()) -> Candidate:
    fragment = Fragment.from_chunk(StoredChunk(id=point.id, payload=point.payload), HANDBOOK)
    return Candidate(fragment=fragment, target=target, scores=Scores(), ranks=Ranks(), duplicates=duplicates)


def target(*principals: str, collection: str = COLLECTION) -> Any:
    return SimpleNamespace(
        knowledge_base=SimpleNamespace(collection=collection), scope=HANDBOOK, principals=frozenset(principals)
    )


async def expanded(
    points: Sequence[Point], candidates: Sequence[Candidate], each_side: int, store: Any = None
) -> Expanded:
    if store is None:
        store = MemoryStore()
        await store.ensure_collection(COLLECTION, dimension=DIMENSION)
        await store.upsert(COLLECTION, points)
    return await expand(store, candidates, {0: target()}, each_side=each_side, seconds=5)


def texts(outcome: Expanded) -> list[str]:
    return [outcome.expansions[one.chunk_id].text for one in outcome.candidates]


FIVE = "Zero ä.\n\nOne 漢字. \n\n\nTwo 🎈.\n\n\tThree.\r\n\r\nFour."
SPANS = [(place, place + len(part)) for part in ("Zero ä.", "One 漢字.", "Two 🎈.", "\tThree.", "Four.")
         for place in [FIVE.index(part)]]  # fmt: skip


async def test_neighbours_are_joined_by_what_stands_between_them() -> None:
    points = points_of(FIVE, SPANS)
    outcome = await expanded(points, [candidate_of(points[2])], 1)
    (expansion,) = outcome.expansions.values()
    assert expansion.text == "One 漢字. \n\n\nTwo 🎈.\n\n\tThree."
    assert FIVE[expansion.span.start : expansion.span.end] == expansion.text
    assert FIVE.encode()[expansion.span.start_byte : expansion.span.end_byte].decode() == expansion.text
    assert (expansion.context, expansion.pages) == ("context 1", (2, 3, 4))
    assert texts(await expanded(points, [candidate_of(points[2])], 5)) == [FIVE]
    # At the ends of the document there is less.
    assert texts(await expanded(points, [candidate_of(points[0])], 1)) == ["Zero ä.\n\nOne 漢字."]
    assert texts(await expanded(points, [candidate_of(points[4])], 1)) == ["\tThree.\r\n\r\nFour."]


async def test_where_it_is_not_known_what_stands_between_the_expansion_ends() -> None:
    points = points_of(FIVE, SPANS)
    for index in (2, 3):
        points[index].payload.pop("blank_before")  # type: ignore[attr-defined]  # a dict in these tests
    assert texts(await expanded(points, [candidate_of(points[2])], 1)) == ["Two 🎈."]
    assert texts(await expanded(points, [candidate_of(points[3])], 1)) == ["\tThree.\r\n\r\nFour."]
    touching = points_of("onetwothree", [(0, 3), (3, 6), (6, 11)], known=False)
    assert texts(await expanded(touching, [candidate_of(touching[1])], 1)) == ["onetwothree"]


async def test_results_whose_neighbours_meet_become_the_better_one() -> None:
    points = points_of(FIVE, SPANS)
    elsewhere = candidate_of(points_of("x", [(0, 1)], "b.md")[0])
    best = candidate_of(points[3])
    other = candidate_of(points[0], duplicates=(elsewhere, candidate_of(points[1])))
    outcome = await expanded(points, [best, elsewhere, other], 1)
    assert texts(outcome) == [FIVE, "x"]
    assert [one.chunk_id for one in outcome.candidates] == [best.chunk_id, elsewhere.chunk_id]
    assert outcome.merged == {other.chunk_id: best.chunk_id}
    # What said the same as the other one says the same as the result now; what is part of it does not.
    assert [one.chunk_id for one in outcome.candidates[0].duplicates] == [elsewhere.chunk_id]
    apart = await expanded(points, [candidate_of(points[0]), candidate_of(points[4])], 1)
    assert texts(apart) == ["Zero ä.\n\nOne 漢字.", "\tThree.\r\n\r\nFour."]


async def test_another_version_or_another_document_is_no_neighbour() -> None:
    points = points_of(FIVE, SPANS)
    others = [
        replace(point, id=UUID(int=place), payload={**point.payload, "generation": 2, "text": "other"})
        for place, point in enumerate(points)
    ]
    outcome = await expanded([*points, *others, *points_of(FIVE, SPANS, "b.md")], [candidate_of(points[2])], 5)
    assert texts(outcome) == [FIVE]


async def test_what_cannot_be_read_leaves_the_results_as_they_are() -> None:
    points = points_of(FIVE, SPANS)

    class Down(MemoryStore):
        async def read_chunks(self, *_: object, **__: object) -> Sequence[StoredChunk]:
            raise DependencyUnavailable("qdrant", "down")

    class Slow(MemoryStore):
        async def read_chunks(self, *_: object, **__: object) -> Sequence[StoredChunk]:
            await asyncio.Event().wait()
            return []

    class Strange(MemoryStore):
        async def read_chunks(self, *_: object, **__: object) -> Sequence[StoredChunk]:
            foreign = {**points[1].payload, "tenant": "globex"}
            return [StoredChunk(id=points[1].id, payload=foreign)]

    candidates = [candidate_of(points[2]), candidate_of(points[3])]
    for store, seconds, error in (
        (Down(), 5.0, DependencyUnavailable),
        (Slow(), 0.01, DeadlineExceeded),
        (Slow(), 0.0, DeadlineExceeded),
        (Strange(), 5.0, DependencyInvalidResponse),
    ):
        outcome = await expand(store, candidates, {0: target()}, each_side=1, seconds=seconds)
        assert outcome.candidates == tuple(candidates)
        assert outcome.expansions == {}
        assert [type(one) for one in outcome.failures] == [error]


async def test_one_knowledge_base_that_fails_leaves_the_others_theirs() -> None:
    points = points_of(FIVE, SPANS)
    calls: list[str] = []

    class Half(MemoryStore):
        async def read_chunks(self, collection: str, *arguments: Any, **named: Any) -> Sequence[StoredChunk]:
            calls.append(collection)
            if collection == "broken":
                raise DependencyUnavailable("qdrant", "down")
            return await super().read_chunks(collection, *arguments, **named)

    store = Half()
    await store.ensure_collection(COLLECTION, dimension=DIMENSION)
    await store.upsert(COLLECTION, points)
    second = candidate_of(points_of(FIVE, SPANS, "b.md")[0], target=1)
    candidates = [candidate_of(points[0]), second, candidate_of(points[4])]
    outcome = await expand(store, candidates, {0: target(), 1: target(collection="broken")}, each_side=1, seconds=5)
    assert [one.chunk_id for one in outcome.candidates] == [one.chunk_id for one in candidates]
    assert set(outcome.expansions) == {candidates[0].chunk_id, candidates[2].chunk_id}
    assert len(outcome.failures) == 1
    assert sorted(calls) == ["broken", COLLECTION], "one call for each"


async def test_who_may_not_read_a_chunk_does_not_read_it_as_a_neighbour() -> None:
    points = points_of(FIVE, SPANS)
    points[1].payload["principals"] = ["ann"]  # type: ignore[index]  # a dict in these tests
    store = MemoryStore()
    await store.ensure_collection(COLLECTION, dimension=DIMENSION)
    await store.upsert(COLLECTION, points)
    for who, text in ((("ann",), FIVE[: SPANS[2][1]]), ((), "Two 🎈."), (("eve",), "Two 🎈.")):
        outcome = await expand(store, [candidate_of(points[2])], {0: target(*who)}, each_side=2, seconds=5)
        (expansion,) = outcome.expansions.values()
        assert expansion.text.startswith(text)
        assert ("One" in expansion.text) == (who == ("ann",))


@st.composite
def cut_documents(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A text and chunks of it, in order, that overlap, touch, nest or leave white space between them."""
    parts = draw(st.lists(st.sampled_from(["a", "é", "漢字 ", "🎈", " ", "\n\n", "\t", "words and ", "."]), min_size=3))
    text = "x" + "".join(parts) + "x"
    spans: list[tuple[int, int]] = []
    start = covered = 0
    while covered < len(text):
        end = draw(st.integers(start + 1, len(text)))
        if spans and draw(st.booleans()):
            start = draw(st.integers(spans[-1][0], covered))
            end = max(end, start + 1)
        spans.append((start, end))
        covered = max(covered, end)
        start = covered
        while start < len(text) and text[start].isspace():
            start += 1
    return text, spans


@given(cut_documents(), st.lists(st.integers(0, 50), min_size=1, max_size=4), st.integers(1, 5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_expanded_is_the_documents_text(
    cut: tuple[str, list[tuple[int, int]]], chosen: list[int], each_side: int, known: bool
) -> None:
    text, spans = cut
    points = points_of(text, spans, known=known)
    indexes = list(dict.fromkeys(index % len(points) for index in chosen))
    candidates = [candidate_of(points[index]) for index in indexes]
    outcome = asyncio.run(expanded(points, candidates, each_side))
    assert outcome.failures == ()
    assert {one.chunk_id for one in outcome.candidates} | set(outcome.merged) == {one.chunk_id for one in candidates}
    assert [one.chunk_id for one in outcome.candidates] == [
        one.chunk_id for one in candidates if one.chunk_id not in outcome.merged
    ]
    for one in candidates:
        whole = outcome.expansions[outcome.merged.get(one.chunk_id, one.chunk_id)]
        assert text[whole.span.start : whole.span.end] == whole.text
        assert text.encode()[whole.span.start_byte : whole.span.end_byte].decode() == whole.text
        assert whole.span.start <= one.fragment.span.start
        assert one.fragment.span.end <= whole.span.end
        assert one.fragment.text in whole.text
