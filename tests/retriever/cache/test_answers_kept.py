"""What is kept and what is not, who shares, and who computes for itself."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_retriever.cache.metrics import REQUESTS
from kbmesh_retriever.mesh.port import Relevance, Reranked
from kbmesh_rpc.errors import DependencyUnavailable, Reason
from kbmesh_rpc.status import from_rpc_error
from redis_process import redis_missing, redis_process
from retriever.cache.conftest import Desk, question, texts
from retriever.mesh_fakes import always
from retriever.workshop import Workshop

RESTART = "Restart the payment service."
HIT, MISS, SHARED, UNASKED = (
    pb.CACHE_STATE_HIT,
    pb.CACHE_STATE_MISS,
    pb.CACHE_STATE_SHARED,
    pb.CACHE_STATE_UNSPECIFIED,
)
RERANK = pb.RETRIEVAL_STRATEGY_HYBRID_RERANK


@pytest.fixture(autouse=True)
async def handbook(workshop: Workshop) -> None:
    knowledge_base = await workshop.make()
    await workshop.ingest(knowledge_base, "a", RESTART)


class Opinion:
    """A reranker of some model."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.down = False

    async def rerank(self, query: str, documents: Sequence[str]) -> Reranked:
        if self.down:
            raise DependencyUnavailable("reranker", "down")
        results = tuple(
            Relevance(index=index, logit=0.0, probability=0.5, max_sim=None, error=None)
            for index in range(len(documents))
        )
        return Reranked(method="cross_encoder", model="opinion", fingerprint=self.fingerprint, results=results)


async def states(desk: Desk, times: int = 2, **asked: Any) -> list[int]:
    return [(await desk.ask(**asked)).cache for _ in range(times)]


async def test_a_degraded_answer_is_not_kept(open_desk: Any) -> None:
    opinion = Opinion("one")
    desk = await open_desk(reranker=opinion)
    opinion.down = True
    degraded = await desk.ask(strategy=RERANK)
    assert degraded.degraded
    assert degraded.cache == MISS
    opinion.down = False
    for _ in range(200):
        full = await desk.ask(strategy=RERANK)
        assert full.cache == MISS or not full.degraded
        if not full.degraded:
            break
        await asyncio.sleep(0.05)  # whoever guards the reranker lets it rest
    assert (await desk.ask(strategy=RERANK)).cache == HIT
    opinion.down = True
    assert (await desk.ask(strategy=RERANK)).cache == HIT, "what is kept is there while its makers are not"


async def test_another_reranker_gives_other_answers(open_desk: Any) -> None:
    opinion = Opinion("one")
    desk = await open_desk(reranker=opinion)
    assert await states(desk, strategy=RERANK) == [MISS, HIT]
    opinion.fingerprint = "two"
    assert await states(desk, strategy=RERANK) == [HIT, HIT], "nobody has heard of it yet"
    await desk.ask("something else", strategy=RERANK)
    assert await states(desk, strategy=RERANK) == [MISS, HIT]
    assert await states(desk) == [MISS, HIT]


async def test_an_answer_without_one_of_its_knowledge_bases_is_not_kept(desk: Desk, workshop: Workshop) -> None:
    for _ in range(2):
        partial = await desk.ask("restart", "handbook", "gone")
        assert partial.cache == MISS
        assert partial.knowledge_bases[1].status == pb.KNOWLEDGE_BASE_STATUS_NOT_FOUND
    workshop.store.before("search", lambda call: DependencyUnavailable("qdrant", "down") if call == 2 else None)
    assert (await desk.ask("failing")).knowledge_bases[0].status == pb.KNOWLEDGE_BASE_STATUS_UNAVAILABLE
    assert (await desk.ask("failing")).cache == MISS


async def test_an_empty_answer_is_an_answer(desk: Desk, workshop: Workshop) -> None:
    await workshop.make("empty")
    first = await desk.ask("restart", "empty")
    assert first.knowledge_bases[0].status == pb.KNOWLEDGE_BASE_STATUS_EMPTY
    assert (await desk.ask("restart", "empty")).cache == HIT


