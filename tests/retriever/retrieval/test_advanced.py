"""A question in other words finds what its own words do not, and no language model is needed for an answer."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Any

import pytest
from chat_endpoint import ChatEndpoint, chat_endpoint
from kbmesh_retriever.llm import ChatRephraser
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retrieve.stage import Stage, Strategy
from kbmesh_rpc.errors import Reason
from retrieval_world import FaultyEmbedder, ScriptedReranker, World, texts_of

QUESTION = "Why is checkout broken?"
CAUSE = "The payment gateway rejects every card since the certificate expired."
OTHER = "Checkout has a new colour."
REPHRASED = ["payment gateway rejects card", "expired certificate"]


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    with chat_endpoint() as running:
        running.content = json.dumps({"queries": REPHRASED})
        yield running


@pytest.fixture
async def rephraser(endpoint: ChatEndpoint) -> AsyncIterator[ChatRephraser]:
    made = ChatRephraser(base_url=endpoint.url, model="small", api_key="secret")
    yield made
    await made.close()


async def test_rephrasings_are_searched_and_fused(
    world: World, endpoint: ChatEndpoint, rephraser: ChatRephraser
) -> None:
    await world.make("ops", CAUSE, OTHER)
    embedder = FaultyEmbedder(inner=world.embedder)
    parts = {"rephraser": rephraser, "embedder": embedder, "reranker": ScriptedReranker(scores={"payment": 0.9})}
    assert CAUSE not in texts_of(await world.ask(QUESTION, strategy=Strategy.HYBRID))
    answer = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts, explain=True)
    assert answer.queries == (QUESTION, *REPHRASED)
    assert texts_of(answer)[0] == CAUSE
    assert answer.degradations == ()
    assert embedder.calls == [[QUESTION, *REPHRASED]] or embedder.calls == [(QUESTION, *REPHRASED)]
    assert {"vector ops, query 2", "keyword ops, query 3"} <= {trace.label for trace in answer.explanation}
    (asked,) = endpoint.requests
    assert asked["path"] == "/v1/chat/completions"
    assert asked["model"] == "small"
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["messages"][-1] == {"role": "user", "content": QUESTION}
    assert endpoint.authorizations == ["Bearer secret"]


async def test_at_most_three_distinct_rephrasings_are_taken(endpoint: ChatEndpoint, rephraser: ChatRephraser) -> None:
    endpoint.content = json.dumps({"queries": [QUESTION.upper(), " ", "one", "One ", "two", "three", "four"]})
    assert await rephraser.rephrase(QUESTION, timeout_seconds=5) == ("one", "two", "three")


FAULTS: tuple[tuple[dict[str, Any], Reason], ...] = (
    ({"status": 500}, Reason.DEPENDENCY_UNAVAILABLE),
    ({"status": 401}, Reason.DEPENDENCY_UNAVAILABLE),
    ({"content": "Sure! Here are some queries"}, Reason.DEPENDENCY_INVALID_RESPONSE),
    ({"content": '{"queries": [1, 2]}'}, Reason.DEPENDENCY_INVALID_RESPONSE),
    ({"content": '["a"]'}, Reason.DEPENDENCY_INVALID_RESPONSE),
    ({"body": b"<html>"}, Reason.DEPENDENCY_INVALID_RESPONSE),
    ({"body": b'{"choices": []}'}, Reason.DEPENDENCY_INVALID_RESPONSE),
    ({"delay_seconds": 2.0}, Reason.DEADLINE_EXCEEDED),
)


async def test_whatever_the_language_model_does_the_question_itself_is_answered(
    world: World, endpoint: ChatEndpoint, rephraser: ChatRephraser, subtests: pytest.Subtests
) -> None:
    await world.make("ops", OTHER)
    limits = RetrievalLimits(rephrase_timeout_seconds=1.0)
    parts = {"rephraser": rephraser, "reranker": ScriptedReranker(), "limits": limits}
    well = asdict(endpoint)
    for fault, reason in FAULTS:
        with subtests.test(fault=fault):
            for name in ("content", "status", "delay_seconds", "body"):
                setattr(endpoint, name, fault.get(name, well[name]))
            answer = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts)
            assert texts_of(answer) == [OTHER]
            assert answer.queries == (QUESTION,)
            assert [(one.stage, one.reason) for one in answer.degradations] == [(Stage.REPHRASE, reason)]


async def test_no_endpoint_and_one_that_is_not_there(world: World) -> None:
    await world.make("ops", OTHER)
    absent = ChatRephraser(base_url="http://127.0.0.1:9/v1", model="small")
    for rephraser, reason in ((None, Reason.FEATURE_UNSUPPORTED), (absent, Reason.DEPENDENCY_UNAVAILABLE)):
        parts = {"rephraser": rephraser, "reranker": ScriptedReranker()}
        answer = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts)
        assert texts_of(answer) == [OTHER]
        assert [(one.stage, one.reason) for one in answer.degradations] == [(Stage.REPHRASE, reason)]
    await absent.close()
