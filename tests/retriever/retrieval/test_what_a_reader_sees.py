"""A reader sees its own tenant's documents, each in one version, and each saying once with all its places."""

import pytest
from kbmesh_retriever.retrieve.stage import Status, Strategy
from kbmesh_retriever.stores.port import Condition, PointFilter, Scope, SearchResult
from kbmesh_rpc.errors import KnowledgeBaseNotFound, Reason
from retrieval_world import FaultyStore, World, statuses_of, texts_of

POLICY = "Holiday policy: 25 days"


async def test_a_tenant_never_sees_anothers(world: World) -> None:
    """Same names, same words, one collection: neither name nor id opens it."""
    mine = await world.make("notes", "Kraken plan of acme", collection="shared-notes")
    theirs = await world.make("notes-of-globex", "Kraken plan of globex", tenant="globex", collection="shared-notes")
    assert texts_of(await world.ask("kraken", "notes")) == ["Kraken plan of acme"]
    answer = await world.ask("kraken", "notes", str(theirs.id), "notes-of-globex")
    assert texts_of(answer) == ["Kraken plan of acme"]
    assert statuses_of(answer) == {
        "notes": Status.OK,
        str(theirs.id): Status.NOT_FOUND,
        "notes-of-globex": Status.NOT_FOUND,
    }
    with pytest.raises(KnowledgeBaseNotFound):
        await world.ask("kraken", str(mine.id), tenant="globex")


async def test_a_store_that_gives_anothers_points_is_not_believed(world: World) -> None:
    mine = await world.make("notes", "Kraken plan of acme")
    theirs = await world.make("theirs", "Kraken plan of globex", tenant="globex")
    store = FaultyStore(inner=world.store)
    await world.ask("kraken", "theirs", tenant="globex", parts={"store": store})
    leak = await world.store.search(store.searched[0])
    assert leak.keyword
    leaky = FaultyStore(inner=world.store, answers={mine.collection: leak})
    answer = await world.ask("kraken", "notes", parts={"store": leaky})
    assert answer.results == ()
    assert answer.reports[0].error is not None
    assert answer.reports[0].error.reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert theirs.tenant == "globex"


async def test_ret_22_equal_text_in_two_knowledge_bases(world: World) -> None:
    """RET-22."""
    first = await world.make("a")
    second = await world.make("b")
    await world.add(first, "1", POLICY)
    await world.add(second, "9", POLICY)
    answer = await world.ask("holiday policy", "a", "b")
    (result,) = answer.results
    places = [result.place, *result.duplicates]
    assert {(place.knowledge_base.name, place.document.external_id) for place in places} == {("a", "1"), ("b", "9")}
    assert [report.hits for report in answer.reports] == [1, 1]
    await world.catalog.delete_document(first.id, "1")
    answer = await world.ask("holiday policy", "a", "b")
    (result,) = answer.results
    assert (result.place.document.external_id, result.duplicates) == ("9", ())
    assert statuses_of(answer) == {"a": Status.EMPTY, "b": Status.OK}


async def test_a_new_version_replaces_the_old_as_a_whole(world: World) -> None:
    notes = await world.make("notes")
    await world.add(notes, "plan", "Kraken plan, first version", "Kraken budget, first version")
    await world.add(notes, "plan", "Kraken plan, second version", publish=False)
    assert sorted(texts_of(await world.ask("kraken"))) == ["Kraken budget, first version", "Kraken plan, first version"]
    await world.add(notes, "plan", "Kraken plan, third version", title="The plan")
    answer = await world.ask("kraken")
    assert texts_of(answer) == ["Kraken plan, third version"]
    assert answer.results[0].place.document.title == "The plan"


async def test_old_versions_never_crowd_the_new_one_out(world: World) -> None:
    """Superseded chunks that match better fill every list: a longer one is asked for."""
    notes = await world.make("notes")
    await world.add(notes, "plan", *(f"kraken kraken plan {number}" for number in range(60)))
    await world.add(notes, "plan", "Some other words around the kraken, and a plan that matches less than the old did")
    answer = await world.ask("kraken plan")
    assert texts_of(answer) == ["Some other words around the kraken, and a plan that matches less than the old did"]


async def test_ret_09_all_that_match_can_surface(world: World) -> None:
    """RET-09."""
    texts = [f"Kraken sighting {number} near {place}" for number, place in enumerate("abcdefghijklmnop")]
    await world.make("notes", *texts, *(f"Unrelated remark {number}" for number in range(20)))
    for strategy in (Strategy.HYBRID, Strategy.VECTOR_ONLY):
        answer = await world.ask("kraken sighting", strategy=strategy, top_k=16)
        assert sorted(texts_of(answer)) == sorted(texts)
    hundred = FaultyStore(inner=world.store)
    await world.ask("kraken", top_k=100, parts={"store": hundred})
    assert hundred.searched[0].limit >= 200