async def test_another_question_has_another_answer(desk: Desk) -> None:
    assert await states(desk) == [MISS, HIT]
    files = pb.Condition(field="source_type", any_of=pb.StringList(values=["file"]))
    others: list[dict[str, Any]] = [
        {"query": "restart payments"},
        {"top_k": 7},
        {"context_budget_tokens": 100},
        {"strategy": pb.RETRIEVAL_STRATEGY_VECTOR_ONLY},
        {"filter": pb.Filter(all=[files])},
        {"filter": pb.Filter(none=[files])},
        {"max_results_per_document": 1},
        {"diversity": 0.5},
        {"thresholds": [pb.ScoreThreshold(stage=pb.SCORE_STAGE_VECTOR, min_score=0.3)]},
    ]
    for other in others:
        assert await states(desk, **other) == [MISS, HIT], other


async def test_a_default_said_or_not_is_the_same_question(desk: Desk) -> None:
    assert await states(desk, top_k=5, context_budget_tokens=2000, filter=pb.Filter()) == [MISS, HIT]
    assert (await desk.ask()).cache == HIT


async def test_each_says_when_it_wants_none(desk: Desk, workshop: Workshop) -> None:
    skipping = await desk.ask(skip_cache=True)
    assert skipping.cache == UNASKED
    assert (await desk.ask()).cache == HIT, "it is kept afterwards as any other"
    searches = workshop.store.calls["search"]
    assert (await desk.ask(skip_cache=True)).cache == UNASKED
    assert workshop.store.calls["search"] == searches + 1

    explained = await desk.ask("explain this", explain=True)
    assert explained.explanation
    assert explained.cache == UNASKED
    plain = await desk.ask("explain this")
    assert plain.cache == MISS
    assert not plain.explanation


async def test_without_a_cache_nothing_is_kept(open_desk: Any, workshop: Workshop) -> None:
    desk = await open_desk(cache="off")
    assert await states(desk) == [UNASKED, UNASKED]
    assert workshop.store.calls["search"] == 2
    assert workshop.words.texts.count("restart payment") == 2


async def test_the_query_is_embedded_once_for_other_questions_too(desk: Desk, workshop: Workshop) -> None:
    await desk.ask()
    await desk.ask(top_k=9)
    assert workshop.words.texts.count("restart payment") == 1


@pytest.mark.parametrize("cache", ["memory", "off"])
async def test_equal_questions_at_the_same_time_are_computed_once(
    open_desk: Any, workshop: Workshop, cache: str
) -> None:
    desk = await open_desk(cache=cache)
    workshop.store.before("search", lambda _: asyncio.sleep(0.3))
    shared = REQUESTS.labels("answers", "shared")
    before = shared._value.get()
    answers = await asyncio.gather(*(desk.ask(request_id=f"r{number}") for number in range(8)))
    assert workshop.store.calls["search"] == 1
    assert {texts(answer)[0] for answer in answers} == {RESTART}
    assert {answer.request_id for answer in answers} == {f"r{number}" for number in range(8)}
    assert sorted(answer.cache for answer in answers)[1:] == [SHARED] * 7
    assert shared._value.get() - before == 7


async def test_other_tenants_and_principals_share_nothing(desk: Desk, workshop: Workshop) -> None:
    theirs = await workshop.make(tenant="other")
    await workshop.ingest(theirs, "a", RESTART)
    workshop.store.before("search", lambda _: asyncio.sleep(0.3))
    answers = await asyncio.gather(
        desk.ask(), desk.ask(tenant="other"), desk.ask(principals="ada"), desk.ask(principals="bob")
    )
    assert [answer.cache for answer in answers] == [MISS] * 4
    assert workshop.store.calls["search"] == 4


