"""A service of the mesh is down or late: the answer comes without it, and says so."""

from typing import Any

import pytest
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retrieve.request import RetrievalLimits, Selector
from kbmesh_retriever.retrieve.stage import RerankMethod, ScoreStage, Stage, Status, Strategy
from kbmesh_rpc.errors import (
    DependencyUnavailable,
    EmptyText,
    InferenceFailed,
    ModelMismatch,
    ModelNotFound,
    QueueFull,
    Reason,
)
from retrieval_world import FaultyEmbedder, FaultyStore, ScriptedReranker, World, statuses_of, texts_of

RESTART = "Restart the payment service after a failed deployment."
ROLLBACK = "Roll the payment service back when a restart does not help."
IMPATIENT = RetrievalLimits(embed_timeout_seconds=0.5, rerank_timeout_seconds=0.5)
DOWN = DependencyUnavailable("embedder", "down")


def degraded(answer: Answer) -> list[tuple[Stage, Reason]]:
    return [(one.stage, one.reason) for one in answer.degradations]


EMBEDDING_FAULTS: tuple[dict[str, Any], ...] = (
    {"error": DOWN},
    {"error": QueueFull(queued_tokens=9, limit=9, retry_after_seconds=1)},
    {"item_error": InferenceFailed("words", "NaN")},
    {"delay": 600.0},
)


async def test_without_vectors_hybrid_searches_by_keyword(world: World, subtests: pytest.Subtests) -> None:
    await world.make("a", RESTART, ROLLBACK)
    for faults in EMBEDDING_FAULTS:
        with subtests.test(faults=faults):
            embedder = FaultyEmbedder(inner=world.embedder, **faults)
            answer = await world.ask("failed deployment", "a", parts={"embedder": embedder, "limits": IMPATIENT})
            assert texts_of(answer) == [RESTART]
            assert [one.stage for one in answer.degradations] == [Stage.EMBED]
            assert answer.results[0].place.candidate.scores.vector is None
            assert statuses_of(answer) == {"a": Status.OK}


async def test_without_vectors_and_words_there_is_nothing_to_search_by(world: World) -> None:
    await world.make("a", RESTART)
    answer = await world.ask("?!", "a", parts={"embedder": FaultyEmbedder(inner=world.embedder, error=DOWN)})
    assert statuses_of(answer) == {"a": Status.UNAVAILABLE}


async def test_a_query_that_neither_model_nor_words_can_read_is_blank(world: World, subtests: pytest.Subtests) -> None:
    """A zero-width space: the knowledge bases are as well as ever, and the field that is wrong is the query."""
    await world.make("a", RESTART)
    embedder = FaultyEmbedder(inner=world.embedder, item_error=EmptyText("texts[0]"))
    for strategy in (Strategy.VECTOR_ONLY, Strategy.HYBRID, Strategy.HYBRID_RERANK):
        for query in ("\u200b", "\ufeff\u2060", "\x00"):
            with subtests.test(strategy=strategy, query=query), pytest.raises(EmptyText) as caught:
                await world.ask(query, "a", strategy=strategy, parts={"embedder": embedder})
            assert [wrong.field for wrong in caught.value.field_violations] == ["query"]
    answer = await world.ask("restart", "a", parts={"embedder": embedder})
    assert texts_of(answer) == [RESTART], "words that a model cannot read are searched all the same"
    assert degraded(answer) == [(Stage.EMBED, Reason.EMPTY_TEXT)]


async def test_vector_only_fails_with_the_embedders_own_error(world: World) -> None:
    await world.make("a", RESTART)
    embedder = FaultyEmbedder(inner=world.embedder, error=QueueFull(queued_tokens=9, limit=9, retry_after_seconds=1))
    with pytest.raises(QueueFull):
        await world.ask("restart", "a", strategy=Strategy.VECTOR_ONLY, parts={"embedder": embedder})


async def test_ret_21_each_model_embeds_once_and_a_changed_model_is_told(world: World) -> None:
    """RET-21."""
    await world.make("a", RESTART)
    await world.make("b", ROLLBACK)
    await world.make("c", RESTART, fingerprint="of a model that is no more")
    embedder = FaultyEmbedder(inner=world.embedder)
    answer = await world.ask("restart payment", "a", "b", "c", parts={"embedder": embedder})
    assert len(embedder.calls) == 2, "one for a and b together, one for c"
    assert statuses_of(answer) == {"a": Status.OK, "b": Status.OK, "c": Status.MODEL_MISMATCH}
    assert answer.reports[2].error is not None
    assert answer.reports[2].error.reason is Reason.MODEL_MISMATCH
    assert {result.place.knowledge_base.name for result in answer.results} == {"a", "b"}


async def test_a_model_that_is_gone_is_a_status_and_no_degradation(world: World, subtests: pytest.Subtests) -> None:
    kept = await world.make("a", RESTART)
    store = FaultyStore(inner=world.store)
    for error in (ModelNotFound("words"), ModelMismatch("words", expected="one", actual="another")):
        for strategy in (Strategy.VECTOR_ONLY, Strategy.HYBRID):
            with subtests.test(error=error.reason, strategy=strategy):
                parts = {"embedder": FaultyEmbedder(inner=world.embedder, error=error), "store": store}
                answer = await world.ask("restart", "a", strategy=strategy, parts=parts)
                assert statuses_of(answer) == {kept.name: Status.MODEL_MISMATCH}
                assert (answer.results, answer.degradations, store.searched) == ((), (), [])