async def test_filters_of_the_request_keep_out(world: World) -> None:
    notes = await world.make("notes")
    await world.add(notes, "old", "Kraken in the old year", metadata={"year": "2019", "team": "ops"})
    await world.add(notes, "new", "Kraken in the new year", metadata={"year": "2026", "team": "ops"})
    await world.add(notes, "slack", "Kraken in a chat", source_type="slack", metadata={"team": "dev"})
    recent = PointFilter(all=(Condition(field="metadata.year", gte=2020),))
    assert texts_of(await world.ask("kraken", filter=recent)) == ["Kraken in the new year"]
    chat = PointFilter(any=(Condition(field="source_type", any_of=("slack", "email")),))
    assert texts_of(await world.ask("kraken", filter=chat)) == ["Kraken in a chat"]
    no_ops = PointFilter(none=(Condition(field="metadata.team", any_of=("ops",)),))
    assert texts_of(await world.ask("kraken", filter=no_ops)) == ["Kraken in a chat"]
    by_id = PointFilter(all=(Condition(field="external_id", any_of=("old",)),))
    assert texts_of(await world.ask("kraken", filter=by_id)) == ["Kraken in the old year"]


async def test_ret_10_and_13_words_of_all_scripts_are_found_through_the_engine(world: World) -> None:
    """RET-10, RET-13."""
    await world.make("notes", "国際標準化に関する動向を調査した", "今日の昼食はうどん", "cafe\u0301 menu", "ｻｰﾊﾞｰ停止")
    for query, text in (
        ("標準化", "国際標準化に関する動向を調査した"),
        ("café", "cafe\u0301 menu"),
        ("サーバー停止", "ｻｰﾊﾞｰ停止"),
    ):
        answer = await world.ask(query)
        first = answer.results[0].place.candidate
        assert first.fragment.text == text, "and it is stored as it was written"
        assert (first.scores.keyword or 0) > 0


async def test_ret_23_a_rare_word_outweighs_common_ones(world: World) -> None:
    """RET-23: words common to all weigh next to nothing, because the engine multiplies by IDF."""
    notes = await world.make("notes")
    await world.add(notes, "weekly", *(["report status weekly"] * 20))
    await world.add(notes, "incident", "report kraken incident")
    answer = await world.ask("report kraken")
    assert texts_of(answer)[0] == "report kraken incident"


async def test_explain_tells_each_stage(world: World) -> None:
    first = await world.make("a", POLICY, "Something else about zebras")
    await world.make("b", POLICY)
    answer = await world.ask("holiday policy", "a", "b", explain=True)
    traces = {(trace.stage.value, trace.label): trace for trace in answer.explanation}
    assert {"vector a", "keyword a", "vector b", "keyword b"} <= {label for _, label in traces}
    dropped = [one.dropped for one in traces["search", "vector a"].candidates if one.dropped]
    assert dropped == ["below the vector threshold 0.2"]
    assert [one.dropped != "" for one in traces["deduplicate", ""].candidates] == [False, True]
    assert set(answer.timings) >= {"resolve", "embed", "search", "fuse", "deduplicate", "attribute", "total"}
    assert first.name == "a"
    quiet = await world.ask("holiday policy", "a", "b")
    assert quiet.explanation == ()


async def test_shared_and_dedicated_placement_give_the_same_fragments(world: World) -> None:
    texts = [f"Kraken sighting {number}" for number in range(5)]
    await world.make("one", *texts[:2], collection="shared-kraken")
    await world.make("two", *texts[2:], collection="shared-kraken")
    answer = await world.ask("kraken", "one", "two", explain=True)
    assert sorted(texts_of(answer)) == texts
    keyword_ranks = {result.place.candidate.ranks.keyword for result in answer.results}
    assert keyword_ranks == {1, 2, 3}


async def test_an_answer_of_nothing_but_emptiness(world: World) -> None:
    empty = await world.make("empty")
    store = FaultyStore(inner=world.store, answers={empty.collection: SearchResult(dense=(), keyword=())})
    answer = await world.ask("kraken", "empty", parts={"store": store}, strategy=Strategy.HYBRID_RERANK)
    assert statuses_of(answer) == {"empty": Status.EMPTY}
    assert answer.degradations == ()
    assert await world.store.count(empty.collection, Scope(tenant="acme", knowledge_base_id=empty.id)) == 0
