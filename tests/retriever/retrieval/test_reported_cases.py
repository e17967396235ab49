"""Faults that others have reported, each with the very input of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID, uuid4

import numpy as np
import pytest
from kbmesh_retriever.keywords.analyser import encode_document, encode_query
from kbmesh_retriever.mesh.port import Embedded, ModelInfo
from kbmesh_retriever.retrieve.fusion import Channel, Entry, FusionMethod, FusionOptions, RankedList, fuse_lists
from kbmesh_retriever.retrieve.stage import ScoreStage, Status, Strategy
from kbmesh_retriever.stores.port import Condition, Hit, Point, PointFilter, Scope, SearchQuery, SearchResult
from kbmesh_rpc.errors import DependencyUnavailable, ModelNotFound, Reason
from prometheus_client import REGISTRY
from retrieval_world import FaultyStore, ScriptedReranker, World, statuses_of, texts_of

RESTART = "Restart the payment service after a failed deployment."
ROLLBACK = "Roll the payment service back when a restart does not help."


async def test_ret_05_ids_of_several_kinds_in_one_answer(world: World) -> None:
    """RET-05: 7 and "7", two without one, and a text: nothing is merged, and nothing of it is believed."""
    odd = await world.make("odd", RESTART)
    await world.make("good", ROLLBACK)
    payload = {"tenant": "acme", "knowledge_base_id": str(odd.id)}

    def hit(identity: object, text: str = "") -> Hit:
        return Hit(id=identity, score=0.9, payload={**payload, "text": text})  # type: ignore[arg-type]  # the fault

    faulty = SearchResult(dense=(hit(7), hit(None, "p"), hit(None, "q")), keyword=(hit("7"), hit("summary_42")))
    store = FaultyStore(inner=world.store, answers={odd.collection: faulty})
    before = counted(Status.UNAVAILABLE)
    answer = await world.ask("restart payment", "odd", "good", parts={"store": store})
    assert texts_of(answer) == [ROLLBACK]
    assert statuses_of(answer) == {"odd": Status.UNAVAILABLE, "good": Status.OK}
    assert answer.reports[0].error is not None
    assert answer.reports[0].error.reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert [one.reason for one in answer.degradations] == [Reason.DEPENDENCY_INVALID_RESPONSE]
    assert counted(Status.UNAVAILABLE) == before + 1


def counted(status: Status) -> float:
    name = "kbmesh_retriever_knowledge_base_answers_total"
    return REGISTRY.get_sample_value(name, {"status": status.value}) or 0.0


@pytest.mark.parametrize("method", [FusionMethod.WEIGHTED, FusionMethod.ADAPTIVE])
async def test_ret_07_what_is_filtered_out_scales_nothing(world: World, method: FusionMethod) -> None:
    """RET-07: the best hit is kept from the caller; the best of those left has 1, and a threshold of 0.6 keeps it."""
    notes = await world.make("notes")
    await world.add(notes, "hidden", "payment restart payment restart", metadata={"team": "secret"})
    await world.add(notes, "d1", "payment restart of the payment service at night")
    await world.add(notes, "d2", "restart of the payment service and of other services by hand")
    everything = await world.ask("payment restart")
    assert everything.results[0].place.document.external_id == "hidden"
    filtered = PointFilter(none=(Condition(field="metadata.team", any_of=("secret",)),))
    answer = await world.ask(
        "payment restart",
        filter=filtered,
        fusion=FusionOptions(method=method),
        thresholds=((ScoreStage.FUSED, 0.6),),
    )
    first = answer.results[0]
    assert first.place.document.external_id == "d1"
    assert first.place.candidate.fused == pytest.approx(1.0)


def test_ret_07_by_the_numbers_of_the_report() -> None:
    """RET-07."""
    hidden, d1, d2 = uuid4(), uuid4(), uuid4()
    scores = {hidden: 0.033, d1: 0.016, d2: 0.015}
    entries = [Entry(key=key, score=score) for key, score in scores.items() if key != hidden]
    lists = [RankedList(channel=Channel.VECTOR, entries=entries)]
    fused = {one.key: one.score for one in fuse_lists(lists, FusionOptions(method=FusionMethod.WEIGHTED))}
    assert fused[d1] == pytest.approx(1.0)
    assert d1 in {key for key, score in fused.items() if score >= 0.6}


async def test_ret_08_one_shard_or_four_give_the_same_scores(world: World) -> None:
    """RET-08: a store that is asked for plain lists merges those of its shards by score, which is what one shard gives.
    Fusion and its threshold come after that, here, once."""
    base = await world.make("notes")
    texts = [f"report {number} " + "restart " * (number % 5) + "payment " * (number % 3) for number in range(40)]
    embedded = await world.embedder.embed(
        texts, model="", expected_fingerprint="", input_type="document", priority="bulk"
    )
    scope = Scope(tenant=base.tenant, knowledge_base_id=base.id)
    points = [
        Point(
            id=UUID(int=number),
            dense=embedded.vectors[number],
            sparse=encode_document(text),
            payload={"tenant": base.tenant, "knowledge_base_id": str(base.id), "text": text},
        )
        for number, text in enumerate(texts)
    ]
    asked = await world.embedder.embed(
        ["payment restart"], model="", expected_fingerprint="", input_type="query", priority="bulk"
    )
    lists: list[list[Entry]] = []
    for shards in (1, 4):
        found: list[Hit] = []
        for shard in range(shards):
            name = f"shard-{uuid4()}"
            await world.store.ensure_collection(name, dimension=base.dimension)
            await world.store.upsert(name, points[shard::shards])
            query = SearchQuery(
                collection=name, scope=scope, dense=asked.vectors[0], sparse=encode_query("payment restart"), limit=40
            )
            found += (await world.store.search(query)).dense
        best = sorted(found, key=lambda hit: (-hit.score, hit.id))
        lists.append([Entry(key=hit.id, score=hit.score) for hit in best])
    for method in FusionMethod:
        one, four = [
            [
                (fused.key, round(fused.score, 6))
                for fused in fuse_lists(
                    [RankedList(channel=Channel.VECTOR, entries=entries)], FusionOptions(method=method)
                )
                if fused.score >= 0.4 or method is FusionMethod.RRF
            ]
            for entries in lists
        ]
        assert one == four
        assert len(one) > 0


class Phrasings:
    """A language model that says everything in two more ways."""

    model = "scripted"

    async def hypothesize(self, query: str, *, timeout_seconds: float) -> str:
        return query

    async def rephrase(self, query: str, *, timeout_seconds: float) -> Sequence[str]:
        return ("kraken seen", "where krakens are")


async def test_ret_09_three_phrasings_hide_none_of_sixteen(world: World) -> None:
    """RET-09: 16 points match, three queries with two lists each, and 16 results are asked for."""
    texts = [f"Kraken sighting {number} near {place}" for number, place in enumerate("abcdefghijklmnop")]
    await world.make("notes", *texts, *(f"Unrelated remark {number}" for number in range(40)))
    store = FaultyStore(inner=world.store)
    names = tuple(f"doc-{number}" for number in range(1, 17))
    boosted = PointFilter(all=(Condition(field="external_id", any_of=names),))
    parts = {"store": store, "rephraser": Phrasings(), "reranker": ScriptedReranker()}
    for wanted in (None, boosted):
        answer = await world.ask("kraken sighting", strategy=Strategy.ADVANCED, top_k=16, filter=wanted, parts=parts)
        assert len(answer.queries) == 3
        assert sorted(texts_of(answer)) == sorted(texts)
    assert all(query.limit >= 32 for query in store.searched)


async def test_ret_20_by_the_seconds_of_the_report(world: World) -> None:
    """RET-20: a is fine, b raises UNAVAILABLE, c sleeps 10 s, and the caller waits 1 s."""
    await world.make("a", RESTART)
    down, slow = [await world.make(name, RESTART) for name in ("b", "c")]
    store = FaultyStore(
        inner=world.store,
        errors={down.collection: DependencyUnavailable("qdrant", "down")},
        delays={slow.collection: 10},
    )
    before = {status: counted(status) for status in (Status.OK, Status.UNAVAILABLE, Status.TIMEOUT)}
    answer = await world.ask("restart payment", "a", "b", "c", seconds=1.0, parts={"store": store})
    assert texts_of(answer) == [RESTART]
    errors = {report.knowledge_base: report.error.reason if report.error else None for report in answer.reports}
    assert errors == {"a": None, "b": Reason.DEPENDENCY_UNAVAILABLE, "c": Reason.DEADLINE_EXCEEDED}
    assert answer.degradations, "it is partial, and says so"
    assert store.cancelled == [slow.collection]
    assert {status: counted(status) - count for status, count in before.items()} == {
        Status.OK: 1,
        Status.UNAVAILABLE: 1,
        Status.TIMEOUT: 1,
    }


@dataclass
class Models:
    """An embedder of several models: name → fingerprint and numbers of a vector."""

    served: Mapping[str, tuple[str, int]]
    calls: list[str] = field(default_factory=list)

    async def find_model(self, name: str) -> ModelInfo:
        name = name or next(iter(self.served))
        fingerprint, dimension = self.served[name]
        return ModelInfo(name=name, fingerprint=fingerprint, dimension=dimension, max_tokens=256)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        self.calls.append(model)
        if model not in self.served:
            raise ModelNotFound(model, list(self.served))
        fingerprint, dimension = self.served[model]
        vectors = np.zeros((len(texts), dimension), np.float32)
        vectors[:, 0] = 1.0
        return Embedded(
            vectors=vectors,
            errors=(None,) * len(texts),
            tokens=(1,) * len(texts),
            tokens_cut=(0,) * len(texts),
            model=model,
            fingerprint=fingerprint,
        )

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        return [len(text.split()) for text in texts]


@pytest.mark.parametrize("kept", ["m1", "M1@vendor"])
async def test_ret_21_one_model_under_two_names_is_asked_once(world: World, kept: str) -> None:
    """RET-21: a and c were made by one model of 384 numbers, which goes by another name since; b by one of 768."""
    for name, model, fingerprint, dimension in (
        ("a", "m1", "f1", 384),
        ("b", "m2", "f2", 768),
        ("c", "M1@vendor", "f1", 384),
    ):
        maker = replace(world, embedder=Models({model: (fingerprint, dimension)}))
        await maker.make(name, f"{RESTART} It is number {name * 9} of those.")
    embedder = Models({kept: ("f1", 384), "m2": ("f2", 768)})
    for strategy in (Strategy.VECTOR_ONLY, Strategy.HYBRID):
        embedder.calls.clear()
        answer = await world.ask("restart payment", "a", "b", "c", strategy=strategy, parts={"embedder": embedder})
        assert set(statuses_of(answer).values()) == {Status.OK}
        assert {result.place.knowledge_base.name for result in answer.results} | {
            place.knowledge_base.name for result in answer.results for place in result.duplicates
        } == {"a", "b", "c"}
        served = [call for call in embedder.calls if call in embedder.served]
        assert sorted(served) == sorted([kept, "m2"]), "once for each model, whatever its names"


async def test_ret_26_twenty_thousand_points_and_a_filter_by_knowledge_base(world: World) -> None:
    """RET-26: the collection has its indexes when it is made, and what is asked of one knowledge base is all it gives.
    How long it takes is measured elsewhere."""
    name = f"many-{uuid4()}"
    await world.store.ensure_collection(name, dimension=4, shared=True)
    owners = [uuid4() for _ in range(20)]
    words = encode_document("report")
    points = [
        Point(
            id=UUID(int=number + 1),
            dense=np.array([1, number % 7, number % 11, 1], np.float32),
            sparse=words,
            payload={
                "tenant": "acme",
                "knowledge_base_id": str(owners[number % 20]),
                "document_id": str(UUID(int=number // 10)),
                "generation": 1,
                "text": f"report {number}",
            },
        )
        for number in range(20_000)
    ]
    await world.store.upsert(name, points)
    for owner in (owners[0], owners[19]):
        scope = Scope(tenant="acme", knowledge_base_id=owner)
        query = SearchQuery(
            collection=name,
            scope=scope,
            dense=np.array([1, 0, 0, 1], np.float32),
            sparse=encode_query("report"),
            limit=50,
        )
        found = await world.store.search(query)
        assert len(found.dense) == len(found.keyword) == 50
        assert {hit.payload["knowledge_base_id"] for hit in (*found.dense, *found.keyword)} == {str(owner)}
        assert await world.store.count(name, scope) == 1_000
