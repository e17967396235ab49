"""A question in other words finds what its own words do not, and no language model is needed for an answer."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from chat_endpoint import ChatEndpoint, chat_endpoint
from kbmesh_retriever.llm import ChatRephraser
from kbmesh_retriever.mesh.port import Embedded
from kbmesh_retriever.retrieve.rephrasing import Rephrasing
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retrieve.stage import Stage, Strategy
from kbmesh_rpc.errors import DependencyInvalidResponse, DependencyUnavailable, InvalidField, KbmeshError, Reason
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


GUESS = "The payment gateway refuses each card because its certificate expired."


def both(asked: dict[str, Any]) -> str:
    """What the language model answers: a guess or rephrasings, by the schema that was asked for."""
    wanted = asked["response_format"]["json_schema"]["schema"]["properties"]
    return json.dumps({"answer": GUESS} if "answer" in wanted else {"queries": ["checkout is broken"]})


async def test_a_hypothetical_answer_finds_what_the_question_does_not(
    world: World, endpoint: ChatEndpoint, rephraser: ChatRephraser
) -> None:
    await world.make("ops", CAUSE, OTHER)
    await world.make("other", OTHER)
    endpoint.answer = both
    embedder = TypedEmbedder(inner=world.embedder)
    parts = {"rephraser": rephraser, "embedder": embedder, "reranker": ScriptedReranker(scores={"payment": 0.9})}
    without = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts, explain=True)
    assert CAUSE not in texts_of(without)
    embedder.typed.clear()
    answer = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts, explain=True, hypothetical_answer=True)
    assert texts_of(answer)[0] == CAUSE
    assert answer.degradations == ()
    assert answer.queries == (QUESTION, "checkout is broken"), "a guess is no query"
    # As a document, once for the model of both knowledge bases, and by its vector alone.
    assert embedder.typed["document"] == [[GUESS]]
    traces = {
        trace.label: [candidate for candidate in trace.candidates if not candidate.dropped]
        for trace in answer.explanation
    }
    assert len(traces["vector ops, query 3"]) == 1, "the other is below the least score"
    assert not traces.get("keyword ops, query 3")


async def test_without_a_guess_the_question_is_searched_and_it_is_told(
    world: World, endpoint: ChatEndpoint, rephraser: ChatRephraser
) -> None:
    await world.make("ops", CAUSE, OTHER)
    parts = {"rephraser": rephraser, "reranker": ScriptedReranker()}
    options = {"strategy": Strategy.ADVANCED, "parts": parts, "hypothetical_answer": True}
    # The endpoint answers rephrasings to everything.
    answer = await world.ask(QUESTION, **options)
    assert answer.queries == (QUESTION, *REPHRASED)
    assert [(one.stage, one.reason) for one in answer.degradations] == [
        (Stage.REPHRASE, Reason.DEPENDENCY_INVALID_RESPONSE)
    ]
    endpoint.status = 503
    answer = await world.ask("Is checkout broken?", **options)
    assert texts_of(answer)[0] == OTHER
    assert [one.reason for one in answer.degradations] == [Reason.DEPENDENCY_UNAVAILABLE] * 2


@pytest.mark.parametrize("content", ['{"answer": ""}', '{"answer": " "}', '{"answer": 7}', '["answer"]', "{}"])
async def test_a_guess_that_is_none(content: str, endpoint: ChatEndpoint, rephraser: ChatRephraser) -> None:
    endpoint.content = content
    with pytest.raises(DependencyInvalidResponse):
        await rephraser.hypothesize(QUESTION, timeout_seconds=5)


async def test_a_guess_is_no_longer_than_a_passage(endpoint: ChatEndpoint, rephraser: ChatRephraser) -> None:
    endpoint.content = json.dumps({"answer": "word " * 10_000})
    assert len(await rephraser.hypothesize(QUESTION, timeout_seconds=5)) == 2000


async def test_an_embedder_that_cannot_read_the_guess_costs_only_the_guess(
    world: World, endpoint: ChatEndpoint, rephraser: ChatRephraser
) -> None:
    await world.make("ops", CAUSE, OTHER)
    endpoint.answer = both
    embedder = TypedEmbedder(inner=world.embedder, document_error=DependencyUnavailable("embedder", "down"))
    parts = {"rephraser": rephraser, "embedder": embedder, "reranker": ScriptedReranker()}
    answer = await world.ask(QUESTION, strategy=Strategy.ADVANCED, parts=parts, hypothetical_answer=True)
    assert OTHER in texts_of(answer)
    assert [(one.stage, one.reason) for one in answer.degradations] == [(Stage.EMBED, Reason.DEPENDENCY_UNAVAILABLE)]


async def test_a_hypothetical_answer_is_for_advanced_alone(world: World) -> None:
    await world.make("ops", OTHER)
    with pytest.raises(InvalidField) as caught:
        await world.ask(QUESTION, strategy=Strategy.HYBRID, hypothetical_answer=True)
    assert [one.field for one in caught.value.field_violations] == ["hypothetical_answer"]


async def test_the_language_model_is_asked_once_for_a_tenant_and_a_query(
    endpoint: ChatEndpoint, rephraser: ChatRephraser
) -> None:
    endpoint.answer = both
    now = [0.0]
    rephrasing = Rephrasing(rephraser, entries=4, seconds=60, clock=lambda: now[0])

    async def ask(query: str = QUESTION, tenant: str = "acme", hypothesize: bool = True) -> int:
        """How many questions the language model got for it."""
        before = len(endpoint.requests)
        outcome = await rephrasing.of(query, tenant=tenant, hypothesize=hypothesize, seconds=5)
        assert outcome.queries(query) == (query, "checkout is broken")
        assert outcome.guess == (GUESS if hypothesize else "")
        return len(endpoint.requests) - before

    assert await ask() == 2
    assert await ask() == 0
    assert await ask(hypothesize=False) == 0
    assert await ask(tenant="rival") == 2, "what another tenant asked is nobody's to know"
    assert await ask(query=f"{QUESTION} Really?", hypothesize=False) == 1
    assert await ask() == 1, "of four answers the one not asked for longest has left"
    now[0] = 61.0
    assert await ask() == 2


async def test_a_failure_is_not_remembered(endpoint: ChatEndpoint, rephraser: ChatRephraser) -> None:
    rephrasing = Rephrasing(rephraser)
    endpoint.statuses = [500, 500]
    failed = await rephrasing.of(QUESTION, tenant="acme", hypothesize=True, seconds=5)
    assert isinstance(failed.rephrasings, DependencyUnavailable)
    assert isinstance(failed.hypothesis, DependencyUnavailable)
    endpoint.answer = both
    assert (await rephrasing.of(QUESTION, tenant="acme", hypothesize=True, seconds=5)).guess == GUESS


@dataclass(kw_only=True)
class TypedEmbedder(FaultyEmbedder):
    """Also tells what was embedded as what, and may fail for documents alone."""

    typed: dict[str, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    document_error: KbmeshError | None = None

    async def embed(self, texts: Sequence[str], *, input_type: Literal["query", "document"], **named: Any) -> Embedded:
        self.typed[input_type].append(list(texts))
        if input_type == "document" and self.document_error is not None:
            raise self.document_error
        return await super().embed(texts, input_type=input_type, **named)
