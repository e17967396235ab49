"""Results come with what stands around them, say something else each, and fit in a prompt of any model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.catalog.port import Document, KnowledgeBase
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_retriever.retrieve.stage import Stage, Status
from kbmesh_retriever.retriever_messages import write_answer
from kbmesh_retriever.stores.port import Scope, StoredChunk
from kbmesh_rpc.errors import DependencyUnavailable, InvalidField, Reason
from retrieval_world import World, statuses_of, texts_of
from tokenizers import Tokenizer, models, pre_tokenizers

STEPS = (
    "The canteen serves noodles.",
    "Before all else stop the traffic.",
    "Then raise the connection pool of checkout to fifty.",
    "After that close idle connections.",
    "Lunch is at noon.",
    "The garden has roses.",
    "Idle connections of the pool cost memory.",
)
WHOLE = "\n\n".join(STEPS)


class Wrapped:
    """A store whose `read_chunks` is counted, and fails where there is an error for its collection."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.errors: dict[str, Exception] = {}
        self.read: list[tuple[str, Scope]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read_chunks(self, collection: str, scope: Scope, *args: Any, **named: Any) -> Sequence[StoredChunk]:
        self.read.append((collection, scope))
        if collection in self.errors:
            raise self.errors[collection]
        found: Sequence[StoredChunk] = await self._inner.read_chunks(collection, scope, *args, **named)
        return found


async def add(world: World, knowledge_base: KnowledgeBase, name: str, parts: Sequence[str] = STEPS) -> Document:
    """A document whose chunks stand where its paragraphs do."""
    document = await world.add(knowledge_base, name, *parts)
    place = 0
    for index, part in enumerate(parts):
        values = {
            "start": place,
            "end": place + len(part),
            "start_byte": place,
            "end_byte": place + len(part),
            "context": f"part {index}",
            "pages": [index + 1],
            **({"blank_before": "\n\n"} if index else {}),
        }
        await world.store.update_payload(
            knowledge_base.collection,
            Scope(tenant=knowledge_base.tenant, knowledge_base_id=knowledge_base.id),
            document.id,
            document.generation,
            values,
            indexes=[index],
        )
        place += len(part) + 2
    return document


async def test_a_result_comes_with_its_neighbours_and_so_does_its_citation(world: World) -> None:
    runbook = await world.make("runbook")
    await add(world, runbook, "pool")
    store = Wrapped(world.store)
    answer = await world.ask("raise connection pool checkout fifty", parts={"store": store}, top_k=1, expand=1)
    (result,) = write_answer(answer, request_id="1").results
    assert result.text == STEPS[2]
    assert result.expanded_text == "\n\n".join(STEPS[1:4])
    span = result.expanded_span
    assert WHOLE[span.start : span.end] == result.expanded_text
    assert WHOLE.encode()[span.start_byte : span.end_byte].decode() == result.expanded_text
    assert answer.context is not None
    assert answer.context.text == (
        f"[1] Pool, pages 2–4 (runbook) https://docs.example/pool\npart 1\n{result.expanded_text}"
    )
    assert result.citation == 1
    assert len(store.read) == 1
    plain = await world.ask("raise connection pool checkout fifty", parts={"store": store}, top_k=1)
    (result,) = write_answer(plain, request_id="1").results
    assert result.expanded_text == ""
    assert not result.HasField("expanded_span")
    assert len(store.read) == 1, "who does not ask for neighbours costs no call"


async def test_results_that_meet_are_one_and_are_cited_once(world: World) -> None:
    runbook = await world.make("runbook")
    await add(world, runbook, "pool")
    other = await world.make("other", "Idle connections of a swimming pool are rare.")
    store = Wrapped(world.store)
    question = "idle connections pool memory close"
    apart = await world.ask(question, parts={"store": store}, top_k=4)
    assert {STEPS[3], STEPS[6]} <= set(texts_of(apart))
    answer = await world.ask(question, parts={"store": store}, top_k=4, expand=1, explain=True)
    assert len(store.read) == 2, "one call for each knowledge base"
    message = write_answer(answer, request_id="1")
    assert [result.rank for result in message.results] == list(range(1, len(message.results) + 1))
    covered = [
        range(result.expanded_span.start, result.expanded_span.end)
        for result in message.results
        if result.knowledge_base == "runbook"
    ]
    places = [place for one in covered for place in one]
    assert len(places) == len(set(places)), "no text comes twice"
    for result in message.results:
        assert result.text in result.expanded_text
        if result.knowledge_base == "runbook":
            assert WHOLE[result.expanded_span.start : result.expanded_span.end] == result.expanded_text
        citation = message.context.citations[result.citation - 1]
        assert citation.chunk_id == result.chunk_id
        assert f"[{result.citation}] {citation.label}" in message.context.text
    gone = {one.chunk_id for trace in answer.explanation if trace.stage is Stage.ATTRIBUTE
            for one in trace.candidates if one.dropped}  # fmt: skip
    kept = {result.place.candidate.chunk_id for result in answer.results}
    assert gone
    assert not gone & kept
    assert other.name in {result.knowledge_base for result in message.results}


async def test_neighbours_that_cannot_be_read_are_missed_and_nothing_else_is(world: World) -> None:
    runbook = await world.make("runbook")
    await add(world, runbook, "pool")
    second = await world.make("second")
    await add(world, second, "pool", ("One. Raise the connection pool of checkout, always.", "Two."))
    store = Wrapped(world.store)
    store.errors[runbook.collection] = DependencyUnavailable("qdrant", "down")
    answer = await world.ask("raise connection pool checkout", parts={"store": store}, top_k=2, expand=1)
    by_base = {result.place.knowledge_base.name: result for result in answer.results}
    assert by_base["runbook"].expansion is None
    expansion = by_base["second"].expansion
    assert expansion is not None
    assert expansion.text.endswith("Two.")
    assert [(one.stage, one.reason) for one in answer.degradations] == [
        (Stage.ATTRIBUTE, Reason.DEPENDENCY_UNAVAILABLE)
    ]
    assert set(statuses_of(answer).values()) == {Status.OK}
    assert answer.context is not None
    assert STEPS[2] in answer.context.text


async def test_diversity_and_the_limit_of_a_document_choose_among_the_results(world: World) -> None:
    base = await world.make("ops")
    await world.add(base, "one", "Restart the checkout pods now.", "Restart the checkout pods now or later.")
    await world.add(base, "two", "Checkout has a pool of fifty.")
    question = "restart checkout pods now"
    assert texts_of(await world.ask(question, top_k=2)) == [
        "Restart the checkout pods now.",
        "Restart the checkout pods now or later.",
    ]
    different = ["Restart the checkout pods now.", "Checkout has a pool of fifty."]
    assert texts_of(await world.ask(question, top_k=2, diversity=0.9)) == different
    assert texts_of(await world.ask(question, top_k=2, max_results_per_document=1)) == different
    assert len(texts_of(await world.ask(question, top_k=3, max_results_per_document=1))) == 2
    answers = [texts_of(await world.ask(question, diversity=0.5)) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


async def test_every_wrong_field_is_named(world: World) -> None:
    await world.make("ops", "Text.")
    limits = RetrievalLimits(context_tokenizers=frozenset({"large", "small"}))
    for options, field in (
        ({"expand": 6}, "expand"),
        ({"diversity": 1.1}, "diversity"),
        ({"diversity": -0.1}, "diversity"),
        ({"diversity": float("nan")}, "diversity"),
        ({"max_results_per_document": 0}, "max_results_per_document"),
        ({"max_results_per_document": 101}, "max_results_per_document"),
        ({"context_tokenizer": "other"}, "context_tokenizer"),
    ):
        with pytest.raises(InvalidField) as caught:
            await world.ask("text", parts={"limits": limits}, **options)
        (violation,) = caught.value.field_violations
        assert violation.field == field
    assert "large, small" in violation.description


async def test_the_tokenizer_of_the_prompts_model_counts(world: World, tmp_path: Path) -> None:
    """One token for each character, where the embedder's own counts words."""
    characters = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.save(str(tmp_path / "tokenizer.json"))
    tokenizers = ContextTokenizers.load(f"small={tmp_path / 'tokenizer.json'}")
    parts = {"tokenizers": tokenizers, "limits": RetrievalLimits(context_tokenizers=tokenizers.names)}
    await world.make("ops", "Restart the pods. Then wait for them. Then look at the logs.")
    answer = await world.ask("restart pods", parts=parts, context_tokenizer="small", context_budget_tokens=90)
    assert answer.context is not None
    assert answer.context.text.splitlines()[1] == "Restart the pods. Then wait for them."
    assert answer.context.tokens == len(answer.context.text)
    assert [one.cut for one in answer.context.citations] == [True]
    assert write_answer(answer, request_id="1").context.citations[0] == pb.Citation(
        number=1, chunk_id=str(answer.results[0].place.candidate.chunk_id), label=answer.context.citations[0].label,
        cut=True,
    )  # fmt: skip
    own = await world.ask("restart pods", parts=parts, context_budget_tokens=90)
    assert own.context is not None
    assert own.context.text.endswith("logs.")
    assert not own.context.citations[0].cut
