"""What one knowledge base cannot give costs the others nothing, and the answer says what is missing."""

import uuid

import pytest
from kbmesh_retriever.catalog.port import RetrievalDefaults
from kbmesh_retriever.retrieve.request import RetrievalLimits, Selector
from kbmesh_retriever.retrieve.stage import ScoreStage, Stage, Status, Strategy
from kbmesh_retriever.stores.port import Hit, Scope, SearchResult
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KnowledgeBaseNotFound, Reason
from retrieval_world import CountingCatalog, FaultyStore, World, statuses_of, texts_of
from structlog.testing import capture_logs

RESTART = "Restart the payment service after a failed deployment."


@pytest.mark.parametrize("strategy", [Strategy.VECTOR_ONLY, Strategy.HYBRID, Strategy.HYBRID_RERANK])
async def test_ret_20_one_down_and_one_slow(world: World, strategy: Strategy) -> None:
    """RET-20."""
    await world.make("a", RESTART)
    down, slow, broken = [await world.make(name, RESTART) for name in ("b", "c", "d")]
    store = FaultyStore(
        inner=world.store,
        errors={down.collection: DependencyUnavailable("qdrant", "down"), broken.collection: ZeroDivisionError()},
        delays={slow.collection: 600},
    )
    parts = {"store": store, "limits": RetrievalLimits(search_timeout_seconds=2)}
    with capture_logs() as logs:
        answer = await world.ask("restart payment", "a", "b", "c", "d", strategy=strategy, parts=parts)
    assert texts_of(answer) == [RESTART]
    assert statuses_of(answer) == {
        "a": Status.OK,
        "b": Status.UNAVAILABLE,
        "c": Status.TIMEOUT,
        "d": Status.UNAVAILABLE,
    }
    errors = [report.error.reason if report.error else None for report in answer.reports]
    assert errors == [None, Reason.DEPENDENCY_UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL]
    assert [report.hits for report in answer.reports] == [1, 0, 0, 0]
    assert [entry["log_level"] for entry in logs if entry["event"] == "search_failed"] == ["error"]
    assert store.cancelled == [slow.collection], "nobody works on for an answer that has been given"


async def test_all_down_is_an_answer_without_results(world: World) -> None:
    down = await world.make("a", RESTART)
    store = FaultyStore(inner=world.store, errors={down.collection: DependencyUnavailable("qdrant", "down")})
    answer = await world.ask("restart", "a", parts={"store": store})
    assert answer.results == ()
    assert statuses_of(answer) == {"a": Status.UNAVAILABLE}
    assert answer.context is not None
    assert answer.context.text == ""


async def test_ret_18_an_empty_one_and_one_whose_collection_is_not_made_yet(world: World) -> None:
    """RET-18."""
    await world.make("empty")
    await world.make("full", RESTART)
    unmade = await world.make("unmade")
    scope = Scope(tenant=unmade.tenant, knowledge_base_id=unmade.id)
    await world.store.delete_knowledge_base(unmade.collection, scope, drop_collection=True)
    answer = await world.ask("restart payment", "empty", "unmade", "full")
    assert statuses_of(answer) == {"empty": Status.EMPTY, "unmade": Status.EMPTY, "full": Status.OK}
    assert texts_of(answer) == [RESTART]
    assert answer.degradations == ()
    alone = await world.ask("anything", "empty", strategy=Strategy.HYBRID)
    assert (alone.results, alone.degradations) == ((), ())


async def test_ret_19_unknown_names_are_told_and_cost_the_known_nothing(world: World) -> None:
    """RET-19."""
    await world.make("kb-a", RESTART)
    answer = await world.ask("restart payment", "kb-a", "kb-does-not-exist")
    assert statuses_of(answer) == {"kb-a": Status.OK, "kb-does-not-exist": Status.NOT_FOUND}
    assert answer.reports[1].id is None
    with pytest.raises(KnowledgeBaseNotFound) as caught:
        await world.ask("restart", "kb-x", "kb-y")
    assert caught.value.metadata == {"knowledge_base": "kb-x, kb-y"}


async def test_below_the_threshold_is_not_empty(world: World) -> None:
    await world.make("a", RESTART)
    answer = await world.ask("zebra stripes", "a")
    assert statuses_of(answer) == {"a": Status.BELOW_THRESHOLD}
    assert answer.results == ()


async def test_the_vector_threshold_drops_no_keyword_hit(world: World) -> None:
    await world.make("a", RESTART, retrieval=RetrievalDefaults(min_vector_score=0.99))
    answer = await world.ask("restart", "a")
    (result,) = answer.results
    assert result.place.candidate.ranks.vector is None
    assert result.place.candidate.ranks.keyword == 1
    vector_only = await world.ask("restart", "a", strategy=Strategy.VECTOR_ONLY)
    assert statuses_of(vector_only) == {"a": Status.BELOW_THRESHOLD}


