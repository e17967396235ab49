"""One filter keeps the same points in every store, and the same as plain Python would: whatever is written in it."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from edge_process import edge_process
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.stores.conditions import metadata_numbers
from kbmesh_retriever.stores.pinecone import PineconeStore
from kbmesh_retriever.stores.port import Condition, PointFilter, SearchQuery, VectorStore
from kbmesh_retriever.stores.qdrant import QdrantStore
from memory_store import MemoryStore
from pinecone_server import API_KEY, pinecone_server
from store_points import DIMENSION, chunk, direction, scope

HANDBOOK = scope("acme", "handbook")
STRANGER = scope("globex", "handbook")

NAMES = [
    "team",
    "a.b",
    "$ne",
    "$or",
    "a[0]",
    "a b",
    "tenant",
    "metadata",
    "'; --",
    "*",
    "Ünï",
    "x" * 60,
    "_id",
    "a_b",
    "{}",
]
TEXTS = [
    "ops",
    "OPS",
    "$in",
    '"',
    "'",
    "\\",
    "a.b",
    "* OR tenant",
    "",
    " ",
    "2024",
    "-1.5",
    "1e3",
    "007",
    "ÄÖ",
    "a\nb",
    "null",
]
PRINCIPALS = ["user:ann", "group:ops", "$ne", '"']

PAYLOADS: list[dict[str, Any]] = [
    {
        "metadata": {
            name: TEXTS[(3 * number + 5 * place) % len(TEXTS)] for place, name in enumerate(NAMES[number % 4 :])
        },
        **({"author": TEXTS[number % len(TEXTS)]} if number % 3 else {}),
        **({"tags": TEXTS[number % 5 : number % 5 + number % 3]} if number % 2 else {}),
        **({"time": 1_700_000_000 + number * 1000.5} if number % 4 else {}),
        **({"principals": PRINCIPALS[number % 3 : number % 3 + 2]} if number % 5 == 0 else {}),
        "source_type": ["email", "web", "file"][number % 3],
    }
    for number in range(40)
]

TEXT_CONDITION = st.builds(
    Condition,
    field=st.sampled_from(["author", "tags", "source_type", "external_id", *(f"metadata.{name}" for name in NAMES)]),
    any_of=st.lists(st.sampled_from([*TEXTS, "email", "3.md"]), min_size=1, max_size=3).map(tuple),
)
BOUNDS = st.tuples(
    st.one_of(st.none(), st.sampled_from([-2.0, -1.5, 0.0, 7.0, 1000.0, 1_700_000_000.0, 1_700_010_005.0])),
    st.one_of(st.none(), st.sampled_from([-1.5, 7.0, 1000.0, 2024.0, 1_700_010_005.0])),
).filter(lambda pair: pair != (None, None))
NUMBER_CONDITION = st.builds(
    lambda field, bounds: Condition(field=field, gte=bounds[0], lte=bounds[1]),
    st.sampled_from(["time", *(f"metadata.{name}" for name in NAMES)]),
    BOUNDS,
)
CONDITIONS = st.lists(st.one_of(TEXT_CONDITION, NUMBER_CONDITION), max_size=2).map(tuple)
FILTER = st.builds(PointFilter, all=CONDITIONS, any=CONDITIONS, none=CONDITIONS)
ASKER = st.one_of(st.none(), st.lists(st.sampled_from([*PRINCIPALS, "user:eve"]), max_size=2))


def holds(condition: Condition, payload: Mapping[str, Any], name: str) -> bool:
    """The meaning of a condition, written down once more."""
    fields: dict[str, Any] = {**payload, "external_id": name}
    fields |= {f"metadata.{key}": value for key, value in payload["metadata"].items()}
    held = fields.get(condition.field)
    if condition.any_of:
        return any(text in condition.any_of for text in ([held] if isinstance(held, str) else held or []))
    if isinstance(held, str):
        held = metadata_numbers({"value": held}).get("value")
    if held is None:
        return False
    return not (condition.gte is not None and held < condition.gte) and not (
        condition.lte is not None and held > condition.lte
    )


def expected(wanted: PointFilter, asker: list[str] | None) -> set[str]:
    kept = set()
    for number, payload in enumerate(PAYLOADS):
        name = f"{number}.md"
        may_read = asker is None or not payload.get("principals") or bool({*asker} & {*payload["principals"]})
        if (
            may_read
            and all(holds(condition, payload, name) for condition in wanted.all)
            and (not wanted.any or any(holds(condition, payload, name) for condition in wanted.any))
            and not any(holds(condition, payload, name) for condition in wanted.none)
        ):
            kept.add(name)
    return kept


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A store with the points in it. Its calls run on one loop for all examples."""

    store: VectorStore
    loop: asyncio.AbstractEventLoop

    def keeps(self, wanted: PointFilter, asker: list[str] | None) -> set[str]:
        query = SearchQuery(
            collection="kb",
            scope=HANDBOOK,
            dense=direction(1.0),
            sparse=None,
            limit=100,
            filter=wanted,
            principals=asker,
        )
        found = self.loop.run_until_complete(self.store.search(query)).dense
        assert {hit.payload["tenant"] for hit in found} <= {"acme"}
        return {hit.payload["external_id"] for hit in found}


def _filled(store: VectorStore, loop: asyncio.AbstractEventLoop) -> Filled:
    async def fill() -> None:
        await store.ensure_collection("kb", dimension=DIMENSION)
        for of in (HANDBOOK, STRANGER):
            points = [chunk(of, f"{n}.md", "report", index=n, **payload) for n, payload in enumerate(PAYLOADS)]
            await store.upsert("kb", points)

    loop.run_until_complete(fill())
    return Filled(store=store, loop=loop)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Filled]]:
    folder: Path = tmp_path_factory.mktemp("same")
    loop = asyncio.new_event_loop()
    with edge_process(folder / "data") as edge_url, pinecone_server() as server:
        opened: dict[str, VectorStore] = {"memory": MemoryStore(), "qdrant": QdrantStore.connect(edge_url)}
        if find_spec("pinecone") is not None:
            opened["pinecone"] = PineconeStore.connect(API_KEY, host=server.url)
        yield {name: _filled(store, loop) for name, store in opened.items()}
        for store in opened.values():
            loop.run_until_complete(store.close())
        loop.close()


@given(wanted=FILTER, asker=ASKER)
@settings(max_examples=120, deadline=None)
def test_every_store_keeps_what_plain_python_does(
    stores: dict[str, Filled], wanted: PointFilter, asker: list[str] | None
) -> None:
    answers = {name: filled.keeps(wanted, asker) for name, filled in stores.items()}
    assert answers == dict.fromkeys(answers, expected(wanted, asker))