async def test_an_embedder_that_answers_by_another_model_is_not_believed(world: World) -> None:
    await world.make("a", RESTART)
    embedder = FaultyEmbedder(inner=world.embedder, fingerprint="another")
    answer = await world.ask("restart", "a", parts={"embedder": embedder})
    assert statuses_of(answer) == {"a": Status.MODEL_MISMATCH}


async def test_the_reranked_order_is_the_blend(world: World) -> None:
    await world.make("a", RESTART, ROLLBACK)
    reranker = ScriptedReranker(scores={"Roll": 0.99, "Restart": 0.1})
    answer = await world.ask("restart", "a", strategy=Strategy.HYBRID_RERANK, parts={"reranker": reranker})
    assert texts_of(answer) == [ROLLBACK, RESTART]
    assert answer.rerank_method is RerankMethod.CROSS_ENCODER
    assert answer.degradations == ()
    assert answer.results[0].place.candidate.scores.rerank_probability == 0.99


@pytest.mark.parametrize(
    ("reranker", "reason"),
    [
        (None, Reason.FEATURE_UNSUPPORTED),
        (ScriptedReranker(error=DependencyUnavailable("reranker", "down")), Reason.DEPENDENCY_UNAVAILABLE),
        (ScriptedReranker(delay=600), Reason.DEADLINE_EXCEEDED),
    ],
)
async def test_without_the_reranker_the_fused_order_is_the_answer(
    world: World, reranker: ScriptedReranker | None, reason: Reason
) -> None:
    await world.make("a", RESTART, ROLLBACK)
    answer = await world.ask(
        "failed deployment", "a", strategy=Strategy.HYBRID_RERANK, parts={"reranker": reranker, "limits": IMPATIENT}
    )
    assert texts_of(answer)[0] == RESTART
    assert degraded(answer) == [(Stage.RERANK, reason)]
    assert answer.rerank_method is RerankMethod.NONE


async def test_a_threshold_on_a_score_that_is_not_there_is_not_applied_and_said(world: World) -> None:
    await world.make("a", RESTART)
    probable = Selector(knowledge_base="a", min_score=0.5, min_score_stage=ScoreStage.RERANK_PROBABILITY)
    answer = await world.ask("restart", probable, strategy=Strategy.HYBRID_RERANK)
    assert texts_of(answer) == [RESTART]
    assert degraded(answer) == [(Stage.RERANK, Reason.FEATURE_UNSUPPORTED)] * 2
    reranker = ScriptedReranker(scores={"Restart": 0.4})
    judged = await world.ask("restart", probable, strategy=Strategy.HYBRID_RERANK, parts={"reranker": reranker})
    assert statuses_of(judged) == {"a": Status.BELOW_THRESHOLD}
    assert judged.degradations == ()


async def test_tokens_are_estimated_where_they_cannot_be_counted(world: World) -> None:
    await world.make("a", RESTART)
    embedder = FaultyEmbedder(inner=world.embedder, count_error=DOWN)
    answer = await world.ask("restart", "a", parts={"embedder": embedder})
    assert answer.context is not None
    assert answer.context.estimated
    assert answer.context.text.endswith(RESTART)
    assert degraded(answer) == [(Stage.ATTRIBUTE, DOWN.reason)]


async def test_without_the_tokenizer_that_was_asked_for_the_answer_says_why_its_block_is_no_exact_one(
    world: World,
) -> None:
    await world.make("a", RESTART)
    limits = RetrievalLimits(context_tokenizers=frozenset({"gpt"}))
    for tokenizers, reason in (
        (ContextTokenizers({}), Reason.FEATURE_UNSUPPORTED),
        (ContextTokenizers({"gpt": object()}), Reason.DEPENDENCY_INVALID_RESPONSE),
    ):
        parts = {"limits": limits, "tokenizers": tokenizers}
        answer = await world.ask("restart", "a", context_tokenizer="gpt", parts=parts)
        assert answer.context is not None
        assert answer.context.estimated
        assert degraded(answer) == [(Stage.ATTRIBUTE, reason)]
    without = await world.ask("restart", "a", context_budget_tokens=0)
    assert degraded(without) == []


async def test_ret_17_the_longest_query_is_answered_and_what_was_not_read_is_told(world: World) -> None:
    """RET-17."""
    await world.make("a", RESTART)
    answer = await world.ask(("why does service %d fail " * 450)[:10_000] + "", "a")
    assert statuses_of(answer)["a"] in {Status.OK, Status.BELOW_THRESHOLD}
    assert {stage for stage, _ in degraded(answer)} <= {Stage.EMBED}
    assert {reason for _, reason in degraded(answer)} <= {Reason.TEXT_TOO_LONG}


async def test_words_that_are_too_many_to_be_searched_are_told(world: World) -> None:
    """The one that matters comes last, and nothing else would say why it is not found."""
    await world.make("a", RESTART)
    many = [f"w{number}" for number in range(200)]
    for query, told in ((" ".join([*many, "deployment"]), True), ("failed deployment", False)):
        answer = await world.ask(query, "a", strategy=Strategy.HYBRID)
        assert ((Stage.SEARCH, Reason.TEXT_TOO_LONG) in degraded(answer)) is told
    by_vectors = await world.ask(" ".join(many), "a", strategy=Strategy.VECTOR_ONLY)
    assert (Stage.SEARCH, Reason.TEXT_TOO_LONG) not in degraded(by_vectors)