@pytest.mark.parametrize("stage", [ScoreStage.KEYWORD, ScoreStage.FUSED, ScoreStage.FINAL])
async def test_a_threshold_applies_to_its_own_stage_and_knowledge_base(world: World, stage: ScoreStage) -> None:
    await world.make("strict", RESTART)
    await world.make("lax", RESTART + " Twice, if it has to be.")
    selector = Selector(knowledge_base="strict", min_score=1000, min_score_stage=stage)
    answer = await world.ask("zebra restart", selector, "lax", filter=None)
    if stage is ScoreStage.KEYWORD:
        # Its vector hits stay; by words it is in no list any more.
        ranks = {one.place.knowledge_base.name: one.place.candidate.ranks for one in answer.results}
        assert (ranks["strict"].keyword, ranks["lax"].keyword) == (None, 1)
    else:
        assert [result.place.knowledge_base.name for result in answer.results] == ["lax"]
        assert statuses_of(answer) == {"strict": Status.BELOW_THRESHOLD, "lax": Status.OK}


async def test_a_weight_favours_and_a_limit_keeps_short(world: World) -> None:
    notes = [f"Restart note {number}: {word}" for number, word in enumerate(("one", "two", "three"))]
    await world.make("a", *notes)
    await world.make("b", RESTART)
    answer = await world.ask(
        "restart", Selector(knowledge_base="a", max_results=1), Selector(knowledge_base="b", weight=10)
    )
    assert [result.place.knowledge_base.name for result in answer.results] == ["b", "a"]


async def test_ret_05_a_hit_without_a_proper_id_is_a_failure_that_is_told(
    world: World, subtests: pytest.Subtests
) -> None:
    """RET-05."""
    odd = await world.make("odd", RESTART)
    await world.make("good", RESTART)
    payload = {"tenant": "acme", "knowledge_base_id": str(odd.id)}
    for identity in (7, "7", None, "summary_42"):
        with subtests.test(identity=identity):
            hit = Hit(id=identity, score=0.9, payload=payload)  # type: ignore[arg-type]  # that is the fault
            faulty = SearchResult(dense=(hit, hit), keyword=(hit,))
            store = FaultyStore(inner=world.store, answers={odd.collection: faulty})
            answer = await world.ask("restart", "odd", "good", parts={"store": store})
            assert statuses_of(answer) == {"odd": Status.UNAVAILABLE, "good": Status.OK}
            assert answer.reports[0].error is not None
            assert answer.reports[0].error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


async def test_without_its_catalog_a_retrieval_fails(world: World) -> None:
    await world.make("a", RESTART)
    catalog = CountingCatalog(inner=world.catalog, error=DependencyUnavailable("catalog", "down"))
    with pytest.raises(DependencyUnavailable):
        await world.ask("restart", "a", parts={"catalog": catalog})


async def test_a_deadline_that_has_passed(world: World) -> None:
    await world.make("a", RESTART)
    with pytest.raises(DeadlineExceeded):
        await world.ask("restart", "a", seconds=0)


async def test_many_knowledge_bases_cost_two_catalog_queries_and_one_embedding(world: World) -> None:
    for number in range(6):
        await world.make(f"kb-{number}", f"{RESTART} Number {number} of {uuid.uuid4().hex} things.")
    catalog = CountingCatalog(inner=world.catalog)
    limits = RetrievalLimits(search_concurrency=2)
    answer = await world.ask("restart", top_k=10, parts={"catalog": catalog, "limits": limits})
    assert len(answer.results) == 6
    assert (catalog.resolves, catalog.validations) == (1, 1)


async def test_a_store_without_sparse_vectors_is_searched_by_vectors_alone_and_the_answer_says_so(world: World) -> None:
    base = await world.make("a", RESTART)
    whole = await world.ask("restart payment", "a", strategy=Strategy.HYBRID)
    fragment = whole.results[0].place.candidate.fragment
    scope = Scope(tenant=base.tenant, knowledge_base_id=base.id)
    pages = [page async for page in world.store.read_generation(base.collection, scope, *fragment.version)]
    found = Hit(id=fragment.chunk_id, score=0.9, payload=pages[0][0].payload)
    by_vectors = SearchResult(dense=(found,), keyword=(), keyword_served=False)
    store = FaultyStore(inner=world.store, answers={base.collection: by_vectors})
    answer = await world.ask("restart payment", "a", strategy=Strategy.HYBRID, parts={"store": store})
    assert texts_of(answer) == [RESTART]
    assert statuses_of(answer) == {"a": Status.OK}
    assert [(one.stage, one.reason) for one in answer.degradations] == [(Stage.SEARCH, Reason.FEATURE_UNSUPPORTED)]