async def test_a_degraded_answer_is_not_shared(desk: Desk, workshop: Workshop) -> None:
    async def fault(call: int) -> DependencyUnavailable | None:
        await asyncio.sleep(0.3)
        return DependencyUnavailable("qdrant", "down") if call == 0 else None

    workshop.store.before("search", fault)
    answers = await asyncio.gather(*(desk.ask() for _ in range(3)))
    assert sorted(len(answer.results) for answer in answers) == [0, 1, 1]
    assert workshop.store.calls["search"] == 3


async def test_who_hangs_up_takes_nobody_along(desk: Desk, workshop: Workshop) -> None:
    searching, go_on = asyncio.Event(), asyncio.Event()
    ended: list[int] = []

    async def hold(call: int) -> None:
        searching.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            ended.append(call)
            raise

    workshop.store.before("search", hold)
    first = asyncio.create_task(desk.ask())
    await searching.wait()
    second = asyncio.create_task(desk.ask())
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    go_on.set()
    assert texts(await second) == [RESTART]
    assert (workshop.store.calls["search"], ended) == (1, [])

    go_on.clear()
    searching.clear()
    alone = asyncio.create_task(desk.ask("and this"))
    await searching.wait()
    alone.cancel()
    for _ in range(200):
        if ended:
            break
        await asyncio.sleep(0.01)
    assert ended == [1], "nobody waits for it: it ends"


async def test_a_wrong_question_is_refused_as_ever(desk: Desk) -> None:
    for request, reason in (
        (question("", "handbook"), Reason.EMPTY_TEXT),
        (question("x", "handbook", top_k=0), Reason.INVALID_FIELD),
        (question("x", "handbook", "handbook"), Reason.INVALID_FIELD),
        (question("x", "nowhere"), Reason.KNOWLEDGE_BASE_NOT_FOUND),
    ):
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await desk.stub.Retrieve(request)
            assert from_rpc_error(caught.value, dependency="retriever").reason is reason


async def test_without_the_catalog_nothing_is_given(desk: Desk, workshop: Workshop) -> None:
    await desk.ask()
    workshop.catalog.before("resolve_knowledge_bases", always(DependencyUnavailable("catalog", "down")))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await desk.ask()
    assert from_rpc_error(caught.value, dependency="retriever").reason is Reason.DEPENDENCY_UNAVAILABLE


async def test_a_stream_gives_a_kept_answer_at_once_and_keeps_its_own(open_desk: Any) -> None:
    desk = await open_desk(reranker=Opinion("one"))

    async def stream(query: str) -> list[tuple[str | None, int]]:
        request = pb.RetrieveStreamRequest(request=question(query, strategy=RERANK))
        answers = [answer async for answer in desk.stub.RetrieveStream(request)]
        return [(kind := one.WhichOneof("answer"), getattr(one, kind or "final").cache) for one in answers]

    assert await stream("restart") == [("fused", MISS), ("final", MISS)]
    assert await stream("restart") == [("final", HIT)]
    assert (await desk.ask("restart", strategy=RERANK)).cache == HIT
    await desk.ask("payment", strategy=RERANK)
    assert await stream("payment") == [("final", HIT)]


async def test_an_answer_that_is_too_large_is_not_kept(open_desk: Any) -> None:
    desk = await open_desk(cache_max_answer_bytes=100)
    assert await states(desk) == [MISS, MISS]


@pytest.mark.skipif(bool(redis_missing()), reason=redis_missing() or "it is there")
async def test_replicas_give_each_others_answers_by_redis(open_desk: Any, workshop: Workshop) -> None:
    with redis_process() as url:
        one, other = [await open_desk(cache="redis", redis_url=url, redis_timeout_seconds=5) for _ in range(2)]
        assert (await one.ask()).cache == MISS
        kept = await other.ask()
        assert (kept.cache, texts(kept)) == (HIT, [RESTART])
        assert workshop.store.calls["search"] == 1
        await other.ask(top_k=9)
        assert workshop.words.texts.count("restart payment") == 1
    gone = await one.ask()
    assert (gone.cache, texts(gone)) == (MISS, [RESTART])
    assert not gone.degraded, "a cache that is away is nothing to tell"
